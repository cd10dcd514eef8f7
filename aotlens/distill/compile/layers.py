"""The action of each attention layer on a token's stream, and groups of heads → an `AttentionOnlyTransformer`.

The stream of a token is (h, 1, 0): m hidden coordinates, the constant that carries biases, and the coordinate on which
only the auxiliary token is not 0. `UnitLayer` works on the first m + 1 of them.

The units of a layer are attention heads of size 1; other heads cancel the skip connection. A unit's head (Lemma E.4,
for an auxiliary token v as in Corollary 4.1, both in rows; b = the unit's reading weights):

    W_Q = [b; 0]/η · √d_head     W_K = [0; −1/v₋₁]     W_V = [b; −v₁: · b / v₋₁]     W_O = what it writes

A token's last coordinate is 0, so it scores itself 0 and the auxiliary token −x·b/η (the √d_head undoes the model's
scale), and weighs itself by sigmoid(x·b/η). The auxiliary token's value is v₁: · b − v₁: · b = 0. The head's result is
x·b · sigmoid(x·b/η) = η SiLU(x·b/η). The corollary's proof leaves W_V = [b; 0], by which the auxiliary token adds
v₁: · b, and masks its own row entirely, a softmax over nothing; here it attends to itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aotlens.distill.compile.ffn import FeedForward
from aotlens.models import AttentionOnlyTransformer, ModelConfig

Construction = Literal["lean", "narrow", "paper"]
CONSTRUCTIONS: tuple[Construction, ...] = ("lean", "narrow", "paper")

#: s with SiLU(s) = 1, by which the paper's construction carries its constant: s = 1 + W(1/e), W being Lambert's.
SILU_ONE = 1.2784645427610738


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitLayer:
    """stream ← stream − (its cleared coordinates) + Σ_u η_u SiLU(stream · read_u / η_u) write_u + bias.

    With η → 0 a unit is ReLU: η SiLU(x/η) lies within 0.2785 η below it, for every x.
    """

    read: Float[Tensor, "coordinate unit"]
    write: Float[Tensor, "unit coordinate"]
    eta: Float[Tensor, " unit"]
    """1 for units that are SiLU."""
    relu: Bool[Tensor, " unit"]
    """Units that stand for ReLU, and so have an error of their own."""
    cleared: Bool[Tensor, " coordinate"]
    """Coordinates whose skip connection is cancelled."""
    construction: Construction
    """The heads that cancel them: one wide head that sees its own token only (lean), such heads of size 1 (narrow), or
    pairs of units (paper: Lemma E.3, SiLU(−z) − SiLU(z) = −z)."""
    bias: Float[Tensor, " coordinate"]
    """The term added to the stream by a head that sees its own token only; 0 where a unit does it."""

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates, m + 1."""
        return self.read.shape[0]


def stream_width(ffn: FeedForward, construction: Construction) -> int:
    """Return d_model: max(W, D, D') + 2 for "paper" (whose Theorem 4.1 takes D' ≤ W for granted).

    The last hidden layer never lies in the stream, its units' heads write the output at once; so the others need
    max(D, W_1, …, W_{L−1}, D') + 2 only.
    """
    widths = ffn.widths if construction == "paper" else ffn.widths[:-1]
    return max(*widths, ffn.d_in, ffn.d_out) + 2


def heads_needed(ffn: FeedForward, construction: Construction) -> tuple[int, ...]:
    """Return heads of each layer, as `compile_ffn` lists them; units whose weights are all zero are counted here.

    "paper" is what Theorem 4.1's proof needs, of which the theorem states max{W, D} + 1. The last layer's constant
    carries the last bias on; without one it needs no head.
    """
    before = (ffn.d_in, *ffn.widths[:-1])
    counts = []
    for layer, (inputs, width) in enumerate(zip(before, ffn.widths, strict=True)):
        last, bias = layer == ffn.depth - 1, bool(ffn.biases[-1].any())
        narrow, paper = width + inputs + (last and bias), width + (bias or not last) + 2 * (inputs + 1)
        counts.append({"lean": width + 1, "narrow": narrow, "paper": paper}[construction])
    return tuple(counts)


