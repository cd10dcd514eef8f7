"""The roles of a compiled model's heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.distill.compile.layers import UnitLayer, unit_layers
from aotlens.results import Result

if TYPE_CHECKING:
    from aotlens.distill.compile.compiled import CompiledFFN

#: unit: a hidden unit. constant: carries the 1 that holds biases to the next layer (paper). cancel: takes from the
#: stream what the skip connection would keep. bias: adds the last bias (narrow).
Job = Literal["unit", "constant", "cancel", "bias"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadRole(Result):
    """One head that writes something. Coordinates are the stream's: h_1 … h_m (x_1 … x_D at first), and the constant 1.

    With t = stream · reads, a head that sees the auxiliary token weighs itself by sigmoid(t/η) and writes
    t · sigmoid(t/η) · writes = η SiLU(t/η) · writes; one that sees its own token only writes stream @ reads @ writes.
    """

    layer: int
    head: int
    """The head's place in the model, as in `model.W_V[layer, head]`."""
    job: Job
    unit: int | None
    """The index of the layer's unit, or of the coordinate that is cancelled; None for the wide head."""
    eta: float | None
    """None for heads that see their own token only."""
    reads: Float[Tensor, "coordinate width"]
    writes: Float[Tensor, "width coordinate"]

    @property
    def headline(self) -> str:
        return f"{self.job} {'' if self.unit is None else self.unit}".strip()

    @property
    def gated(self) -> bool:
        """Whether it sees the auxiliary token, and so is a SiLU."""
        return self.eta is not None


def head_roles(compiled: CompiledFFN) -> tuple[HeadRole, ...]:
    """Return every head that is not all zeros, layer by layer in the order of its place."""
    mask = compiled.model.cfg.attn_mask
    assert mask is not None
    shared = len(mask) == 1
    gated = [bool(mask[0 if shared else head][1][0]) for head in range(compiled.model.cfg.n_heads)]
    places = {flag: [head for head, is_gated in enumerate(gated) if is_gated == flag] for flag in (True, False)}
    roles: list[HeadRole] = []
    for index, layer in enumerate(unit_layers(compiled.ffn, compiled.etas, compiled.construction)):
        last = index == compiled.ffn.depth - 1
        own = [
            HeadRole(layer=index, head=head, **what)
            for flag in (True, False)
            for head, what in zip(places[flag], _heads(layer, compiled.ffn.widths[index], last, flag), strict=False)
        ]
        roles += sorted((role for role in own if _writes(role)), key=lambda role: role.head)
    return tuple(roles)


def _heads(layer: UnitLayer, width: int, last: bool, gated: bool) -> list[dict]:  # type: ignore[type-arg]
    """List the roles of the heads of one kind, in the order in which `layer_heads` makes them."""
    identity = torch.eye(layer.n_coordinates, dtype=torch.float64)
    cleared = layer.cleared.nonzero()[:, 0].tolist()
    if gated:
        heads = [
            _head("unit" if unit < width else "constant", unit if unit < width else None, float(layer.eta[unit]),
                  layer.read[:, unit : unit + 1], layer.write[unit : unit + 1])
            for unit in range(layer.read.shape[1])
        ]  # fmt: skip
        if layer.construction == "paper":
            for sign in (1.0, -1.0):  # −SiLU(z) and SiLU(−z): together −z (Lemma E.3)
                heads += [_head("cancel", z, 1.0, sign * identity[:, [z]], -sign * identity[[z]]) for z in cleared]
        return heads
    reads, writes = identity[:, cleared], -identity[cleared]
    bias = layer.bias[None]
    if layer.construction == "lean":
        if layer.bias.any():
            reads, writes = torch.cat([reads, identity[:, -1:]], 1), torch.cat([writes, bias])
        return [_head("cancel", None, None, reads, writes)]
    heads = [_head("cancel", z, None, identity[:, [z]], -identity[[z]]) for z in cleared]
    return [*heads, _head("bias", None, None, identity[:, -1:], bias)] if layer.bias.any() else heads


def _head(job: Job, unit: int | None, eta: float | None, reads: Tensor, writes: Tensor) -> dict:  # type: ignore[type-arg]
    return {"job": job, "unit": unit, "eta": eta, "reads": reads, "writes": writes}


def _writes(role: HeadRole) -> bool:
    return bool(role.reads.any() and role.writes.any())
