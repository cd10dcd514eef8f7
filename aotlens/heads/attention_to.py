"""The engine: how much of every head's attention goes where a motif would have it.

For a motif with targets T, the (query, key) pairs of its mask, and the n queries that count,

    score       (1/n) Σ_{(q, k) ∈ T} pattern[q, k]                    0 to 1 for softmax
    uniform     (1/n) Σ_{(q, k) ∈ T} 1 ÷ v_q,    v_q = the keys that q sees: even attention's score
    chance      of a motif of position `uniform`; of a motif of content the score of the head's mean pattern over the
                *other* sequences, position by position, with this sequence's own mask
    expected    (1/n) Σ_{(q, k) ∈ T} m(q − k),   m(δ) = the head's mean attention over all pairs at distance δ

A head that looks three tokens back finds many an open bracket there; only attention above chance speaks of brackets.
A head whose pattern depends on positions alone has no excess over chance in any motif of content. (Shuffled tokens are
no chance: an induction head does induction there too.) On repeated random tokens all sequences repeat alike, so that
the mean pattern is the head itself: there chance is `uniform`.

Intervals are of score − chance: 95%, the sequence being the unit (`aotlens.heads.tally`,
`aotlens.statistics.ratio_intervals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import MOTIFS, Motif, as_motifs
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.tally import MotifTally
from aotlens.results import Result, top_head
from aotlens.statistics import ratio_intervals

if TYPE_CHECKING:
    import pandas as pd

MIXED = "mixed"
#: By how much a score must exceed chance for its motif to be a head's label.
LEAST_EXCESS = 0.1
#: Attention from which a head is vertical or diagonal, and the least of each where it is both (`kovaleva`).
KOVALEVA_SHARE, KOVALEVA_LEAST = 0.4, 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class MotifScores(Result):
    """The score of every head for each motif: for motifs with a mask its mean attention there, 0 to 1 for softmax."""

    motifs: tuple[str, ...]
    """Names."""
    values: Float64[np.ndarray, "motif layer head"]
    """NaN for a motif that could not be measured."""
    n_queries: Int64[np.ndarray, " motif"]
    """Queries that each score is a mean over (sequences, for a score of the pattern alone)."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a motif is NaN, by its name."""
    chance: Float64[np.ndarray, "motif layer head"] | None = None
    """What the score would be by chance, as at the head of this module; None where it is not known."""
    uniform: Float64[np.ndarray, "motif layer head"] | None = None
    """What even attention would score; None where it is not known."""
    intervals: Float64[np.ndarray, "motif layer head 2"] | None = None
    """Of `excess`, over sequences; NaN where fewer than two have queries that count, None where not asked for."""
    best_offsets: Int64[np.ndarray, "layer head"] | None = None
    """The offset (key − query) behind `fixed_offset`; None where that was not measured."""
    expected: Float64[np.ndarray, "motif layer head"] | None = None
    """What the same distances get on average, whatever is there; None where it was not asked for."""
    start: int | None = None
    """The start token of the random sequences of `motif_scores`; None where there was none."""
    about: str = ""
    """What was read."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """The thresholds of motifs that are not those of `MOTIFS`, by name."""
    of_pattern: tuple[str, ...] = ()
    """Motifs that are not those of `MOTIFS` and are scores of the pattern alone."""

    @property
    def headline(self) -> str:
        measured = [motif for motif in self.motifs if motif not in self.reasons]
        first = "induction" if "induction" in measured else measured[0] if measured else None
        return "no motif was measured" if first is None else f"{first} is highest in {top_head(self[first])}"

    def __getitem__(self, motif: str) -> Float64[np.ndarray, "layer head"]:
        if motif not in self.motifs:
            raise KeyError(f"{motif!r}: expected one of {', '.join(self.motifs)}")
        return self.values[self.motifs.index(motif)]

    def best(self, motif: str) -> tuple[Head, float] | None:
        """The head with the highest score, and that score; None for a motif that could not be measured."""
        scores = self[motif]
        if not np.isfinite(scores).any():
            return None
        layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
        return (int(layer), int(head)), float(scores[layer, head])

    @property
    def excess(self) -> Float64[np.ndarray, "motif layer head"]:
        """Score − chance; the score itself where chance is not known."""
        return self.values if self.chance is None else self.values - self.chance

    def labels(self, threshold: float | None = None) -> list[list[str]]:
        """For each layer and head a motif, or "mixed".

        Of the motifs with keys whose score reaches `threshold` (None: each motif's own) and exceeds chance by .1, the
        one with the largest excess, so that of two that hold the narrower wins; where there is none, a score of the
        pattern alone that reaches its own threshold, such as `broadcast`.
        """
        return np.array([*self.motifs, MIXED])[self._labelled(threshold)].tolist()  # −1 is the last

    def margins(self, threshold: float | None = None) -> Float64[np.ndarray, "layer head"]:
        """By how much the excess of the label beats the largest one of the other motifs with keys; of a score of the
        pattern alone, how far it is above its threshold; NaN for "mixed"."""
        margins = np.full(self.values.shape[1:], np.nan)
        labelled = self._labelled(threshold)
        with_keys = np.array([not self._of_pattern(name) for name in self.motifs])
        excess = np.where(with_keys[:, None, None], np.nan_to_num(self.excess, nan=-np.inf), -np.inf)
        for layer, head in zip(*np.nonzero(labelled >= 0), strict=True):
            motif = labelled[layer, head]
            if with_keys[motif]:
                others = np.delete(excess[:, layer, head], motif)
                margins[layer, head] = excess[motif, layer, head] - max(others.max(initial=-np.inf), 0.0)
            else:
                margins[layer, head] = self.values[motif, layer, head] - self._threshold(self.motifs[motif])
        return margins

    def _labelled(self, threshold: float | None) -> Int64[np.ndarray, "layer head"]:
        """The place of each head's motif; −1 for none."""
        of_pattern = np.array([self._of_pattern(name) for name in self.motifs])
        own = np.array([self._threshold(name) if threshold is None else threshold for name in self.motifs])
        own[of_pattern] = [self._threshold(name) for name in np.array(self.motifs)[of_pattern]]
        reached = self.values >= own[:, None, None]
        with np.errstate(invalid="ignore"):
            with_keys = reached & ~of_pattern[:, None, None] & (self.excess >= LEAST_EXCESS)
        ranked = np.where(with_keys, np.nan_to_num(self.excess, nan=0.0), -np.inf)
        ranked[of_pattern] = np.where(reached[of_pattern] & ~with_keys.any(0), self.values[of_pattern], -np.inf)
        return np.where(np.isfinite(ranked).any(0), ranked.argmax(0), -1)

    def _of_pattern(self, name: str) -> bool:
        """Whether a motif is a score of the pattern alone."""
        known = MOTIFS.get(name)
        return name in self.of_pattern or (
            name not in self.thresholds and known is not None and known.score is not None
        )

    def _threshold(self, name: str) -> float:
        known = MOTIFS.get(name)
        return self.thresholds.get(name, Motif.threshold if known is None else known.threshold)

    def kovaleva(self) -> list[list[str]]:
        """For each layer and head its class after Kovaleva et al. 2019, by attention rather than by eye.

        With v the attention to the first position and to separators after it, and d that to the previous, the query's
        own and the next token: `vertical + diagonal` where v + d ≥ .4 and both are .2 or more, else `vertical` or
        `diagonal` where v or d is .4 or more, else `heterogeneous`. (Their `block` needs inputs of two segments.)
        """

        def total(*names: str) -> np.ndarray:
            measured = [np.nan_to_num(self[name]) for name in names if name in self.motifs]
            return np.sum(measured, axis=0) if measured else np.zeros(self.values.shape[1:])

        vertical = total("first_token", "separator")  # a separator at the end is `last_token` too: it counts once
        diagonal = total("previous_token", "current_token", "next_token")
        both = np.minimum(vertical, diagonal) >= KOVALEVA_LEAST
        return np.select(
            [both & (vertical + diagonal >= KOVALEVA_SHARE), vertical >= KOVALEVA_SHARE, diagonal >= KOVALEVA_SHARE],
            ["vertical + diagonal", "vertical", "diagonal"],
            "heterogeneous",
        ).tolist()

    def to_frame(self) -> pd.DataFrame:
        """One row a head: layer, head, and a column a motif."""
        import pandas as pd

        layers, heads = np.indices(self.values.shape[1:])
        columns = {motif: self[motif].ravel() for motif in self.motifs}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})

    def chance_frame(self) -> pd.DataFrame:
        """One row a head and motif: layer, head, motif, score, and what is known of chance, uniform, excess, low, high
        (the interval of the excess), offset."""
        import pandas as pd

        motifs, layers, heads = (each.ravel() for each in np.indices(self.values.shape))
        columns: dict[str, np.ndarray] = {"layer": layers, "head": heads, "motif": np.array(self.motifs)[motifs]}
        columns["score"] = self.values.ravel()
        for name, values in (("chance", self.chance), ("uniform", self.uniform), ("excess", self.excess)):
            columns |= {} if values is None else {name: values.ravel()}
        if self.intervals is not None:
            columns |= {"low": self.intervals[..., 0].ravel(), "high": self.intervals[..., 1].ravel()}
        return pd.DataFrame(columns).sort_values(["layer", "head"], kind="stable", ignore_index=True)


