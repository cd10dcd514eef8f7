"""The contribution of each head to a measure, whatever heads are there beside it: Shapley values.

With m(S) a measure of the model with all heads but those of S replaced (`aotlens.heads.sufficient`), and n heads,

    φ_h = Σ_{S ∌ h} |S|! (n − |S| − 1)! ÷ n! · (m(S ∪ h) − m(S))

the mean over all orders of what h adds when it comes after those before it. The values of all heads add up to
m(all) − m(∅). A head whose work others do as well adds nothing where these are there, so that it is worth nothing by
an ablation alone, and does add where they are not: `last`, m(all) − m(all but h), is the former, `first`,
m({h}) − m(∅), the latter, and φ_h lies between for two heads that stand in for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from scipy.special import comb, stdtrit
from torch import Tensor

from aotlens.conventions import Progress, all_heads, head_name, require_seed, require_whole
from aotlens.heads.ablation import Measure, Metric, unit_of
from aotlens.heads.inputs import Batch
from aotlens.heads.sufficient import HeadSets
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result, table
from aotlens.statistics import as_clusters, mean_interval

if TYPE_CHECKING:
    import pandas as pd

#: Heads of which all sets are tried, 4,096 of them.
MOST_EXACT = 12
#: The least orders to draw: simulated, intervals of all heads at once hold in 92% of cases with 16, in 32% with 4 where
#: heads work in threes.
LEAST_PERMUTATIONS = 32
#: Orders that are drawn where there are more heads.
N_PERMUTATIONS = 128
_CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapleyValues(Result):
    """Shapley values of heads, in `unit`. Of a loss a negative one says that the head lowers it."""

    how: str
    unit: str
    whole: float
    """m(all): the mean over sequences of the measure of the full model."""
    empty: float
    """m(∅): the mean over sequences of the measure with all heads replaced."""
    values: Float64[np.ndarray, "layer head"]
    """φ; their sum is `whole` − `empty`."""
    intervals: Float64[np.ndarray, "layer head 2"]
    """The intervals of φ in text like this, right for all heads at once in 95% of cases: each at Šidák's .95^(1/n),
    over clusters where they were given, else over sequences, and wider by what drawing orders adds."""
    order_errors: Float64[np.ndarray, "layer head"]
    """Standard error of φ from the orders that were drawn; 0 where all sets were tried."""
    first: Float64[np.ndarray, "layer head"]
    """m({h}) − m(∅): what the head does alone."""
    last: Float64[np.ndarray, "layer head"]
    """m(all) − m(all but h): what is missing without it."""
    n_permutations: int | None
    """Orders that were drawn, each beside its reverse; None where all sets were tried."""
    n_sequences: int
    n_runs: int
    """Sets of heads that were tried."""

    @property
    def hidden(self) -> Bool[np.ndarray, "layer head"]:
        """Whether other heads hide what a head does: its interval does not hold 0, and ablating it alone shows less
        than half of its Shapley value, |`last`| < |φ| ÷ 2."""
        low, high = np.moveaxis(self.intervals, -1, 0)
        hidden: np.ndarray = (low * high > 0) & (np.abs(self.last) < np.abs(self.values) / 2)
        return hidden

    @property
    def headline(self) -> str:
        order = np.argsort(-np.abs(self.values), axis=None)[:3]
        places = [np.unravel_index(place, self.values.shape) for place in order]
        most = ", ".join(f"{head_name([int(axis) for axis in place])} {self.values[place]:+.3f}" for place in places)
        how = "exact" if self.n_permutations is None else f"{self.n_permutations} orders"
        return f"{most} {self.unit} of {self.whole - self.empty:+.3f} by all heads ({how})"

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, shapley, its interval (low, high), order_error, first,
        last, hidden."""
        columns = {"shapley": self.values, "low": self.intervals[..., 0], "high": self.intervals[..., 1]}
        columns |= {"order_error": self.order_errors, "first": self.first, "last": self.last, "hidden": self.hidden}
        return table(("layer", "head"), columns)