def unit_layers(ffn: FeedForward, etas: Sequence[float], construction: Construction) -> tuple[UnitLayer, ...]:
    """Return one `UnitLayer` for each hidden layer; `etas[ℓ]` is η of layer ℓ where it is ReLU.

    lean, narrow: unit u of layer ℓ reads column u of W_ℓ and its bias from the constant, and writes coordinate u (the
    last layer's: row u of W_{L+1}); heads that see their own token only clear what the layer before had written, and
    add the last bias.

    paper: Lemma E.1 makes biases weights of a constant that every layer carries on by a unit of its own: SiLU(s·1) = 1.
    (Its proof carries it through ReLU and then replaces ReLU by SiLU, which changes the constant; and its last matrix
    has a row too many.) Lemma E.3 clears every coordinate in use, the constant too, by two units.
    """
    m = stream_width(ffn, construction) - 2
    paper = construction == "paper"
    layers = []
    before = ffn.d_in
    for i, (eta, activation) in enumerate(zip(etas, ffn.activations, strict=True)):
        width, last = ffn.widths[i], i == ffn.depth - 1
        units = width + 1 if paper else width
        read, write = _zeros(m + 1, units), _zeros(units, m + 1)
        read[:before, :width] = ffn.weights[i]
        read[m, :width] = ffn.biases[i]
        eta_of, relu = torch.ones(units, dtype=torch.float64), torch.zeros(units, dtype=torch.bool)
        if activation == "relu":
            eta_of[:width], relu[:width] = eta, True
        cleared, bias = torch.zeros(m + 1, dtype=torch.bool), _zeros(m + 1)
        cleared[:before] = True
        if paper:
            read[m, width] = SILU_ONE
            cleared[m] = True
        if last:
            write[:width, : ffn.d_out] = ffn.weights[-1]
            (write[width] if paper else bias)[: ffn.d_out] = ffn.biases[-1]
        else:
            write[:width, :width] = torch.eye(width, dtype=torch.float64)
            if paper:
                write[width, m] = 1.0
        layers.append(
            UnitLayer(
                read=read, write=write, eta=eta_of, relu=relu, cleared=cleared, construction=construction, bias=bias
            )
        )  # fmt: skip
        before = width
    return tuple(layers)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


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


#: The keys that a token's query may see. The auxiliary token always sees itself alone.
Sees = Literal["itself", "itself and auxiliary", "tokens"]
KINDS: tuple[Sees, ...] = ("tokens", "itself", "itself and auxiliary")


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadGroup:
    """Heads of one layer that see the same keys. W_Q does not yet hold the factor √d_head."""

    sees: Sees
    W_Q: Float[Tensor, "head d_model width"]
    W_K: Float[Tensor, "head d_model width"]
    W_V: Float[Tensor, "head d_model width"]
    W_O: Float[Tensor, "head width d_model"]


def layer_heads(layer: UnitLayer, v: Float[Tensor, " d_model"]) -> tuple[HeadGroup, ...]:
    """Return the heads that do what `layer` says, for the auxiliary token `v`."""
    if layer.construction != "paper":
        return (_cancelling_heads(layer, v), unit_heads(layer.read, layer.write, layer.eta, v))
    read, write = _cancelling_pairs(layer)
    eta = torch.cat([layer.eta, torch.ones(read.shape[1], dtype=torch.float64)])
    return (unit_heads(torch.cat([layer.read, read], 1), torch.cat([layer.write, write]), eta, v),)


def unit_heads(
    read: Float[Tensor, "coordinate unit"],
    write: Float[Tensor, "unit coordinate"],
    eta: Float[Tensor, " unit"],
    v: Float[Tensor, " d_model"],
) -> HeadGroup:
    """Return one head of size 1 a unit, writing η SiLU(x · read / η) · write."""
    n = read.shape[1]
    nothing = torch.zeros(n, 1, dtype=torch.float64)
    return HeadGroup(
        sees="itself and auxiliary",
        W_Q=torch.cat([(read / eta).T, nothing], 1)[..., None],
        W_K=torch.cat([torch.zeros_like(read.T), -1 / v[-1] + nothing], 1)[..., None],
        W_V=_blind_to(v, read).T[..., None],
        W_O=torch.cat([write, nothing], 1)[:, None],
    )


def _blind_to(v: Tensor, read: Float[Tensor, "coordinate column"]) -> Float[Tensor, "d_model column"]:
    """`read` with a last row by which the auxiliary token reads as 0; tokens are 0 there."""
    return torch.cat([read, (-(v[:-1] @ read) / v[-1])[None]])


def _cancelling_heads(layer: UnitLayer, v: Tensor) -> HeadGroup:
    """Make heads that see their own token only, so their pattern is 1: W_OV = −I on what is cleared, and the bias from
    the constant.

    One wide head, or one of size 1 for each row of what it reads.
    """
    identity = torch.eye(layer.n_coordinates, dtype=torch.float64)
    reads, writes = [identity[:, layer.cleared]], [-identity[layer.cleared]]
    if layer.bias.any():
        reads.append(identity[:, -1:])
        writes.append(layer.bias[None])
    read = _blind_to(v, torch.cat(reads, 1))
    write = torch.cat(writes)
    write = torch.cat([write, torch.zeros(len(write), 1, dtype=torch.float64)], 1)
    W_V, W_O = (read[None], write[None]) if layer.construction == "lean" else (read.T[..., None], write[:, None])
    return HeadGroup(sees="itself", W_Q=torch.zeros_like(W_V), W_K=torch.zeros_like(W_V), W_V=W_V, W_O=W_O)


def _cancelling_pairs(layer: UnitLayer) -> tuple[Tensor, Tensor]:
    """Make two units a cleared coordinate z: −SiLU(z) and +SiLU(−z), together −z (Lemma E.3)."""
    identity = torch.eye(layer.n_coordinates, dtype=torch.float64)
    read = identity[:, layer.cleared]
    return torch.cat([read, -read], 1), torch.cat([-read.T, read.T])
