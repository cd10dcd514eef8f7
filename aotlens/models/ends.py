"""Both ends of a model: what is read into the residual stream, and what is read out of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models.attention import capped
from aotlens.models.config import ModelConfig


class TokenEmbedding(nn.Module):
    """Token ids `[batch, pos]` → rows of W_E `[d_vocab, d_model]`."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        assert cfg.d_vocab is not None
        self.cfg = cfg
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))

    def check(self, x: Tensor) -> None:
        """Raise `ValueError` for anything but a batch of ids within the vocabulary and the context."""
        if x.ndim != 2 or x.is_floating_point() or x.dtype == torch.bool:
            raise ValueError(f"expected integer token ids [batch, pos], got {list(x.shape)} {x.dtype}.")
        if x.numel() and x.device.type != "meta":
            low, high = x.aminmax()
            if low < 0 or high >= self.W_E.shape[0]:
                raise ValueError(
                    f"token ids run from {int(low)} to {int(high)}, but this vocabulary has ids 0 to "
                    f"{self.W_E.shape[0] - 1}. Was the text encoded with another tokenizer?"
                )

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x.long(), self.W_E)


class VectorEmbedding(nn.Module):
    """Vectors `[batch, pos, d_in]` → x W + b, or the vectors themselves where d_in is None."""

    W: Tensor | None  # [width, d_model]
    b: Tensor | None  # [d_model]
    cls: Tensor | None  # [d_model]
    distillation: Tensor | None  # [d_model]

    def __init__(self, cfg: ModelConfig, width: int | None) -> None:
        super().__init__()
        self.width = cfg.d_model if width is None else width
        self.register_parameter("W", None if width is None else nn.Parameter(torch.empty(width, cfg.d_model)))
        has_bias = cfg.bias and width is not None
        self.register_parameter("b", nn.Parameter(torch.empty(cfg.d_model)) if has_bias else None)
        for name, exists in (("cls", cfg.class_token), ("distillation", cfg.distillation_token)):
            self.register_parameter(name, nn.Parameter(torch.empty(cfg.d_model)) if exists else None)

    def check(self, x: Tensor) -> None:
        if x.ndim != 3 or x.shape[-1] != self.width or not x.is_floating_point():
            raise ValueError(f"expected vectors [batch, pos, {self.width}], got {list(x.shape)} {x.dtype}.")

    def forward(self, x: Tensor) -> Tensor:
        if self.W is not None:
            x = F.linear(x, self.W.T, self.b)
        before = [token.expand(x.shape[0], 1, -1) for token in (self.cls, self.distillation) if token is not None]
        return torch.cat([*before, x], dim=1) if before else x


class PatchEmbedding(VectorEmbedding):
    """Images `[batch, channel, height, width]` → one vector a patch, in reading order."""

    def __init__(self, cfg: ModelConfig) -> None:
        assert cfg.image_size is not None and cfg.patch_size is not None
        super().__init__(cfg, cfg.n_channels * cfg.patch_size**2)
        self.image = (cfg.n_channels, cfg.image_size, cfg.image_size)
        self.patch = cfg.patch_size

    def check(self, x: Tensor) -> None:
        if x.ndim != 4 or tuple(x.shape[1:]) != self.image or not x.is_floating_point():
            expected = ", ".join(map(str, self.image))
            raise ValueError(f"expected images [batch, {expected}] as floats, got {list(x.shape)} {x.dtype}.")

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.unfold(x, self.patch, stride=self.patch).transpose(1, 2))


class PositionEmbedding(nn.Module):
    """Positions `[batch or 1, pos]` → rows of W_pos `[n_ctx, d_model]`."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(cfg.n_ctx, cfg.d_model))

    def forward(self, positions: Tensor) -> Tensor:
        return F.embedding(positions, self.W_pos)


class Unembed(nn.Module):
    """The stream → x W_U + b_U, with W_U `[d_model, outputs]`; classes are read where `pooling` says."""

    W_U: Tensor | None  # [d_model, outputs]
    b_U: Tensor | None  # [outputs]

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        width = cfg.d_vocab if cfg.read_out == "tokens" else cfg.d_out
        exists = width is not None and not cfg.tied_embeddings
        self.register_parameter("W_U", nn.Parameter(torch.empty(cfg.d_model, width or 0)) if exists else None)
        has_bias = cfg.has_read_out_bias and exists
        self.register_parameter("b_U", nn.Parameter(torch.empty(width or 0)) if has_bias else None)

    def pool(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return `[batch, d_model]`: the vector of the first or the last unpadded position, or their mean; without
        pooling x."""
        if self.cfg.pooling is None:
            return x
        if self.cfg.pooling == "first":
            return x[:, 0]
        if self.cfg.pooling == "last":
            if attention_mask is None:
                return x[:, -1]
            positions = torch.arange(x.shape[1], device=x.device)
            return x[torch.arange(len(x), device=x.device), (attention_mask * positions).argmax(1)]
        if attention_mask is None:
            return x.mean(1)
        weight = attention_mask.to(x.dtype)[..., None]
        return (x * weight).sum(1) / weight.sum(1)

    def forward(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        if tied is None and self.W_U is None:
            return x
        weight = self.W_U.T if tied is None else tied  # type: ignore[union-attr]
        return capped(F.linear(x, weight, None if tied is not None else self.b_U), self.cfg.logit_cap)


def make_embedding(cfg: ModelConfig) -> TokenEmbedding | VectorEmbedding:
    """Return the read-in that `cfg` describes."""
    if cfg.read_in == "tokens":
        return TokenEmbedding(cfg)
    return PatchEmbedding(cfg) if cfg.read_in == "patches" else VectorEmbedding(cfg, cfg.d_in)
