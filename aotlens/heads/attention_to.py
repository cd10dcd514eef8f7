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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress
from aotlens.heads import label_rule
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import MOTIFS, Motif, as_motifs
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.same_answer import same_answer
from aotlens.heads.tally import MotifTally
from aotlens.results import Result, table, top_head
from aotlens.statistics import as_clusters, ratio_intervals

if TYPE_CHECKING:
    import pandas as pd

#: Attention from which a head is vertical or diagonal, and the least of each where it is both (`kovaleva`).
KOVALEVA_SHARE, KOVALEVA_LEAST = 0.4, 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class MotifScores(label_rule.LabelEvidence, Result):
    """The score of every head for each motif: for motifs with a mask its mean attention there, 0 to 1 for softmax."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reason why a motif is NaN, by its name."""
    n_compared: Int64[np.ndarray, " motif"] | None = None
    """The number of these queries; None: `n_queries`."""
    best_offsets: Int64[np.ndarray, "layer head"] | None = None
    """The offset (key − query) behind `fixed_offset`; None where that was not measured."""
    expected: Float64[np.ndarray, "motif layer head"] | None = None
    """The average attention at the same distances, whatever is there; None where it was not asked for."""
    start: int | None = None
    """The start token of the random sequences of `motif_scores`; None where there was none."""
    about: str = ""
    """The description of what was read."""

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

    def labels(self, threshold: float | None = None) -> list[list[str]]:
        """Label each layer and head with a motif, or "mixed", by the rule of `aotlens.heads.label_rule`.

        `threshold` replaces the motifs' own; not that of a score of the pattern alone, such as `uniform_attention`,
        which is the label of a head for which no motif with keys qualifies. If a start token stands first, a head whose
        `first_token` reaches its threshold rests there when it has nothing to do: its scores and excess are divided by
        the attention that goes elsewhere, if that is .1 at least, and only a head that does nothing else is labelled
        `first_token` (`resting` marks the others).
        """
        return np.array([*self.motifs, label_rule.MIXED])[label_rule.labelled(self, threshold)].tolist()  # −1: the last

    def qualifies(self, motif: str, threshold: float | None = None) -> Bool[np.ndarray, "layer head"]:
        """Return the heads that may be labelled with a motif by that rule, whether or not another one is clearer."""
        self[motif]
        return label_rule.qualifies(self, threshold)[self.motifs.index(motif)]

    def above_chance(self, motif: str) -> Bool[np.ndarray, "layer head"]:
        """Return the heads whose attention to a motif's keys is above chance, and due to it, by that rule, however low
        their score."""
        self[motif]
        return label_rule.above_chance(self)[self.motifs.index(motif)]

    def lost(self, motif: str) -> Float64[np.ndarray, "layer head"]:
        """Return the share of attention to a motif's keys that is gone with another token at the query: the same-answer
        control. NaN where it was not measured."""
        self[motif]
        return label_rule.lost(self)[self.motifs.index(motif)]

    def resting(self, threshold: float | None = None) -> Bool[np.ndarray, "layer head"]:
        """Return heads that rest on the first position, and have another label for the rest of their attention."""
        place = self.motifs.index("first_token") if "first_token" in self.motifs else -1
        labelled = label_rule.labelled(self, threshold)
        return self.rests(threshold) & (labelled >= 0) & (labelled != place)

    def rests(self, threshold: float | None = None) -> Bool[np.ndarray, "layer head"]:
        """Return heads whose attention to a start token at position 0 reaches `threshold` (None: that motif's own)."""
        return label_rule.rests(self, threshold)

    def margins(self, threshold: float | None = None) -> Float64[np.ndarray, "layer head"]:
        """Return the margin by which the excess of the label beats the largest one of the other motifs with keys, the
        first position aside for a head that rests there; of a score of the pattern alone, how far it is above its
        threshold; NaN for "mixed"."""
        margins = np.full(self.values.shape[1:], np.nan)
        labelled, resting = label_rule.labelled(self, threshold), self.resting(threshold)
        pattern_alone, own = label_rule.of_pattern(self), label_rule.thresholds(self, threshold)
        excess = label_rule.label_excess(self) / np.where(resting, label_rule.elsewhere(self, threshold), 1.0)
        excess = np.where(pattern_alone[:, None, None], -np.inf, np.nan_to_num(excess, nan=-np.inf))
        first = np.array(self.motifs) == "first_token"
        excess = np.where(first[:, None, None] & resting, -np.inf, excess)
        for layer, head in zip(*np.nonzero(labelled >= 0), strict=True):
            motif = labelled[layer, head]
            if pattern_alone[motif]:
                margins[layer, head] = self.values[motif, layer, head] - own[motif]
            else:
                others = np.delete(excess[:, layer, head], motif)
                margins[layer, head] = excess[motif, layer, head] - max(others.max(initial=-np.inf), 0.0)
        return margins

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
        """Return a table with one row per head: layer, head, and a column per motif."""
        return table(("layer", "head"), {motif: self[motif] for motif in self.motifs})

    def chance_frame(self) -> pd.DataFrame:
        """Return a table with one row per head and motif: layer, head, motif, score, and what is known of chance,
        compared (the score over the queries that chance is of), uniform, excess, low, high (the interval of the
        excess)."""
        columns: dict[str, Any] = {"score": self.values}
        columns |= {name: getattr(self, name) for name in ("chance", "compared", "uniform", "excess")}
        if self.intervals is not None:
            columns |= {"low": self.intervals[..., 0], "high": self.intervals[..., 1]}
        known = {name: np.moveaxis(values, 0, -1) for name, values in columns.items() if values is not None}
        frame = table(("layer", "head", "motif"), known)
        return frame.assign(motif=np.array(self.motifs)[frame["motif"]])


