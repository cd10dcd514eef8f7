"""A norm folded into the maps around it: its gain, its bias, its centring, and the scale that a side is divided by.

    norm(x) = centre(x) / s · w + b,    centre(x) = x − mean(x),    s = √(mean(centre(x)²) + ε)    for each position

An RMS norm has centre(x) = x and b = 0; w is the whole gain, with Gemma's offset.

Centring and gain are linear and can be part of the map that reads the norm, `into`, or of the rows that it reads,
`read`; the bias goes through that map alone. The scale s depends on the input. It is known where a row is alone in the
stream (`scale`), or once a prompt has been run (the activation `scale_hook`). Without a norm this changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.models import hook_names
from aotlens.models.ours import require_ours
from aotlens.models.weights import widened

if TYPE_CHECKING:
    from aotlens.models.transformer import AttentionOnlyTransformer


@dataclass(frozen=True, eq=False)
class FoldedNorm:
    """The action of a norm on rows `[..., d_model]` besides dividing by their scale; nothing where the model has none.

    Results have the dtype and the device of what is given.
    """

    gain: Float[Tensor, " d_model"]
    """w, ones without a norm."""
    bias: Float[Tensor, " d_model"]
    """b, zeros without a norm."""
    eps: float | None
    """ε; None without a norm."""
    scale_hook: str
    """The hook whose activation is s."""
    centres: bool = True
    """Whether the norm takes the mean away; an RMS norm does not."""

    def centre(self, rows: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Return rows without their mean, where the norm takes it away."""
        return rows if self.eps is None or not self.centres else rows - rows.mean(-1, keepdim=True)

    def scale(self, rows: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows 1"]:
        """Return s of rows that are alone in the stream; 1 without a norm."""
        if self.eps is None:
            return torch.ones_like(rows[..., :1])
        return (self.centre(rows).pow(2).mean(-1, keepdim=True) + self.eps).sqrt()

    def gained(self, normalised: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Return the rows, multiplied by the norm's gain."""
        return normalised if self.eps is None else normalised * self.gain.to(normalised)

    def read(
        self, rows: Float[Tensor, "*rows d_model"], scale: Tensor | float | int = 1.0
    ) -> Float[Tensor, "*rows d_model"]:
        """Return centre(x) / s · w: what a map behind the norm reads of rows in the stream; the bias is apart."""
        return rows if self.eps is None else self.gained(self.centre(rows) / scale)

    def after(self, weight: Float[Tensor, "*maps in_ d_model"]) -> Float[Tensor, "*maps in_ d_model"]:
        """Return the map W before the norm, but for the scale: x ↦ centre(x W) · w is x ↦ x @ after(W)."""
        return self.gained(self.centre(weight))

    def into(self, weight: Float[Tensor, "*maps d_model out"]) -> Float[Tensor, "*maps d_model out"]:
        """Return the map W behind the norm as one on what is written to the stream: x ↦ centre(x) · w W is x ↦ x @
        into(W)."""
        if self.eps is None:
            return weight
        gained = self.gain.to(weight)[:, None] * weight
        return gained - gained.mean(-2, keepdim=True) if self.centres else gained


def folded_norm(model: AttentionOnlyTransformer, layer: int | None) -> FoldedNorm:
    """Return the norm before the heads of `layer` (None: before the unembedding), in float32 at least.

    Raises `ValueError` for norms that stand after what layers write is added.
    """
    require_ours(model, "folded_norm", without=("norm_after",))
    if layer is None:
        return _folded(model, model.ln_final if model.cfg.has_final_norm else None, hook_names.FINAL_SCALE)
    norm = model.blocks[layer].ln1 if model.cfg.reads_normed else None
    return _folded(model, norm, hook_names.norm_scale(layer))


def folded_output_norm(model: AttentionOnlyTransformer, layer: int) -> FoldedNorm:
    """Return the norm of what the heads of `layer` write together, before it is added to the stream; nothing where the
    model has none."""
    require_ours(model, "folded_output_norm")
    norm = model.blocks[layer].ln1_post if model.cfg.norms_output else None
    return _folded(model, norm, hook_names.block(layer, "ln1_post.hook_scale"))


def _folded(model: AttentionOnlyTransformer, norm: Any, hook: str) -> FoldedNorm:
    if norm is None:
        ones = torch.ones(model.cfg.d_model, dtype=model.dtype, device=model.device)
        return FoldedNorm(gain=widened(ones), bias=widened(torch.zeros_like(ones)), eps=None, scale_hook=hook)
    gain = widened(norm.gain)
    bias = torch.zeros_like(gain) if norm.b is None else widened(norm.b)
    return FoldedNorm(gain=gain, bias=bias, eps=model.cfg.norm_eps, scale_hook=hook, centres=norm.kind.centres)