@torch.no_grad()
def shapley_heads(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    targets: Tensor | None = None,
    metric: Metric | Measure | None = None,
    how: str = "position_mean",
    reference: Tensor | str | list[str] | None = None,
    *,
    n_permutations: int | None = None,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> ShapleyValues:
    """Estimate the Shapley value of every head; the definition is at the head of this module.

    Measured is the loss, on next tokens or `targets`, or `metric(logits, targets)`, as in `ablate`; so are `how` and
    `reference`. Up to 12 heads all sets are tried, and values are exact. Of more heads, or where it is given,
    `n_permutations` orders are drawn (128, an even number of 32 or more), each with its reverse: as many as were said
    beforehand, whatever comes out, and each to its end. `clusters` names the prompt or document of each sequence;
    intervals are then over these.

    Time: a forward pass over all sequences for each set: 2^n, or about n a drawn order. Memory: for each sequence what
    replaces every head, and a number for each set. `progress(done, total)` counts sets.

    Raises `ValueError` for fewer than 2 sequences, for another number of orders, and as `ablate`. Source: Shapley
    (1953); Castro et al. (2009) for sampled orders.
    """
    require_ours(model, "shapley_heads")
    batch = Batch.of(model, tokens, None, targets)
    if len(batch) < 2:
        raise ValueError(f"expected at least 2 sequences, over which intervals are, got {len(batch)}.")
    groups = as_clusters(clusters, len(batch))
    shape = model.cfg.n_layers, model.cfg.n_heads
    heads = all_heads(model.cfg)
    n = len(heads)
    if n_permutations is None and n > MOST_EXACT:
        n_permutations = N_PERMUTATIONS
    if n_permutations is not None:
        require_whole("n_permutations", n_permutations, LEAST_PERMUTATIONS, 10_000)
        if n_permutations % 2:
            raise ValueError(f"n_permutations={n_permutations}: expected an even number, since each has its reverse.")
    require_seed(seed)
    # Of drawn orders, whose last heads `first` and `last` may not be among.
    total = 2**n if n_permutations is None else n_permutations * (n - 1) + 2 * n + 2
    sets = HeadSets(model, heads, batch, reference, how, metric, seed, batch_size, total=total, progress=progress)

    def number(members: Iterable[int]) -> np.ndarray:
        return sets.numbers(frozenset(heads[place] for place in members))

    everything = range(n)
    if n_permutations is None:
        by_sequence, errors = _exact(n, number), np.zeros(n)
    else:
        orders = np.random.default_rng(seed).permuted(np.tile(np.arange(n), (n_permutations // 2, 1)), axis=1)
        by_sequence, errors = _sampled(orders, number)
    values = by_sequence.mean(1)
    confidence = _CONFIDENCE ** (1 / n)
    spread = 0.0 if n_permutations is None else stdtrit(n_permutations // 2 - 1, (1 + confidence) / 2)
    reach = (
        np.array([mean_interval(effects, groups, confidence=confidence) for effects in by_sequence]) - values[:, None]
    )
    reach = np.array([-1.0, 1.0]) * np.sqrt(reach**2 + (spread * errors[:, None]) ** 2)
    whole, empty = number(everything), number(())
    first = np.array([(number([place]) - empty).mean() for place in everything])
    last = np.array([(whole - number(set(everything) - {place})).mean() for place in everything])
    return ShapleyValues(
        how=how,
        unit=unit_of(model, metric),
        whole=float(whole.mean()),
        empty=float(empty.mean()),
        values=values.reshape(shape),
        intervals=(values[:, None] + reach).reshape(*shape, 2),
        order_errors=errors.reshape(shape),
        first=first.reshape(shape),
        last=last.reshape(shape),
        n_permutations=n_permutations,
        n_sequences=len(batch),
        n_runs=sets.n_runs,
    )


Number: TypeAlias = Callable[[Iterable[int]], Float64[np.ndarray, " sequence"]]


def _exact(n: int, number: Number) -> Float64[np.ndarray, "head sequence"]:
    """Compute the values of each sequence by all sets: bit i of a set's number says whether head i is in it."""
    numbers = np.arange(2**n)
    measured = np.stack([number([place for place in range(n) if bits >> place & 1]) for bits in numbers.tolist()])
    sizes = np.array([bits.bit_count() for bits in numbers.tolist()])
    values = []
    for place in range(n):
        without = numbers[numbers >> place & 1 == 0]
        weights = 1 / (n * comb(n - 1, sizes[without]))
        values.append(weights @ (measured[without | 1 << place] - measured[without]))
    return np.stack(values)


def _sampled(
    orders: Int64[np.ndarray, "pair head"], number: Number
) -> tuple[Float64[np.ndarray, "head sequence"], Float64[np.ndarray, " head"]]:
    """Estimate each sequence's mean over orders and their reverses, and its standard error over these pairs."""
    empty = number(())
    total = np.zeros((orders.shape[1], len(empty)))
    means = []
    for order in orders.tolist():
        added = np.zeros_like(total)
        for each in (order, order[::-1]):
            before = empty
            for size, place in enumerate(each, start=1):
                after = number(each[:size])
                added[place] += (after - before) / 2
                before = after
        total += added
        means.append(added.mean(1))
    return total / len(orders), np.std(means, axis=0, ddof=1) / np.sqrt(len(orders))
