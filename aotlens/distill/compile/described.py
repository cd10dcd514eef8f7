"""The reads, writes and roles of every head of a compiled model, in formulas of its weights, and the tokens that it
sees.

In formulas x (x₁, x₂, …) is the input, h₀, h₁, … the hidden layer before, 1 the constant that carries biases, and f the
output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.conventions import HeadLike, as_head, several
from aotlens.distill.compile.curves import find_kinks
from aotlens.distill.compile.layers import UnitLayer, unit_layers
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.distill.compile.compiled import CompiledFFN
    from aotlens.distill.compile.curves import Kinks


_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Terms of a formula that are written out.
_TERMS = 4
#: A term smaller than this share of the largest is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledHeads(Result):
    """Every head that writes something, layer by layer, with formulas; the fields go together by place."""

    roles: tuple[HeadRole, ...]
    jobs: tuple[str, ...]
    """The job of each, in words."""
    reads: tuple[str, ...]
    """t, as in `0.5·x₁ − 1`."""
    writes: tuple[str, ...]
    kinks: tuple[str, ...]
    """The inputs at which a ReLU unit's t is 0, where the network is of one number."""

    @property
    def headline(self) -> str:
        units = sum(role.job == "unit" for role in self.roles)
        return f"{len(self.roles)} heads, {units} of them hidden units"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head: layer, head, job, reads, writes, kink, sees, eta (NaN for heads without a gate)."""
        return data_frame(
            {
                "layer": [role.layer for role in self.roles],
                "head": [role.head for role in self.roles],
                "job": self.jobs,
                "reads": self.reads,
                "writes": self.writes,
                "kink": self.kinks,
                "sees": ["itself and auxiliary" if role.gated else "itself" for role in self.roles],
                "eta": [np.nan if role.eta is None else role.eta for role in self.roles],
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledMasks(Result):
    """The keys that each query sees, a mask for each kind of head."""

    kinds: tuple[str, ...]
    """The keys that a token sees, in words."""
    n_heads: tuple[int, ...]
    """The number of heads that have each mask."""
    masks: Bool[np.ndarray, "kind query key"]
    str_tokens: tuple[str, ...]

    @property
    def headline(self) -> str:
        return ", ".join(f"{several(n, 'head')}: {kind}" for n, kind in zip(self.n_heads, self.kinds, strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query and key that it sees: kind, n_heads, query, key."""
        kind, query, key = self.masks.nonzero()
        return data_frame(
            {
                "kind": [self.kinds[place] for place in kind],
                "n_heads": [self.n_heads[place] for place in kind],
                "query": query,
                "key": key,
            }
        )


def describe_heads(compiled: CompiledFFN) -> CompiledHeads:
    """Return every head that writes something, with what it reads and writes in formulas."""
    roles = head_roles(compiled)
    kinks = find_kinks(compiled.ffn, compiled.bound) if compiled.ffn.d_in == 1 else None
    return CompiledHeads(
        roles=roles,
        jobs=tuple(map(job_of, roles)),
        reads=tuple(reads_of(compiled, role) for role in roles),
        writes=tuple(writes_of(compiled, role) for role in roles),
        kinks=tuple(_kinks_of(compiled, role, kinks) for role in roles),
    )


def attention_masks(compiled: CompiledFFN) -> CompiledMasks:
    """Return the masks of the heads that write something, each once."""
    mask = np.array(compiled.model.cfg.attn_mask)
    masks: dict[bytes, np.ndarray] = {}
    counts: dict[bytes, int] = {}
    for role in head_roles(compiled):
        own = mask[0 if len(mask) == 1 else role.head]
        masks[own.tobytes()] = own
        counts[own.tobytes()] = counts.get(own.tobytes(), 0) + 1
    return CompiledMasks(
        kinds=tuple("itself and the auxiliary token" if own[1, 0] else "itself only" for own in masks.values()),
        n_heads=tuple(counts[key] for key in masks),
        masks=np.stack([*masks.values()]),
        str_tokens=("aux.", *(f"x⁽{i}⁾".translate(_SUPERSCRIPTS) for i in range(1, mask.shape[1]))),
    )