def attention_to(
    model: Model,
    inputs: Inputs | TokenSequences | Float[Tensor, "image channel height width"],
    motifs: Iterable[str | Motif] | str | Motif | None = None,
    *,
    others: bool = False,
    intervals: bool = False,
    by_distance: bool = False,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> MotifScores:
    """Score every head for `motifs` (names or `Motif`s; for None all that the model's kind has) on sequences or images.

    `inputs` are ids `[batch, pos]`, a text, texts of equally many tokens, or `Inputs`, which say more of the sequences;
    for a model of images they are images as it reads them.
    `others` takes the chance of motifs of content from each head's mean pattern over the other sequences (with fewer
    than two it is NaN), and not from even attention. `intervals` adds intervals of the excess, `by_distance` adds
    `expected`. A motif is NaN, with the reason in `reasons`, where the inputs lack what it needs or no query sees such
    a key. `progress(done, total)` is called after each batch. Memory: one layer's patterns, and a mask a motif, for
    `batch_size` sequences; a pattern of every head for `others`. Raises `ValueError` for a model that reads
    vectors or shows no patterns, for ids that it does not have and for an unknown motif.
    """
    reader = HeadReader.of(model, "attention to motifs", images=None)
    inputs = inputs if isinstance(inputs, Inputs) else Inputs.of(reader, inputs)
    chosen = as_motifs(motifs, inputs.kind)
    tally = MotifTally(reader, inputs, chosen, others=others, by_distance=by_distance)
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
        reader.listen_to_patterns(batch.tokens, tally.batch(batch, start))
        if progress is not None:
            progress(start + len(batch), len(inputs))
    tally.finish(batch_size)
    return scores_of(tally, others=others, intervals=intervals)


def scores_of(tally: MotifTally, *, others: bool, intervals: bool) -> MotifScores:
    """The scores of a finished tally; arguments as in `attention_to`."""
    n_queries = tally.counts.sum(0)
    divisor = torch.where(n_queries > 0, n_queries, torch.nan)[:, None, None]
    chances = tally.even.clone()
    if others:
        of_content = torch.tensor(tally.content, dtype=torch.long)
        chances[:, of_content] = torch.nan if tally.others is None else tally.others[:, of_content]
    bounds = None
    if intervals:
        shape = tally.own.shape[1:]
        excess = (tally.own - chances).flatten(2).permute(1, 2, 0)  # [motif, head, unit]
        each = [
            ratio_intervals(sums.numpy(), counts.numpy()) for sums, counts in zip(excess, tally.counts.T, strict=True)
        ]
        bounds = np.stack(each).reshape(*shape, 2)
    expected = None
    if tally.by_distance:
        n_pos = tally.inputs.n_pos
        n_pairs = len(tally.inputs) * (n_pos - torch.arange(1 - n_pos, n_pos).abs())
        sums = torch.einsum("lho,mo->mlh", tally.at_distance / n_pairs, tally.targets_at_distance)
        expected = (sums / divisor).numpy()
    unlisted = [motif for motif in tally.motifs if MOTIFS.get(motif.name) is not motif]
    offsets = tally.best_offsets.get("fixed_offset")
    return MotifScores(
        motifs=tuple(motif.name for motif in tally.motifs),
        values=(tally.own.sum(0) / divisor).numpy(),
        n_queries=n_queries.long().numpy(),
        reasons=tally.reasons,
        chance=(chances.sum(0) / divisor).numpy(),
        uniform=(tally.even.sum(0) / divisor).numpy(),
        intervals=bounds,
        best_offsets=None if offsets is None else offsets.numpy(),
        expected=expected,
        thresholds={motif.name: motif.threshold for motif in unlisted},
        of_pattern=tuple(motif.name for motif in unlisted if motif.score is not None),
    )
