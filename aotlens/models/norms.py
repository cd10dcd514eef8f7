"""Norms of the residual stream. `NORMS` is the one table; an entry is all that a norm needs.

    layernorm   (x − mean(x)) / s · gain + b,    s = √(mean((x − mean(x))²) + ε)
    rms         x / s · gain,                    s = √(mean(x²) + ε)

The gain is w, or w + `norm_gain_offset` (Gemma stores gains less 1). Where norms stand, with f a layer:

    before    x + f(norm(x))            GPT-2, Llama
    after     norm(x + f(x))            BERT, RoBERTa, torch.nn.TransformerEncoder
    output    x + norm(f(x))            OLMo 2
    both      x + norm(f(norm(x)))      Gemma 2 and 3

Only with "after" is the stream no sum of what was written to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models.hook_points import HookPoint

NORM_PLACES = ("before", "after", "output", "both")


@runtime_checkable
class NormSettings(Protocol):
    """The fields of a `ModelConfig` that a norm reads."""

    @property
    def norm(self) -> str | None: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def norm_gain_offset(self) -> float: ...
    @property
    def d_model(self) -> int: ...
    @property
    def d_head(self) -> int: ...
    @property
    def qk_norm(self) -> str | None: ...


class Norm(nn.Module):
    """One norm of the table.

    Hooks: hook_scale `[batch, pos, 1]`; hook_normalized `[batch, pos, d_model]`, before gain and bias, as
    TransformerLens's bridge has it.
    """

    b: Tensor | None

    def __init__(self, cfg: NormSettings) -> None:
        super().__init__()
        assert cfg.norm is not None
        self.kind, self.eps, self.offset = NORMS[cfg.norm], cfg.norm_eps, cfg.norm_gain_offset
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.register_parameter("b", nn.Parameter(torch.zeros(cfg.d_model)) if self.kind.centres else None)
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    @property
    def gain(self) -> Tensor:
        """The factor of a normalised row, `[d_model]`."""
        return self.w + self.offset if self.offset else self.w

    def forward(self, x: Tensor) -> Tensor:
        if not (self.hook_scale.has_hooks() or self.hook_normalized.has_hooks()):
            if self.kind.centres:
                return F.layer_norm(x, self.w.shape, self.gain, self.b, self.eps)
            return F.rms_norm(x, self.w.shape, self.gain, self.eps)
        # bf16 statistics lose digits that the functions above keep: compute them in float32 at least.
        wide = x if x.dtype == torch.float64 else x.float()
        centred = wide - wide.mean(-1, keepdim=True) if self.kind.centres else wide
        scale = self.hook_scale((centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        gained = self.hook_normalized((centred / scale).to(x.dtype)) * self.gain
        return gained if self.b is None else gained + self.b


class HeadNorm(nn.Module):
    """The RMS norm of queries or keys `[batch, pos, head, d_head]`, of each head or of a layer's heads together.

    `w` is `[d_head]`, or `[group, d_head]` for heads that share keys in groups. Hook: hook_scale `[batch, pos, head or
    1, 1]`.
    """

    def __init__(self, cfg: NormSettings, groups: int) -> None:
        super().__init__()
        self.together, self.eps, self.offset = cfg.qk_norm == "layer", cfg.norm_eps, cfg.norm_gain_offset
        self.w = nn.Parameter(torch.ones(*([groups] if self.together else []), cfg.d_head))
        self.hook_scale = HookPoint()

    def gain(self, n_heads: int) -> Tensor:
        """Return the factor of normalised queries or keys, `[head or 1, d_head]`."""
        gain = self.w + self.offset if self.offset else self.w
        return gain.repeat_interleave(n_heads // len(gain), 0) if self.together else gain[None]

    def scale(self, x: Tensor) -> Tensor:
        """Return the divisor of queries or keys: √(mean square + ε) of a head or of all heads."""
        wide = x if x.dtype == torch.float64 else x.float()
        return (wide.pow(2).mean((-2, -1) if self.together else -1, keepdim=True) + self.eps).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        return (x / self.hook_scale(self.scale(x))).to(x.dtype) * self.gain(x.shape[-2])


@dataclass(frozen=True, kw_only=True)
class NormKind:
    """One norm, and what the rest of the library has to know of it."""

    centres: bool
    """Whether it takes the mean of a row away, and has a bias."""
    transformer_lens: str
    """TransformerLens's name."""


NORMS: dict[str, NormKind] = {
    "layernorm": NormKind(centres=True, transformer_lens="LN"),
    "rms": NormKind(centres=False, transformer_lens="RMS"),
}