def role_at(compiled: CompiledFFN, head: HeadLike | None = None) -> HeadRole:
    """Return the role of a head; of the first hidden unit's for None. Raises `ValueError` for a head that writes
    nothing."""
    roles = head_roles(compiled)
    if head is None:
        return next((role for role in roles if role.job == "unit"), roles[0])
    place = as_head(head, compiled.model.cfg)
    for role in roles:
        if (role.layer, role.head) == place:
            return role
    raise ValueError(
        f"head {place[0]}.{place[1]} is all zeros and only fills up the model's shape; expected one of the "
        f"{len(roles)} heads that write something (describe_heads lists them)."
    )


def job_of(role: HeadRole) -> str:
    """Name the job of a head."""
    words = {"constant": "carries the 1 on", "cancel": "cancels skip", "bias": "adds last bias"}
    return f"unit {role.unit}" if role.job == "unit" else words[role.job]


def reads_of(compiled: CompiledFFN, role: HeadRole) -> str:
    """Write t as a formula, `0.5·x₁ − 1`; of the wide head, the coordinates that it takes."""
    if role.reads.shape[1] > 1:
        return ", ".join(cut([_coordinate(compiled, role.layer, int(i)) for i in role.reads.any(1).nonzero()[:, 0]]))
    names = [_coordinate(compiled, role.layer, index) for index in range(role.reads.shape[0])]
    return _sum(role.reads[:, 0].numpy(), names)


def writes_of(compiled: CompiledFFN, role: HeadRole) -> str:
    """Say where a head's result goes, `−2 × into f`."""
    last = role.layer == compiled.ffn.depth - 1
    if role.reads.shape[1] > 1:
        bias = " and adds the last bias" if last and compiled.ffn.biases[-1].any() else ""
        return f"takes them from the stream{bias}"
    into = []
    for index in np.flatnonzero(role.writes[0].numpy()):
        name = "f"
        if not last or role.job == "cancel":
            name = _coordinate(compiled, role.layer + (role.job != "cancel"), int(index))
        into.append(f"{short(float(role.writes[0, index]))} × into {name if name != '1' else 'the constant'}")
    return ", ".join(cut(into))


def short(value: float) -> str:
    """Write a number with five digits, and a minus as long as a plus; what is rounding is 0."""
    return f"{value:.5g}".replace("-", "−") if abs(value) > 1e-11 else "0"


def cut(parts: Sequence[str]) -> list[str]:
    """Return the first few of many, and how many there are."""
    return list(parts) if len(parts) <= _TERMS + 1 else [*parts[:_TERMS], f"… ({len(parts)})"]


def _kinks_of(compiled: CompiledFFN, role: HeadRole, kinks: Kinks | None) -> str:
    if kinks is None or role.job != "unit" or compiled.ffn.activations[role.layer] != "relu":
        return ""
    x = np.unique(kinks.x[(kinks.layer == role.layer) & (kinks.unit == role.unit)].round(12))
    return ", ".join(cut([short(float(kink)) for kink in x])) or "–"


def _coordinate(compiled: CompiledFFN, layer: int, index: int) -> str:
    """Name the content of that coordinate of the stream before the layer."""
    if index == len(compiled.auxiliary) - 2:
        return "1"
    if layer == 0:
        return "x" if compiled.ffn.d_in == 1 else f"x{index + 1}".translate(_SUBSCRIPTS)
    return f"h{index}".translate(_SUBSCRIPTS)


def _sum(weights: np.ndarray, names: Sequence[str]) -> str:
    size = np.abs(weights).max(initial=0.0)
    order = [i for i in np.flatnonzero(np.abs(weights) > _ROUNDING * size).tolist() if names[i] != "1"]
    order += [i for i in np.flatnonzero(weights).tolist() if names[i] == "1"]
    text = ""
    for place, i in enumerate(order):
        value = float(weights[i])
        if place == _TERMS and len(order) > _TERMS + 1:
            return f"{text} + … ({len(order)} terms)"
        sign = ("−" if value < 0 else "") if not text else (" − " if value < 0 else " + ")
        number = f"{abs(value):.4g}"
        text += sign + (number if names[i] == "1" else names[i] if number == "1" else f"{number}·{names[i]}")
    return text or "0"


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
