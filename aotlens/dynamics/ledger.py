"""The decrease of the loss by each circuit between snapshots: a split of the change that sums to it.

Along a line from one snapshot to the next (`aotlens.dynamics.products`), with the entries' places t_g,

    L(1) − L(0) = Σ_g ∫₀¹ ∂L/∂t_g dt

by Gauss–Legendre nodes, with segments halved where the parts do not sum to the change that two losses give. What is
left over is the residual, which is always reported. The split depends on the path: more snapshots give another one, so
its difference from that of every second snapshot is reported, too (loss change allocation, Lan et al. 2019, sums over
all steps of training).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from aotlens.checkpoints import Run
from aotlens.conventions import Progress, require_choice, require_whole
from aotlens.dynamics.products import Between
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: The largest number of times that a segment is halved.
_MOST_HALVINGS = 7
#: Units in the last place of the loss by which parts and change may differ: sums of a few thousand tokens.
_ROUNDING = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Ledger(Result):
    """The change of the loss from the first step to the last, by entry. Nats a token; what lowers it is negative."""

    run: str
    steps: Int64[np.ndarray, " step"]
    losses: Float64[np.ndarray, " step"]
    """The loss at each step."""
    entries: tuple[str, ...]
    """`1.0 QK` and `1.0 OV` of each head, with biases; embedding, positions, read-out, output biases, MLPs."""
    parts: Float64[np.ndarray, "segment entry"]
    """The parts of the change between a step and the next."""
    halved: float | None
    """‖split − split of every second step‖₁ ÷ ‖split‖₁; None with a single segment."""
    n_passes: int
    """Passes forward and backward over the text that it took."""

    @property
    def change(self) -> float:
        return float(self.losses[-1] - self.losses[0])

    @property
    def totals(self) -> Float64[np.ndarray, " entry"]:
        """The parts of the whole change."""
        return self.parts.sum(0)

    @property
    def residuals(self) -> Float64[np.ndarray, " segment"]:
        """The change of each segment minus the sum of its parts."""
        return np.diff(self.losses) - self.parts.sum(1)

    @property
    def headline(self) -> str:
        best = self.entries[int(self.totals.argmin())]
        halved = "" if self.halved is None else f", the split differs by {self.halved:.3f} with every second step"
        worst = f"{np.abs(self.residuals).max():.1e} in the worst of {len(self.parts)} segments"
        return (
            f"loss {self.change:+.3f} nats a token, {self.totals.min():+.3f} of it by {best}; residual "
            f"{self.residuals.sum():+.1e}, {worst}{halved}"
        )

    def __getitem__(self, entry: str) -> float:
        """An entry's share of the whole change. Raises `ValueError` for an unknown one."""
        return float(self.totals[self.entries.index(require_choice("entry", entry, self.entries))])

    def to_frame(self) -> pd.DataFrame:
        """Return one row an entry of a segment: from_step, to_step, entry, nats; the residual is the last entry of
        each."""
        import pandas as pd

        columns = [*self.entries, "residual"]
        values = np.column_stack([self.parts, self.residuals])
        rows = [
            (int(self.steps[segment]), int(self.steps[segment + 1]), entry, values[segment, place])
            for segment in range(len(values))
            for place, entry in enumerate(columns)
        ]
        return pd.DataFrame(rows, columns=["from_step", "to_step", "entry", "nats"])


