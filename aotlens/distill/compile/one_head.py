"""One head of a compiled model: its pattern where a token is x, and its gate over the whole range of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.conventions import HeadLike
from aotlens.distill.compile.bounds import RELU_GAP
from aotlens.distill.compile.curves import gate_curve
from aotlens.distill.compile.described import HeadRole, job_of, reads_of, role_at, short, writes_of
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.distill.compile.compiled import CompiledFFN

#: Inputs over the range at which a gate is read off the model: of one number, and a side of the grid of two.
_POINTS, _SIDE = 41, 9


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadAtInput(Result):
    """One head on a sequence of the auxiliary token, an x, and other tokens."""

    role: HeadRole
    job: str
    """The job of the head, in words."""
    reads: str
    """The number that it reads, t, as a formula."""
    writes: str
    x: tuple[float, ...]
    str_tokens: tuple[str, ...]
    pattern: Float[np.ndarray, "query key"]
    visible: Bool[np.ndarray, "query key"]
    read: Float[np.ndarray, " width"]
    """The part of the x token's stream that it reads; one number, t, but for the wide head."""
    wrote: Float[np.ndarray, " coordinate"]
    """The vector that it adds to the x token's stream, without the coordinate that marks the auxiliary token."""
    gap: float | None = None
    """The most by which the result may lie below ReLU(t), 0.2785·η; None if the head is not a ReLU unit."""

    @property
    def headline(self) -> str:
        return f"head {self.role.layer}.{self.role.head}, weight on itself {self.pattern[1, 1]:.5g}"

    def sentences(self) -> str:
        """Return the head's numbers, a line each: what it reads, its weight, what it writes."""
        role, x = self.role, self.str_tokens[1]
        if role.eta is None:
            linear = "cancels the skip connection" if role.job == "cancel" else "adds the last bias"
            return (
                f"This head {linear}: it sees its own token only, so its weight is 1 and the head is linear.\n"
                f"It reads {self.reads} and {self.writes or 'writes nothing'} (W_V W_O, no gate)."
            )
        t, weight = float(self.read[0]), float(self.pattern[1, 1])
        silu, relu = t * weight, max(t, 0.0)
        what = {
            "unit": f"Hidden {self.job}: t = {self.reads} = {short(t)} at {x}.",
            "cancel": "One of two heads that cancel the skip connection, SiLU(−z) − SiLU(z) = −z (Lemma E.3): t = "
            f"{self.reads} = {short(t)} at {x}.",
        }.get(role.job, f"This head carries the constant 1 to the next layer: t = {short(t)}, at which SiLU(t) = 1.")
        gap = "."
        if self.gap is not None:
            gap = f": {short(relu - silu)} below ReLU(t) = {short(relu)}, at most 0.2785·η = {0.2785 * role.eta:.3g}."
        return "\n".join([
            what,
            f"Scores: 0 to itself, −t/η = {short(-t / role.eta)} to the auxiliary token (η = {role.eta:.3g}), whose "
            "value is 0.",
            f"The softmax weight on itself is σ(t/η) = {short(weight)} (from the model), and its result t·σ(t/η) = "
            f"η·SiLU(t/η) = {short(silu)}{gap}",
            f"It writes {self.writes}.",
        ])  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query and key that it sees: query, query_x, key, key_x, attention."""
        query, key = self.visible.nonzero()
        return data_frame(
            {
                "query": query,
                "query_x": [self.str_tokens[place] for place in query],
                "key": key,
                "key_x": [self.str_tokens[place] for place in key],
                "attention": self.pattern[query, key],
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadGate(Result):
    """A head as a function of what it reads: its weight on itself, sigmoid(t/η), and its result, t times that."""

    layer: int
    head: int
    eta: float
    gap: float | None
    """The most by which the result may lie below ReLU(t), 0.2785·η; None where the head is not a ReLU unit."""
    t: Float[np.ndarray, " point"]
    weight: Float[np.ndarray, " point"]
    x: Float[np.ndarray, "input d_in"]
    """Inputs over the whole range; at each, of the model itself:"""
    read: Float[np.ndarray, " input"]
    result: Float[np.ndarray, " input"]
    at: float
    """t of the input."""

    @property
    def headline(self) -> str:
        return f"head {self.layer}.{self.head}, η {self.eta:.3g}"

    def sentences(self) -> str:
        """Return how far the gate lies below ReLU, and where."""
        if self.gap is None:
            return "Exactly SiLU(t) = t·σ(t): η = 1."
        return (
            f"η·SiLU(t/η) at η = {self.eta:.3g}: below ReLU(t) by at most 0.2785·η = {0.2785 * self.eta:.3g}, at t = "
            f"±{1.2785 * self.eta:.3g}; shaded."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per input, of the model itself: x (x1, x2, …), t, result."""
        names = ["x"] if self.x.shape[1] == 1 else [f"x{place + 1}" for place in range(self.x.shape[1])]
        return data_frame({**dict(zip(names, self.x.T, strict=True)), "t": self.read, "result": self.result})


