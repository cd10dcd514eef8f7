"""The engine: how much of every head's attention goes where a motif would have it.

For a motif with targets T, the (query, key) pairs of its mask, and the n queries that count,

    score       (1/n) Σ_{(q, k) ∈ T} pattern[q, k]                    0 to 1 for softmax
    uniform     (1/n) Σ_{(q, k) ∈ T} 1 ÷ v_q,    v_q = the keys that q sees: uniform attention's score
    chance      of a motif of position `uniform`; of a motif of content the score of the head's mean pattern over the
                *other* sequences, position by position, with this sequence's own mask; of one that compares tokens
                (`Motif.classes`: induction, duplicate token) the mean share that the same query gives to *other*
                classes of equal tokens that occurred as often before it, plus what the same difference, target − other
                classes, is in that mean pattern: classes do not stand in the same places
    expected    (1/n) Σ_{(q, k) ∈ T} m(q − k),   m(δ) = the head's mean attention over all pairs at distance δ

A head that looks three tokens back finds many an open bracket there; only attention above chance speaks of brackets.
A head whose pattern depends on positions alone has no excess over chance in any motif of content. (Shuffled tokens are
no chance: an induction head does induction there too.) Equal tokens share a softmax, so that attention to m copies of
one token is not what m keys get that differ: uniform attention is no chance for copies. Queries that see no other class
of as many keys are in the score and not in its excess (`n_compared` counts those that are). On repeated random tokens
all sequences repeat alike, so that the mean pattern is the head itself: there chance of what remains is `uniform`.

Intervals are of the excess, score − chance over the queries that have a chance: 95%, over sequences, or over their
documents where these are known, since windows of one document depend on each other (`aotlens.heads.tally`,
`aotlens.statistics.ratio_intervals`). Of untrained heads with sharp patterns and learned positions, on 60 windows of 5
novels (nominal: 2.5% on either side; beside uniform attention it was up to 57%): for induction 2 to 3% lie wholly
below 0 and 2 to 3% above, 5% and 8% where the embeddings are trained ones. For duplicate tokens 3 to 23% lie below and
2 to 15% above, and up to half below without positions: x W_QK xᵀ, of a token with itself, has a mean of its own in
every head, trained or not. That is an excess, of .004 to .007 there, and no sign of training: an interval of that motif
that leaves out 0 says that the head is not at chance, and a label asks for .1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import MOTIFS, Motif, as_motifs
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.tally import MotifTally
from aotlens.results import Result, top_head
from aotlens.statistics import as_clusters, ratio_intervals

if TYPE_CHECKING:
    import pandas as pd

MIXED = "mixed"
#: The least excess of a score over chance for its motif to be a head's label.
LEAST_EXCESS = 0.1
#: The attention off the first position that must be left for a head that rests there to be labelled by it.
LEAST_ELSEWHERE = 0.1
#: Attention from which a head is vertical or diagonal, and the least of each where it is both (`kovaleva`).
KOVALEVA_SHARE, KOVALEVA_LEAST = 0.4, 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class MotifScores(Result):
    """The score of every head for each motif: for motifs with a mask its mean attention there, 0 to 1 for softmax."""

    motifs: tuple[str, ...]
    """The names of the motifs."""
    values: Float64[np.ndarray, "motif layer head"]
    """NaN for a motif that could not be measured."""
    n_queries: Int64[np.ndarray, " motif"]
    """Queries that each score is a mean over (sequences, for a score of the pattern alone)."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reason why a motif is NaN, by its name."""
    chance: Float64[np.ndarray, "motif layer head"] | None = None
    """The score by chance, as at the head of this module; None where it is not known."""
    compared: Float64[np.ndarray, "motif layer head"] | None = None
    """The score over the queries that `chance` is of: the others see no other class of as many keys. None: `values`."""
    n_compared: Int64[np.ndarray, " motif"] | None = None
    """The number of these queries; None: `n_queries`."""
    uniform: Float64[np.ndarray, "motif layer head"] | None = None
    """The score of uniform attention; None where it is not known."""
    intervals: Float64[np.ndarray, "motif layer head 2"] | None = None
    """The intervals of `excess`, over sequences or their documents; NaN where fewer than two sequences, or three
    documents, have queries that count, None where not asked for."""
    best_offsets: Int64[np.ndarray, "layer head"] | None = None
    """The offset (key − query) behind `fixed_offset`; None where that was not measured."""
    expected: Float64[np.ndarray, "motif layer head"] | None = None
    """The average attention at the same distances, whatever is there; None where it was not asked for."""
    start: int | None = None
    """The start token of the random sequences of `motif_scores`; None where there was none."""
    about: str = ""
    """The description of what was read."""
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
        """Return the head with the highest score, and that score; None for a motif that could not be measured."""
        scores = self[motif]
        if not np.isfinite(scores).any():
            return None
        layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
        return (int(layer), int(head)), float(scores[layer, head])

    @property
    def excess(self) -> Float64[np.ndarray, "motif layer head"]:
        """Score − chance over the queries that have a chance; the score itself where chance is not known."""
        return self.values if self.chance is None else self._compared - self.chance

    @property
    def _compared(self) -> Float64[np.ndarray, "motif layer head"]:
        return self.values if self.compared is None else self.compared

    def labels(self, threshold: float | None = None) -> list[list[str]]:
        """Label each layer and head with a motif, or "mixed".

        Of the motifs with keys whose score reaches `threshold` (None: each motif's own) and exceeds chance by .1, the
        one with the largest excess, so that of two that hold the narrower wins; where there is none, a score of the
        pattern alone that reaches its own threshold, such as `uniform_attention`. Attention to the first position is
        where many heads rest when there is nothing for them to do: of a head whose `first_token` reaches its threshold,
        scores and excess are divided by the attention that goes elsewhere, if that is .1 at least, and only a head
        that does nothing else is labelled `first_token` (`resting` tells the others).
        """
        return np.array([*self.motifs, MIXED])[self._labelled(threshold)].tolist()  # −1 is the last

    def resting(self, threshold: float | None = None) -> Bool[np.ndarray, "layer head"]:
        """Return heads that rest on the first position, and have another label for the rest of their attention."""
        place = self.motifs.index("first_token") if "first_token" in self.motifs else -1
        labelled = self._labelled(threshold)
        return self.rests(threshold) & (labelled >= 0) & (labelled != place)

    def rests(self, threshold: float | None = None) -> Bool[np.ndarray, "layer head"]:
        """Return heads whose attention to the first position reaches `threshold` (None: that motif's own)."""
        if "first_token" not in self.motifs:
            return np.zeros(self.values.shape[1:], dtype=bool)
        with np.errstate(invalid="ignore"):
            return self["first_token"] >= (self._threshold("first_token") if threshold is None else threshold)

    def margins(self, threshold: float | None = None) -> Float64[np.ndarray, "layer head"]:
        """Return the margin by which the excess of the label beats the largest one of the other motifs with keys, the
        first position aside for a head that rests there; of a score of the pattern alone, how far it is above its
        threshold; NaN for "mixed"."""
        margins = np.full(self.values.shape[1:], np.nan)
        labelled, resting = self._labelled(threshold), self.resting(threshold)
        with_keys = np.array([not self._of_pattern(name) for name in self.motifs])
        first = np.array(self.motifs) == "first_token"
        excess = np.where(with_keys[:, None, None], np.nan_to_num(self.excess, nan=-np.inf), -np.inf)
        elsewhere = np.where(resting, self._elsewhere(threshold), 1.0)
        excess = np.where(first[:, None, None] & resting, -np.inf, excess / elsewhere)
        for layer, head in zip(*np.nonzero(labelled >= 0), strict=True):
            motif = labelled[layer, head]
            if with_keys[motif]:
                others = np.delete(excess[:, layer, head], motif)
                margins[layer, head] = excess[motif, layer, head] - max(others.max(initial=-np.inf), 0.0)
            else:
                margins[layer, head] = self.values[motif, layer, head] - self._threshold(self.motifs[motif])
        return margins

    def _elsewhere(self, threshold: float | None) -> Float64[np.ndarray, "layer head"]:
        """The attention that does not go to the first position, of heads that rest there; 1 for the others."""
        if "first_token" not in self.motifs:
            return np.ones(self.values.shape[1:])
        elsewhere = 1 - self["first_token"]
        return np.where(self.rests(threshold) & (elsewhere >= LEAST_ELSEWHERE), elsewhere, 1.0)

    def _labelled(self, threshold: float | None) -> Int64[np.ndarray, "layer head"]:
        """The place of each head's motif; −1 for none."""
        of_pattern = np.array([self._of_pattern(name) for name in self.motifs])
        own = np.array([self._threshold(name) if threshold is None else threshold for name in self.motifs])
        own[of_pattern] = [self._threshold(name) for name in np.array(self.motifs)[of_pattern]]
        first = (np.array(self.motifs) == "first_token")[:, None, None]
        elsewhere = np.where(first, 1.0, self._elsewhere(threshold))
        with np.errstate(invalid="ignore"):
            reached = self.values / np.where(of_pattern[:, None, None], 1.0, elsewhere) >= own[:, None, None]
            with_keys = reached & ~of_pattern[:, None, None] & (self.excess / elsewhere >= LEAST_EXCESS)
        ranked = np.where(with_keys, np.nan_to_num(self.excess, nan=0.0) / elsewhere, -np.inf)
        ranked = np.where(first & (with_keys & ~first).any(0), -np.inf, ranked)  # what it does besides is its label
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
        """Classify each layer and head after Kovaleva et al. 2019, by attention rather than by eye.

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
        """Return one row a head: layer, head, and a column a motif."""
        import pandas as pd

        layers, heads = np.indices(self.values.shape[1:])
        columns = {motif: self[motif].ravel() for motif in self.motifs}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})

    def chance_frame(self) -> pd.DataFrame:
        """Return one row a head and motif: layer, head, motif, score, and what is known of chance, compared (the score
        over the queries that chance is of), uniform, excess, low, high (the interval of the excess)."""
        import pandas as pd

        motifs, layers, heads = (each.ravel() for each in np.indices(self.values.shape))
        columns: dict[str, np.ndarray] = {"layer": layers, "head": heads, "motif": np.array(self.motifs)[motifs]}
        columns["score"] = self.values.ravel()
        known = {"chance": self.chance, "compared": self.compared, "uniform": self.uniform, "excess": self.excess}
        for name, values in known.items():
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
    clusters: Iterable[Hashable] | None = None,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> MotifScores:
    """Score every head for `motifs` (names or `Motif`s; for None all that the model's kind has) on sequences or images.

    `inputs` are ids `[batch, pos]`, a text, texts of equally many tokens, or `Inputs`, which say more of the sequences;
    for a model of images they are images as it reads them. `others` takes the chance of motifs of content without
    classes from each head's mean pattern over the other sequences (with fewer than two it is NaN), and not from even
    attention. `intervals` adds intervals of the excess, over `clusters`, the document of each sequence, where they are
    given; `by_distance` adds `expected`. A motif is NaN, with the reason in `reasons`, where the inputs lack what it
    needs or no query sees such a key. `progress(done, total)` is called after each batch. Memory: one layer's patterns,
    and a mask a motif, for `batch_size` sequences; a pattern of every head for `others`. Raises `ValueError` for a
    model that reads vectors or shows no patterns, for ids that it does not have and for an unknown motif.
    """
    reader = HeadReader.of(model, "attention to motifs", images=None)
    inputs = inputs if isinstance(inputs, Inputs) else Inputs.of(reader, inputs)
    chosen = as_motifs(motifs, inputs.kind)
    groups = as_clusters(clusters, len(inputs))
    tally = MotifTally(reader, inputs, chosen, others=others, by_distance=by_distance, clusters=groups)
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
        reader.listen_to_patterns(batch.tokens, tally.batch(batch, start))
        if progress is not None:
            progress(start + len(batch), len(inputs))
    tally.finish(batch_size)
    return scores_of(tally, others=others, intervals=intervals)


def scores_of(tally: MotifTally, *, others: bool, intervals: bool) -> MotifScores:
    """Return the scores of a finished tally; arguments as in `attention_to`."""
    n_queries = tally.counts.sum(0)
    divisor = torch.where(n_queries > 0, n_queries, torch.nan)[:, None, None]
    chances = tally.even.clone()
    if others:
        of_content = torch.tensor(tally.content, dtype=torch.long)
        chances[:, of_content] = torch.nan if tally.others is None else tally.others[:, of_content]
    compared, counts = tally.own.clone(), tally.counts.clone()
    of_places = 0.0 if tally.others is None else tally.others[:, tally.with_classes]
    chances[:, tally.with_classes], compared[:, tally.with_classes] = tally.matched + of_places, tally.compared
    counts[:, tally.with_classes] = tally.compared_counts
    n_compared = counts.sum(0)
    divisor_compared = torch.where(n_compared > 0, n_compared, torch.nan)[:, None, None]
    bounds = None
    if intervals:
        shape = tally.own.shape[1:]
        excess = (compared - chances).flatten(2).permute(1, 2, 0)  # [motif, head, unit]
        groups = np.arange(tally.n_units) if tally.clustered else None
        each = [ratio_intervals(sums.numpy(), n.numpy(), groups) for sums, n in zip(excess, counts.T, strict=True)]
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
        chance=(chances.sum(0) / divisor_compared).numpy(),
        compared=(compared.sum(0) / divisor_compared).numpy(),
        n_compared=n_compared.long().numpy(),
        uniform=(tally.even.sum(0) / divisor).numpy(),
        intervals=bounds,
        best_offsets=None if offsets is None else offsets.numpy(),
        expected=expected,
        thresholds={motif.name: motif.threshold for motif in unlisted},
        of_pattern=tuple(motif.name for motif in unlisted if motif.score is not None),
    )
