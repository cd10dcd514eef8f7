"""Pixels into a model of images: `to_images`, what `to_tokens` is for text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aotlens.models.config import ModelConfig


@runtime_checkable
class PixelProcessor(Protocol):
    """The interface of an image processor to a model; `aotlens.data.images.ImageProcessor` is one."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def data(self) -> str: ...

    def encode(self, images: Tensor, size: int | None = None) -> Tensor: ...

    def to_dict(self) -> dict[str, Any]: ...


class ImageInterface:
    """Pixels into a model that has an image processor; without one, a `ValueError` says so."""

    cfg: ModelConfig
    device: Any
    dtype: Any
    image_processor: PixelProcessor | None = None
    """The normalisation of pixels, and the names of the classes; a trained model of images brings it along."""

    def to_images(self, pixels: Tensor) -> Tensor:
        """Convert pixels to the model's input, `[image, channel, height, width]` on its device and of its type.

        `pixels` are uint8, `[image, 1 or 3 channels, height, width]` or one image `[channel, height, width]`: they are
        made grey or coloured, cut and scaled to the model's size, and normalised as in its training. Raises
        `ValueError` for a model that reads something else, has no image processor, or another kind of pixels.
        """
        if self.cfg.read_in != "patches":
            raise ValueError(f"to_images: expected a model that reads images, this one reads {self.cfg.read_in}.")
        if self.image_processor is None:
            raise ValueError(
                "this model has no image processor, which knows how pixels are normalised; give it normalised images "
                "as floats, or a processor: model.image_processor = aotlens.data.images.ImageProcessor(…)"
            )
        batch = pixels[None] if pixels.ndim == 3 else pixels
        return self.image_processor.encode(batch, self.cfg.image_size).to(self.device, self.dtype)

    def _as_input(self, x: Tensor) -> Tensor:
        """Pixels (uint8) as the model reads them; everything else as it is."""
        raw = self.cfg.read_in == "patches" and x.dtype == torch.uint8 and self.image_processor is not None
        return self.to_images(x) if raw else x