def head_at_input(
    compiled: CompiledFFN, head: HeadLike | None = None, x: Sequence[float | int] | None = None
) -> HeadAtInput:
    """Return one head where the first token is `x` and the next ones are −bound, 0 and bound, as far as the sequence
    goes.

    `head` is the first hidden unit's and `x` a quarter of the bound unless given. Raises `ValueError` for a head that
    writes nothing, and for an x of another length or outside the bound.
    """
    role, first, bound = role_at(compiled, head), _checked(compiled, x), compiled.bound
    others = [(share * bound,) * len(first) for share in (-1.0, 0.0, 1.0)][: compiled.n_tokens - 1]
    rows = [first, *others, *[first] * (compiled.n_tokens - 1 - len(others))]
    pattern, stream, z = _run(compiled, torch.tensor(rows, dtype=torch.float64)[None], role)
    mask = np.array(compiled.model.cfg.attn_mask)
    return HeadAtInput(
        role=role,
        job=job_of(role),
        reads=reads_of(compiled, role),
        writes=writes_of(compiled, role),
        x=first,
        str_tokens=("aux.", *map(_token, rows)),
        pattern=pattern[0],
        visible=mask[0 if len(mask) == 1 else role.head],
        read=stream[0, 1] @ role.reads.numpy(),
        wrote=(z[0, 1] @ compiled.model.W_O[role.layer, role.head].detach().cpu().numpy())[:-1],
        gap=_gap(compiled, role),
    )


def head_gate(compiled: CompiledFFN, head: HeadLike | None = None, x: Sequence[float | int] | None = None) -> HeadGate:
    """Return a head's gate: sigmoid(t/η) over all t that occur, and the model's own at inputs over the whole range.

    `head` and `x` as for `head_at_input`. Raises `ValueError` for a head without a gate, which sees its own token only.
    Cost: 41 inputs (81 of two numbers) through the model.
    """
    role, first = role_at(compiled, head), _checked(compiled, x)
    if role.eta is None:
        raise ValueError(
            f"head {role.layer}.{role.head} has no gate: it sees its own token only, its weight is 1, and it is linear."
        )
    inputs = _inputs(compiled)
    pattern, stream, _ = _run(compiled, torch.from_numpy(np.concatenate([[first], inputs]))[:, None], role)
    read, weight = (stream[:, 1] @ role.reads.numpy())[:, 0], pattern[:, 1, 1]
    here, read, weight = float(read[0]), read[1:], weight[1:]
    reach = 1.05 * float(max(np.abs(read).max(), abs(here), 1e-3))
    t, curve = gate_curve(role.eta, reach=reach)
    drawn = (t >= min(read.min(), here, -8 * role.eta)) & (t <= max(read.max(), here, 8 * role.eta))
    return HeadGate(
        layer=role.layer,
        head=role.head,
        eta=role.eta,
        gap=_gap(compiled, role),
        t=t[drawn],
        weight=curve[drawn],
        x=inputs,
        read=read,
        result=read * weight,
        at=here,
    )


def _gap(compiled: CompiledFFN, role: HeadRole) -> float | None:
    """0.2785·η of a ReLU unit; None for any other head."""
    is_relu = role.job == "unit" and compiled.ffn.activations[role.layer] == "relu"
    return RELU_GAP * role.eta if is_relu and role.eta is not None else None


def _checked(compiled: CompiledFFN, x: Sequence[float | int] | None) -> tuple[float, ...]:
    d_in, bound = compiled.ffn.d_in, compiled.bound
    numbers = tuple(map(float, x)) if x is not None else (bound / 4,) * d_in
    if len(numbers) != d_in or not all(abs(number) <= bound for number in numbers):
        raise ValueError(f"x: expected {d_in} numbers in [-{bound:g}, {bound:g}], got {numbers}.")
    return numbers


def _inputs(compiled: CompiledFFN) -> np.ndarray:
    """Inputs over the whole range, [input, D]: equally spaced ones, a grid, or of more numbers all the same."""
    d_in, bound = compiled.ffn.d_in, compiled.bound
    if d_in != 2:
        return np.repeat(np.linspace(-bound, bound, _POINTS)[:, None], d_in, axis=1)
    side = np.linspace(-bound, bound, _SIDE)
    return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)


@torch.no_grad()
def _run(compiled: CompiledFFN, x: Tensor, role: HeadRole) -> tuple[Any, Any, Any]:
    """The head's pattern, the stream that its layer reads (without the last coordinate), and its z."""
    block = f"blocks.{role.layer}"
    names = [f"{block}.attn.hook_pattern", f"{block}.hook_resid_pre", f"{block}.attn.hook_z"]
    _, cache = compiled.model.run_with_cache(compiled.embed(x), names_filter=names)
    pattern, stream, z = (cache[name].cpu().numpy() for name in names)
    return pattern[:, role.head], stream[..., :-1], z[:, :, role.head]


def _token(x: Sequence[float]) -> str:
    numbers = ",".join(f"{value:.3g}" for value in x).replace("-", "−")
    return f"x={numbers}" if len(x) == 1 else f"({numbers})"