def attention_to(
    model: Model,
    inputs: Inputs | TokenSequences | Float[Tensor, "image channel height width"],
    motifs: Iterable[str | Motif] | str | Motif | None = None,
    *,
    others: bool | None = None,
    intervals: bool = True,
    by_distance: bool = False,
    clusters: Iterable[Hashable] | None = None,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> MotifScores:
    """Score every head for `motifs` (names or `Motif`s; for None all that the model's kind has) on sequences or images.

    `inputs` are ids `[batch, pos]`, a text, texts of equally many tokens, or `Inputs`, which say more of the sequences;
    for a model of images they are images as it reads them. `others` takes the chance of motifs of content from each
    head's mean pattern over the other sequences (with fewer than two it is NaN), and not from uniform attention (None:
    if there are two or more). `intervals` adds what labels need: intervals of the excess, over `clusters`, the document
    of each sequence, if they are given, and of tokens the same-answer control, another two passes over at most 64
    sequences; without it `labels` reads scores alone. `by_distance` adds `expected`. A motif is NaN, with the reason in
    `reasons`, where the inputs lack what it needs or no query sees such a key. `progress(done, total)` is called after
    each batch. Memory: one layer's patterns, and a mask a motif, for `batch_size` sequences; a pattern of every head
    for `others`. Raises `ValueError` for a model that reads vectors or shows no patterns, for ids that it does not have
    and for an unknown motif.
    """
    reader = HeadReader.of(model, "attention to motifs", images=None)
    inputs = inputs if isinstance(inputs, Inputs) else Inputs.of(reader, inputs)
    groups = as_clusters(clusters, len(inputs))
    others = len(inputs) > 1 if others is None else others
    resolved = as_motifs(motifs, inputs.kind)
    tally = MotifTally(reader, inputs, resolved, others=others, by_distance=by_distance, clusters=groups)
    tally.read(batch_size, progress)
    return scores_of(tally, others=others, intervals=intervals, batch_size=batch_size)


def scores_of(tally: MotifTally, *, others: bool, intervals: bool, batch_size: int = 8) -> MotifScores:
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
    evidence: dict[str, Any] = {}
    if intervals:
        excess = compared - chances
        together = label_rule.confidence(int((n_queries > 0).sum()) * tally.own[0, 0].numel())
        evidence = {
            "intervals": _bounds(tally, excess, counts) * (np.nan if tally.few_documents else 1.0),
            "low": _bounds(tally, excess, counts, together)[..., 0],
        }
        if tally.inputs.kind == "tokens":
            control = same_answer(
                tally.reader, tally.inputs, tally.motifs, tally.best_offsets, tally.units, batch_size=batch_size
            )
            n = control.counts.sum(0)
            means = torch.stack([control.before, control.after], -1).sum(0) / n.clamp(min=1)[:, None, None, None]
            evidence |= {"control": means.numpy(), "n_controls": n.long().numpy()}
            low = _bounds(tally, control.before - control.after, control.before, together)[..., 0]
            before, after = control.by_token.flatten(2).transpose(1, 2).numpy()  # [motif · head, token]
            low = np.minimum(low, ratio_intervals(before - after, before)[:, 0].reshape(low.shape))
            evidence |= {"control_low": low, "by_frequency": control.by_frequency.numpy()}
            evidence |= {"runner_up": control.runner_up.numpy(), "apart": control.apart.numpy()}
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
        starts=tally.inputs.starts,
        **evidence,
        best_offsets=None if offsets is None else offsets.numpy(),
        expected=expected,
        thresholds={motif.name: motif.threshold for motif in unlisted},
        of_pattern=tuple(motif.name for motif in unlisted if motif.score is not None),
        asks={motif.name: motif.asks_token for motif in unlisted},
    )


def _bounds(
    tally: MotifTally,
    sums: Float64[Tensor, "unit motif layer head"],
    counts: Float64[Tensor, "unit motif"] | Float64[Tensor, "unit motif layer head"],
    confidence: float = 0.95,
) -> Float64[np.ndarray, "motif layer head 2"]:
    """The intervals of sums ÷ counts over the tally's units."""
    of_heads = counts if counts.ndim == sums.ndim else counts[..., None, None].expand_as(sums)
    rows, divisors = (values.flatten(1).T.numpy() for values in (sums, of_heads))  # [motif · head, unit]
    groups = np.arange(tally.n_units) if tally.clustered else None
    return ratio_intervals(rows, divisors, groups, confidence=confidence).reshape(*sums.shape[1:], 2)