def ledger(
    run: Run | Sequence[AttentionOnlyTransformer],
    tokens: Int[Tensor, "sequence pos"],
    *,
    start: int | None = None,
    end: int | None = None,
    n_nodes: int = 5,
    tolerance: float = 1e-3,
    dtype: torch.dtype = torch.float64,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> Ledger:
    """Split the change of the mean next-token loss on `tokens` from snapshot `start` to `end` of a run by entry.

    `run` may also be models, which count as steps 0, 1, …. Each stretch between snapshots is halved until the parts sum
    to its change within `tolerance` of it, 7 times at most. `progress(done, total)` counts segments, those of every
    second step among them.

    Raises `ValueError` for fewer than two snapshots, and for a model that has parts which the ledger does not know.
    """
    require_whole("n_nodes", n_nodes, 1, 64)
    if isinstance(run, Run):
        known = list(run.steps)
    else:
        for model in run:
            require_ours(model, "ledger")
        known = list(range(len(run)))
    steps = [step for step in known if (start is None or step >= start) and (end is None or step <= end)]
    if len(steps) < 2:
        raise ValueError(f"expected at least two snapshots from {start} to {end}, got {len(steps)} of {len(known)}.")
    coarse = steps[::2] if len(steps) % 2 else [*steps[::2], steps[-1]]
    total = len(steps) - 1 + (len(coarse) - 1 if len(steps) > 2 else 0)
    done = 0

    def split(steps: Sequence[int]) -> tuple[list[np.ndarray], list[float], int, tuple[str, ...]]:
        nonlocal done
        parts: list[np.ndarray] = []
        losses: list[float] = []
        passes = 0
        earlier = run[steps[0]]
        for step in steps[1:]:
            later = run[step]
            between = Between(earlier, later, tokens, dtype, batch_size)
            rounding = _ROUNDING * torch.finfo(dtype).eps
            parts.append(integrate(between, n_nodes=n_nodes, tolerance=tolerance, rounding=rounding))
            losses += [between.loss(0.0)] if not losses else []
            losses.append(between.loss(1.0))
            passes, names = passes + between.n_passes, between.entries
            earlier, done = later, done + 1
            if progress is not None:
                progress(done, total)
        return parts, losses, passes, names

    parts, losses, passes, names = split(steps)
    halved = None
    if len(steps) > 2:
        other, _, more, _ = split(coarse)
        whole = np.sum(parts, 0)
        halved, passes = float(np.abs(whole - np.sum(other, 0)).sum() / (np.abs(whole).sum() or 1.0)), passes + more
    return Ledger(
        run=run.name if isinstance(run, Run) else "",
        steps=np.array(steps, dtype=np.int64),
        losses=np.array(losses),
        entries=names,
        parts=np.stack(parts),
        halved=halved,
        n_passes=passes,
    )


@runtime_checkable
class Loss(Protocol):
    """A loss along a line, and its slope by each entry."""

    def loss(self, t: float) -> float: ...
    def slopes(self, t: float) -> Tensor: ...


def integrate(between: Loss, *, n_nodes: int, tolerance: float, rounding: float = 0.0) -> Float64[np.ndarray, " entry"]:
    """Return ∫₀¹ ∂L/∂t_g dt of each entry by `n_nodes` Gauss–Legendre nodes in each stretch, which is halved while its
    parts do not sum to its change within `tolerance` of the whole change, or within `rounding` of the loss, and no more
    than 7 times."""
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    nodes, weights = (nodes + 1) / 2, weights / 2
    ends = between.loss(0.0), between.loss(1.0)
    exact = rounding * max(map(abs, ends))

    def over(a: float, b: float, at_a: float, at_b: float, halvings: int) -> np.ndarray:
        slopes = np.stack([between.slopes(a + (b - a) * node).numpy() for node in nodes])
        parts: np.ndarray = (b - a) * (weights @ slopes)
        # A change that is small compared with its parts is not divided by: a thousandth of them is rounding.
        allowed = tolerance * max(abs(ends[1] - ends[0]), 1e-3 * float(np.abs(parts).sum())) * (b - a)
        if halvings == _MOST_HALVINGS or abs(at_b - at_a - parts.sum()) <= max(allowed, exact):
            return parts
        middle = (a + b) / 2
        at_middle = between.loss(middle)
        return over(a, middle, at_a, at_middle, halvings + 1) + over(middle, b, at_middle, at_b, halvings + 1)

    return over(0.0, 1.0, *ends, 0)
