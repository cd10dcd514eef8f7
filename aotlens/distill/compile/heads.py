"""Heads: the units of a layer as attention heads of size 1, and the heads that cancel the skip connection.

A unit's head (Lemma E.4, for an auxiliary token v as in Corollary 4.1, both in rows; b = the unit's reading weights):

    W_Q = [b; 0]/η · √d_head     W_K = [0; −1/v₋₁]     W_V = [b; −v₁: · b / v₋₁]     W_O = what it writes

A token's last coordinate is 0, so it scores itself 0 and the auxiliary token −x·b/η (the √d_head undoes the model's
scale), and weighs itself by sigmoid(x·b/η). The auxiliary token's value is v₁: · b − v₁: · b = 0. The head's result is
x·b · sigmoid(x·b/η) = η SiLU(x·b/η). The corollary's proof leaves W_V = [b; 0], by which the auxiliary token adds
v₁: · b, and masks its own row entirely, a softmax over nothing; here it attends to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.distill.compile.layers import UnitLayer

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
