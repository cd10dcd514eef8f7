"""The models that an analysis can read: ours or a bridge around another's, with weights that are numbers; and pixels
into a model of images (`to_images`, as `to_tokens` for text)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from aotlens.models.hooks import HookedRootModule
from aotlens.models.text import TextInterface
from aotlens.models.traits import Trait, require_without
from aotlens.models.weights import StackedWeights

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


#: The tensors of a model that were found good, by identity and by how often each had been changed in place.
_found_good: WeakKeyDictionary[nn.Module, list[tuple[int, int]]] = WeakKeyDictionary()


class OwnModel(StackedWeights, TextInterface, ImageInterface, HookedRootModule):
    """The interface of a model of ours to functions of this package: `AttentionOnlyTransformer` is the one."""

    sees_later_keys: bool

    def visible_keys(
        self, n_pos: int, attention_mask: Tensor | None, device: torch.device, layer: int | None = None
    ) -> Tensor | None:
        """Return the keys that a query sees, `[batch or 1, head or 1, query, key]`; None where it sees all of them."""
        raise NotImplementedError


def require_ours(model: Any, purpose: str, *, weights: bool = True, without: Iterable[Trait] = ()) -> None:
    """Raise `ValueError`, naming the purpose, for a model that is no `AttentionOnlyTransformer`, for one with a trait
    that the purpose is not defined `without`, and as `require_weights` does unless the purpose reads no `weights`."""
    if isinstance(model, OwnModel):
        require_without(model.cfg, purpose, without)
        if weights:
            require_weights(model, purpose)
        return
    kind = type(model).__name__
    bridge = kind == "TransformerBridge"
    advice = (
        "what takes a bridge says so, as aotlens.heads.motif_scores, atlas and value_norms and aotlens.distill do; a "
        "native bridge becomes one of ours by aotlens.interop.from_transformer_lens."
        if bridge
        else "aotlens.load(source) opens one."
    )
    raise ValueError(f"{purpose}: expected a model of aotlens, got a {kind}; {advice}")


@torch.no_grad()
def require_weights(model: nn.Module, purpose: str) -> None:
    """Raise `ValueError`, naming the purpose and the tensor, for weights on the meta device or that are not finite.

    A tensor is read when it is new or was changed in place since, as PyTorch's version counters say; what goes around
    them (`tensor.data`) is not seen.
    """
    # Tensors of inference mode have no counter, and are read each time.
    state = [(id(tensor), -1 if tensor.is_inference() else tensor._version) for tensor in model.parameters()]
    if _found_good.get(model) == state and all(version >= 0 for _, version in state):
        return
    named = list(model.named_parameters())
    for name, tensor in named:
        if tensor.is_meta:
            raise ValueError(
                f"{purpose}: {name} of this model is on the meta device, which holds shapes and no numbers. Load its "
                "weights first."
            )
    bounds = [torch.stack(tensor.aminmax()) for _, tensor in named if tensor.is_floating_point() and tensor.numel()]
    if not all(bool(bound.isfinite().all()) for bound in bounds):
        names = [name for name, tensor in named if tensor.is_floating_point() and not bool(tensor.isfinite().all())]
        raise ValueError(
            f"{purpose}: {', '.join(names[:3])} of this model holds numbers that are not finite, so that nothing that "
            "is read from it means anything. Load its weights again."
        )
    _found_good[model] = state
