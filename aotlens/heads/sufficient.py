"""A small set of heads that does, by itself, what the full model does.

For a set S of heads let m(S) be a measure of the model with all *other* heads replaced (`aotlens.heads.ablation` says
by what). What S keeps of what heads do is its

    faithfulness = (m(S) − m(∅)) ÷ (m(all) − m(∅))        1 for all heads, 0 for none; it may leave both

The smallest set with faithfulness ≥ `keep` cannot be found but by trying all. Two searches go on their own ways, and
the smaller set wins:

    backward    from all heads, take away the one that is missed least, as long as `keep` is reached
    forward     from none, add the best head or the best *pair* of heads, until `keep` is reached, then go backward. Of
                two heads that work only together neither helps alone, so single moves have no signal

A head of the set may be necessary in two senses, which are two columns: within the set (without it the set falls below
`keep`), and in the full model (all heads but this one do). With two circuits that do the same, no head of either is
necessary in the full model. Either is said of a head only where the interval of that faithfulness is wholly on one
side of `keep`, and "undecided" otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress, all_heads, head_name, require_between
from aotlens.data.windows import held_out_rows
from aotlens.heads.ablation import Measure, Metric, measured, unit_of
from aotlens.heads.inputs import Batch
from aotlens.heads.replacement import Replacement
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.loss import are_alike, rounding_of
from aotlens.results import Result
from aotlens.statistics import Verdict, as_clusters, interval_text, mean_interval, necessity, ratio_intervals

if TYPE_CHECKING:
    import pandas as pd


Kept: TypeAlias = frozenset[Head]


class HeadSets:
    """The measure of the model with only some heads left, each set once."""

    clusters: Int64[np.ndarray, " sequence"] | None = None

    def __init__(
        self,
        model: AttentionOnlyTransformer,
        heads: Sequence[Head],
        batch: Batch,
        reference: Tensor | str | list[str] | Batch | None,
        how: str,
        metric: Metric | Measure | None,
        seed: int,
        batch_size: int,
        *,
        total: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """`progress(done, total)` counts sets, of which there are at most `total`."""
        self.model, self.metric, self.heads, self.total = model, metric, frozenset(heads), total
        self.progress = progress
        self.replacement = Replacement(model, heads, how, batch, reference, seed=seed, batch_size=batch_size)
        self.parts: list[tuple[Batch, dict[int, Tensor]]] = []
        whole: list[np.ndarray] = []
        for rows, part in self.replacement.parts():
            logits, stand_ins, _ = self.replacement.clean(part, rows)
            self.parts.append((part, {layer: z.to(model.device, model.dtype) for layer, z in stand_ins.items()}))
            whole.append(measured(model, logits, part, rows.start, metric)[0])
        self._known: dict[Kept, np.ndarray] = {self.heads: np.concatenate(whole)}

    @property
    def n_runs(self) -> int:
        return len(self._known)

    def numbers(self, kept: Kept) -> Float64[np.ndarray, " sequence"]:
        """Compute the measure of each sequence with all heads but `kept` replaced."""
        if kept not in self._known:
            replaced, start = self.heads - kept, 0
            numbers: list[np.ndarray] = []
            for part, stand_ins in self.parts:
                logits = self.replacement.replaced(part, stand_ins, replaced)
                numbers.append(measured(self.model, logits, part, start, self.metric)[0])
                start += len(part)
            self._known[kept] = np.concatenate(numbers)
            if self.progress is not None:
                self.progress(self.n_runs, self.total)
        return self._known[kept]

    def _effects(self, kept: Kept) -> np.ndarray:
        return self.numbers(kept) - self.numbers(frozenset())

    def all_do_nothing(self) -> bool:
        """Return whether the measure is the same with all heads replaced, but for the rounding of logits. Cost: a run
        and its measure nine times."""
        rounding, start, dtype = [], 0, self.model.dtype
        for part, stand_ins in self.parts:

            def measure(logits: Tensor, part: Batch = part, start: int = start) -> np.ndarray:
                return measured(self.model, logits, part, start, self.metric)[0]

            rounding.append(rounding_of(measure, self.replacement.replaced(part, stand_ins, self.heads), dtype))
            start += len(part)
        ends = np.stack([self.numbers(self.heads), self.numbers(frozenset())], 1)
        return are_alike(ends, np.concatenate(rounding), dtype)

    def faithfulness(self, kept: Kept) -> float:
        return float(self._effects(kept).mean() / self._effects(self.heads).mean())

    def intervals(self, sets: Sequence[Kept], confidence: float) -> Float64[np.ndarray, "set 2"]:
        """Return the intervals of the faithfulness of each set."""
        whole = self._effects(self.heads)
        sign = np.sign(whole.mean())
        effects = np.array([sign * self._effects(kept) for kept in sets]).reshape(len(sets), len(whole))
        return ratio_intervals(effects, sign * whole, self.clusters, confidence=confidence)

    def best(self, sets: Iterable[Kept]) -> Kept:
        """Return the most faithful of some sets; among equals the first."""
        return max(sets, key=self.faithfulness)


#: The confidence of the intervals of a result.
_CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class SufficientHeads(Result):
    """A smallest set that was found. All but `searched` is measured on the sequences that the search did not see, or on
    its own where `n_held_out` is 0."""

    heads: tuple[Head, ...]
    keep: float | int
    how: str
    unit: str
    whole: float
    """m(all): the mean over sequences of the measure of the full model, in `unit`."""
    empty: float
    """m(∅): the mean over sequences of the measure with all heads replaced."""
    searched: float
    """The set's faithfulness on the sequences of the search."""
    faithfulness: float
    interval: tuple[float, float]
    """The interval of the faithfulness: 95%, over clusters where they were given, else over sequences
    (`aotlens.statistics.ratio_intervals`)."""
    within: Float64[np.ndarray, " head"]
    """The faithfulness of the set without each of its heads."""
    within_intervals: Float64[np.ndarray, "head 2"]
    """The intervals of `within`, as `interval`, right for all heads of the set at once in 95% of cases: each at Šidák's
    .95^(1/n)."""
    without: Float64[np.ndarray, " head"]
    """The faithfulness of all heads of the model but this one."""
    without_intervals: Float64[np.ndarray, "head 2"]
    """The intervals of `without`, as `within_intervals`."""
    search: Literal["backward", "forward"]
    """The search that the set is from; `backward` where both found as many heads."""
    sizes: tuple[int, int]
    """Heads that the backward and the forward search ended with; the latter gives up at the former's size."""
    n_searched: int
    """Sequences of the search."""
    n_held_out: int
    """Sequences that were kept out of it."""
    n_runs: int
    """Sets of heads that were tried."""

    @property
    def necessary_within(self) -> tuple[Verdict, ...]:
        """The verdict on each head: whether the set falls below `keep` without it."""
        return necessity(self.within_intervals, self.keep)

    @property
    def necessary_in_model(self) -> tuple[Verdict, ...]:
        """The verdict on each head: whether the full model falls below `keep` without it."""
        return necessity(self.without_intervals, self.keep)

    @property
    def headline(self) -> str:
        names = " ".join(map(head_name, self.heads)) or "no head"
        names = names if len(names) < 120 else f"{len(self.heads)} heads"
        where = "held-out sequences" if self.n_held_out else "the searched sequences"
        reach = interval_text(self.interval, ".3f")
        least = f" at least {self.keep:g}:" if self.interval[0] >= self.keep else ""
        return f"{names} keep{least} {self.faithfulness:.3f}{reach} on {where}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head of the set: layer, head, and for `within` and `without` the faithfulness, its interval
        (_low, _high) and whether the head is necessary in that sense (necessary_within, necessary_in_model)."""
        import pandas as pd

        frame = pd.DataFrame(list(self.heads), columns=["layer", "head"])
        for name in ("within", "without"):
            low, high = getattr(self, f"{name}_intervals").T
            frame = frame.assign(**{name: getattr(self, name), f"{name}_low": low, f"{name}_high": high})
        return frame.assign(necessary_within=self.necessary_within, necessary_in_model=self.necessary_in_model)


@torch.no_grad()
def sufficient_heads(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    targets: Tensor | None = None,
    metric: Metric | Measure | None = None,
    keep: float | int = 0.9,
    how: str = "position_mean",
    reference: Tensor | str | list[str] | None = None,
    held_out: float | int = 0.5,
    *,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> SufficientHeads:
    """Search a smallest set of heads whose faithfulness is `keep` or more; definitions at the head of this module.

    Measured is the loss, on next tokens or `targets`, or `metric(logits, targets)`, as in `ablate`; so are `how` and
    `reference`. Without a reference, means are those of the searched sequences (each left out of its own). The share
    `held_out` of the sequences, drawn from `seed`, is kept out of the search and checks its result. `clusters` names
    the prompt or document that each sequence is from, where several are from one: intervals are then over these, and
    whole ones are held out where both sides get three or more (else sequences are, and what is checked has relatives
    among what was searched).

    Time: a forward pass over the searched sequences for each set that is tried: at most n(n + 1) / 2 backward for n
    heads, and about n²/2 for each forward move. Memory: for each searched sequence what replaces every head (z, or
    patterns for `"fixed_pattern"`); `progress(done, total)` counts sets, `total` being a bound.

    Raises `ValueError` for `keep` outside (0, 1], for too few sequences, where the interval of m(all) − m(∅) over the
    searched or over the other sequences (95%) holds 0, since then there is nothing to be faithful to, and
    as `ablate`.
    """
    require_ours(model, "sufficient_heads")
    require_between("keep", keep, above=0, most=1)
    require_between("held_out", held_out, 0, below=1)
    batch = Batch.of(model, tokens, None, targets)
    groups = as_clusters(clusters, len(batch))
    aside = held_out_rows(len(batch), held_out, groups, seed)
    n_held_out = int(aside.sum())
    n_searched = len(batch) - n_held_out
    if n_searched < 2 or (held_out and n_held_out < 2):
        raise ValueError(
            f"expected at least 2 sequences to search and 2 to check, got {n_searched} and {n_held_out} of "
            f"{len(batch)}; give more, or another held_out."
        )
    search_rows, check_rows = (~aside).nonzero()[:, 0], aside.nonzero()[:, 0]
    others = None if reference is None else Batch.of(model, reference)
    heads, options = all_heads(model.cfg), (how, metric, seed, batch_size)
    total = len(heads) * (len(heads) + 3)  # n(n + 1)/2 tried by each search, and every head alone and left out
    searched = HeadSets(model, heads, batch[search_rows], others, *options, total=total, progress=progress)
    checked = searched
    if n_held_out:
        means = batch[search_rows] if others is None else others
        checked = HeadSets(model, heads, batch[check_rows], means, *options)
    for part, rows, which in ((searched, search_rows, "searched"), (checked, check_rows, "held-out")):
        part.clusters = None if groups is None else groups[rows.numpy()]
        _require_effect(part, heads, unit_of(model, metric), which)

    sets: dict[Literal["backward", "forward"], Kept] = {"backward": _backward(searched, frozenset(heads), keep)}
    sets["forward"] = _forward(searched, heads, keep, len(sets["backward"]))
    reached = [name for name, kept in sets.items() if searched.faithfulness(kept) >= keep]
    search = min(reached, key=lambda name: len(sets[name]))
    smallest = sets[search]
    members = tuple(sorted(smallest))
    within, without = [smallest - {head} for head in members], [frozenset(heads) - {head} for head in members]
    for_all = _CONFIDENCE ** (1 / max(len(members), 1))
    return SufficientHeads(
        heads=members,
        keep=keep,
        how=how,
        unit=unit_of(model, metric),
        whole=float(checked.numbers(frozenset(heads)).mean()),
        empty=float(checked.numbers(frozenset()).mean()),
        searched=searched.faithfulness(smallest),
        faithfulness=checked.faithfulness(smallest),
        interval=tuple(checked.intervals([smallest], _CONFIDENCE)[0].tolist()),
        within=np.array([checked.faithfulness(kept) for kept in within]),
        within_intervals=checked.intervals(within, for_all),
        without=np.array([checked.faithfulness(kept) for kept in without]),
        without_intervals=checked.intervals(without, for_all),
        search=search,
        sizes=(len(sets["backward"]), len(sets["forward"])),
        n_searched=n_searched,
        n_held_out=n_held_out,
        n_runs=searched.n_runs,
    )


def _require_effect(sets: HeadSets, heads: Sequence[Head], unit: str, which: str) -> None:
    """Raise `ValueError` where replacing all heads changes nothing that can be told from 0, or from rounding."""
    effects = sets.numbers(frozenset(heads)) - sets.numbers(frozenset())
    low, high = mean_interval(effects, sets.clusters, confidence=_CONFIDENCE)
    if low <= 0 <= high or sets.all_do_nothing():
        raise ValueError(
            f"expected replacing all heads to change the measure; it changes by {-effects.mean():.4g} ± "
            f"{(high - low) / 2:.2g} {unit} over {len(effects)} {which} sequences, so that no set of heads keeps "
            "anything; give another measure or more text."
        )


def _backward(sets: HeadSets, members: Kept, keep: float) -> Kept:
    while members:
        best = sets.best(members - {head} for head in sorted(members))
        if sets.faithfulness(best) < keep:
            break
        members = best
    return members


def _forward(sets: HeadSets, heads: Sequence[Head], keep: float, limit: int) -> Kept:
    """Search forward, and give up at `limit` heads, which the other search reached."""
    members: Kept = frozenset()
    value: Callable[[Kept], float] = sets.faithfulness
    while value(members) < keep and len(members) < limit:
        left = [head for head in heads if head not in members]
        best = sets.best(members | {head} for head in left)
        if value(best) < keep and len(left) > 1 and len(members) + 2 <= limit:
            pair = sets.best(members | set(two) for two in combinations(left, 2))
            if value(pair) >= keep or value(pair) - value(members) > 2 * (value(best) - value(members)):
                best = pair
        members = best
    return _backward(sets, members, keep) if value(members) >= keep else members
