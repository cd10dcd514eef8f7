"""The input format of a model of images, and the names of its classes: what a tokenizer is to a model of text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from aotlens.data.images.image_data import ImageSet, require_pixels

_GREY = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601, as Pillow makes colours grey


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """A model's normalisation of pixels and the names of its classes.

    A pixel p from 0 to 255 is read as (p/255 − mean) / deviation, by channel. Raises `ValueError` for lists of several
    lengths, and for a mean or deviation that is not finite or a deviation that is not positive.
    """

    mean: tuple[float, ...]
    """The mean of each channel's pixels in the training images, where 1 is full."""
    deviation: tuple[float, ...]
    """Standard deviation of each channel's pixels in the training images, where 1 is full."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of the model's outputs."""
    data: str = ""
    """The name of the data that it was trained on."""

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.deviation) or len(self.mean) not in (1, 3):
            raise ValueError(
                f"expected a mean and a deviation for each of 1 or 3 channels, got {len(self.mean)} and "
                f"{len(self.deviation)}."
            )
        if not all(math.isfinite(value) for value in (*self.mean, *self.deviation)) or min(self.deviation) <= 0:
            raise ValueError(
                f"expected finite means and positive deviations of pixels, got {self.mean} and {self.deviation}."
            )

    @classmethod
    def of(cls, images: ImageSet, data: str) -> ImageProcessor:
        """Return the processor with the mean, deviation and classes of `images`, those that a model is trained on."""
        mean, deviation = (tuple(values.tolist()) for values in (images.mean, images.deviation))
        return cls(mean=mean, deviation=deviation, classes=images.classes, data=data)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ImageProcessor:
        """Return the processor of which `to_dict` gave the fields. Raises `ValueError` for missing, unknown and
        misfitting values."""
        expected = ("mean", "deviation", "classes", "data")
        if sorted(values) != sorted(expected):
            raise ValueError(f"expected the keys {', '.join(expected)}, got {', '.join(values) or 'none'}.")
        numbers = all(
            isinstance(values[key], list | tuple)
            and all(isinstance(each, int | float) and not isinstance(each, bool) for each in values[key])
            for key in ("mean", "deviation")
        )
        names = isinstance(values["classes"], list | tuple) and all(isinstance(name, str) for name in values["classes"])
        if not (numbers and names and isinstance(values["data"], str)):
            raise ValueError(
                "expected lists of numbers (mean, deviation), a list of names (classes) and a name (data)."
            )
        return cls(
            mean=tuple(map(float, values["mean"])),
            deviation=tuple(map(float, values["deviation"])),
            classes=tuple(values["classes"]),
            data=values["data"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert it to JSON; `from_dict` undoes it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def encode(self, images: Tensor, size: int | None = None) -> Float[Tensor, "image channels height width"]:
        """Convert images to the model's input, float32: its channels, its `size` (None: as they are), normalised.

        `images` are uint8, `[image, 1 or 3 channels, height, width]`. Grey images become coloured ones by three equal
        channels, coloured ones grey by their luminance (ITU-R BT.601); of another size the middle square is cut out and
        scaled, with antialiasing. Raises `ValueError` for other images.
        """
        require_pixels(images)
        pixels = images.float()
        channels = len(self.mean)
        if pixels.shape[1] > channels:
            pixels = (pixels * pixels.new_tensor(_GREY)[:, None, None]).sum(1, keepdim=True)
        elif pixels.shape[1] < channels:
            pixels = pixels.expand(-1, channels, -1, -1)
        pixels = _square(pixels, size)
        mean, deviation = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.deviation))
        return (pixels / 255 - mean) / deviation


def _square(pixels: Tensor, size: int | None) -> Tensor:
    """The middle square at `size`; as they are where they have it, or none is asked for."""
    height, width = pixels.shape[2:]
    if size is None or (height, width) == (size, size):
        return pixels
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = pixels[..., top : top + side, left : left + side]
    return interpolate(middle, (size, size), mode="bilinear", antialias=True).clamp(0, 255)
