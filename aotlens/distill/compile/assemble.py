"""Groups of heads → an `AttentionOnlyTransformer` with their mask."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from aotlens.distill.compile.heads import KINDS, HeadGroup, Sees
from aotlens.models import AttentionOnlyTransformer, ModelConfig


def assemble(layers: Sequence[Sequence[HeadGroup]], n_tokens: int) -> AttentionOnlyTransformer:
    """Return a float64 model of vectors, without norm, positions or biases, whose layer ℓ has the heads of `layers[ℓ]`.

    Position 0 is the auxiliary token (the paper's last one: a mask's top-left block then serves fewer tokens too),
    positions 1 … n_tokens the tokens. The model has one mask for all layers, so heads that see different keys have
    places of their own: each kind as many as its largest layer needs, the rest filled with zeros. One d_head, the
    widest head's; narrower ones are padded with zeros. `W_Q` holds the factor √d_head that the model's scale undoes.
    """
    kinds = [kind for kind in KINDS if any(group.sees == kind for groups in layers for group in groups)]
    places = {kind: max(_count(groups, kind) for groups in layers) for kind in kinds}
    d_model = layers[0][0].W_V.shape[1]
    d_head = max(group.W_V.shape[2] for groups in layers for group in groups)
    mask = [key_mask(kind, n_tokens) for kind in kinds for _ in range(places[kind])]
    cfg = ModelConfig(
        n_layers=len(layers),
        d_model=d_model,
        n_heads=len(mask),
        d_head=d_head,
        n_ctx=n_tokens + 1,
        attn_mask=(torch.stack(mask) if len(kinds) > 1 else mask[0][None]),  # type: ignore[arg-type]
        norm=None,
        causal=False,
        positions=None,
        read_in="vectors",
        read_out="vectors",
    )
    model = AttentionOnlyTransformer(cfg).to("cpu", torch.float64).requires_grad_(False)
    for block, groups in zip(model.blocks, layers, strict=True):
        attn = block.attn
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            getattr(attn, name).zero_()
        start = dict(zip(kinds, _starts([places[kind] for kind in kinds]), strict=True))
        for group in groups:
            n, _, width = group.W_V.shape
            here = slice(start[group.sees], start[group.sees] + n)
            start[group.sees] += n
            attn.W_Q[here, :, :width] = group.W_Q * math.sqrt(d_head)
            attn.W_K[here, :, :width] = group.W_K
            attn.W_V[here, :, :width] = group.W_V
            attn.W_O[here, :width] = group.W_O
    return model


def key_mask(sees: Sees, n_tokens: int) -> Bool[Tensor, "query key"]:
    """Return which keys a head of this kind shows to the auxiliary token (position 0) and to each token."""
    mask = torch.eye(n_tokens + 1, dtype=torch.bool)
    if sees == "itself and auxiliary":
        mask[:, 0] = True
    elif sees == "tokens":
        mask[1:, 1:] = True
    return mask


def count_heads(model: AttentionOnlyTransformer) -> Int[Tensor, " layer"]:
    """Return heads of each layer that can write anything: those whose W_V and W_O are not all zero."""
    return ((model.W_V != 0).flatten(2).any(-1) & (model.W_O != 0).flatten(2).any(-1)).sum(-1)


def _count(groups: Sequence[HeadGroup], kind: Sees) -> int:
    return sum(len(group.W_V) for group in groups if group.sees == kind)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]
