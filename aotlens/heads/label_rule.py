"""The one rule by which a head gets a label. Motif scores, the atlas, the induction circuit, declared scores and the
app's badges all read it from here.

A head may be labelled with a motif if

    1  its score reaches the motif's threshold, over at least `LEAST_QUERIES` queries
    2  it is `LEAST_EXCESS` above uniform attention, and so is its excess, whose interval lies above 0: 95%, over
       sequences or, of three or more, their documents, corrected by Bonferroni for the number of motifs and heads; a
       single sequence has none, and its heads no such label
    3  the same-answer control agrees (`aotlens.heads.same_answer`): with another token at the query, attention to the
       same keys falls by `LEAST_LOST` or more, with intervals above `MOST_LOST` over sequences and over the queries'
       tokens, if the motif's keys are those of the query's token, and by at most `MOST_LOST` if they are not. A head
       that looks a fixed distance back, one that compares the tokens before, and one that always attends to some
       token find the same keys, whatever the query's token is
    4  no other habit explains it: a place (the previous token, the first one, …) gets `LEAST_EXCESS` more attention
       than the largest other key of the same queries, a motif with a simpler habit (the innermost bracket that is
       still open: the last bracket) keeps half of its attention where that habit has other keys, and one that compares
       tokens without the control (retrieval) gets `LEAST_EXCESS` more than if each query asked for one of the tokens
       that it sees at random, by their frequency: a head that always attends to a frequent one does no retrieval

The excess is score − chance; of motifs with `asks` it is what the control takes away, the share that is lost × score:
on sequences that all repeat at one distance, chance cannot tell an induction head from one that looks that far back.
Of the motifs that a head may be labelled with, the one with the largest excess is its label, so that of two which hold
the narrower wins; a head that fits none is "mixed". Position 0 is set aside only if a start token stands there, on
which heads rest.

The last three conditions are left out for scores that do not have what they need: those of files made before they were
measured, and those of images and of prompts for the control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.heads.motifs import MOTIFS, Motif
from aotlens.statistics import LEAST_CLUSTERS, ratio_intervals

MIXED = "mixed"
#: The least excess of a score over chance for its motif to be a head's label.
LEAST_EXCESS = 0.1
#: The attention off the first position that must be left for a head that rests there to be labelled by it.
LEAST_ELSEWHERE = 0.1
#: The fewest queries, and queries with another token, on which a label may stand.
LEAST_QUERIES, LEAST_CONTROLS = 8, 4
#: The least share of attention that a motif with `asks` loses with another query token, and the most of the others.
LEAST_LOST, MOST_LOST = 0.5, 1 / 3
#: The level of all intervals of one table of labels together.
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelEvidence:
    """What the rule reads of scores of motifs (`aotlens.heads.MotifScores`)."""

    motifs: tuple[str, ...]
    """The names of the motifs."""
    values: Float64[np.ndarray, "motif layer head"]
    """NaN for a motif that could not be measured."""
    n_queries: Int64[np.ndarray, " motif"]
    """Queries that each score is a mean over (sequences, for a score of the pattern alone)."""
    chance: Float64[np.ndarray, "motif layer head"] | None = None
    """The score by chance, as at the head of this module; None if not known."""
    compared: Float64[np.ndarray, "motif layer head"] | None = None
    """The score over the queries that `chance` is of: the others see no other class of as many keys. None: `values`."""
    uniform: Float64[np.ndarray, "motif layer head"] | None = None
    """The score of uniform attention; None if not known."""
    intervals: Float64[np.ndarray, "motif layer head 2"] | None = None
    """The intervals of `excess`, over sequences or their documents; NaN where fewer than two sequences, or three
    documents, have queries that count, None without intervals."""
    low: Float64[np.ndarray, "motif layer head"] | None = None
    """The lower end of the interval of `excess` that labels need above 0: corrected for the number of motifs and heads;
    None without intervals, and in files made before."""
    control: Float64[np.ndarray, "motif layer head 2"] | None = None
    """Mean attention to the same keys before and after other tokens stand at the queries (the same-answer control,
    `aotlens.heads.same_answer`). None if not measured."""
    control_low: Float64[np.ndarray, "motif layer head"] | None = None
    """The lower end of the interval of the share that is lost, 1 − after ÷ before: the corrected one over sequences or
    documents, or that over the queries' tokens, if it is lower."""
    n_controls: Int64[np.ndarray, " motif"] | None = None
    """The number of queries with another token that see a key of the motif."""
    runner_up: Float64[np.ndarray, "motif layer head"] | None = None
    """The mean over queries of the largest attention to another key than a place's (`Motif.place`), a start token
    aside; NaN for other motifs, None if not measured."""
    apart: Float64[np.ndarray, "motif layer head"] | None = None
    """Attention to the keys of a motif where its simpler habit (`Motif.simpler`) has others; NaN without enough of
    these queries, None if not measured."""
    by_frequency: Float64[np.ndarray, "motif layer head"] | None = None
    """Attention to the keys of a motif that compares tokens, without the control, if each query asked for one of the
    classes that it sees at random, by how often they are asked for; NaN for other motifs, None if not measured."""
    starts: bool = True
    """Whether a start token stands at position 0, on which heads rest; True in files made before this was measured."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """The thresholds of motifs that are not those of `MOTIFS`, by name."""
    of_pattern: tuple[str, ...] = ()
    """Motifs that are not those of `MOTIFS` and are scores of the pattern alone."""
    asks: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether the keys of motifs that are not those of `MOTIFS` are those of the query's token, by name."""

    @property
    def excess(self) -> Float64[np.ndarray, "motif layer head"]:
        """Score − chance over the queries that have a chance; the score itself where chance is not known."""
        return self.values if self.chance is None else self._compared - self.chance

    @property
    def _compared(self) -> Float64[np.ndarray, "motif layer head"]:
        return self.values if self.compared is None else self.compared


def confidence(n_tests: int) -> float:
    """Return the confidence of each interval, by Bonferroni, with which `n_tests` of them hold together at 95%."""
    return 1 - LEVEL / max(n_tests, 1)


def units_of_labels(clusters: Int64[np.ndarray, " unit"] | None) -> Int64[np.ndarray, " unit"] | None:
    """Return the documents that the intervals of labels are over; None, for units themselves, if there are fewer than
    three: of one document a label is one of its windows."""
    return None if clusters is None or len(np.unique(clusters)) < LEAST_CLUSTERS else clusters


def corrected_intervals(
    sums: Float64[np.ndarray, "unit layer head"],
    counts: Float64[np.ndarray, " unit"],
    clusters: Int64[np.ndarray, " unit"] | None = None,
    *,
    n_tests: int,
) -> Float64[np.ndarray, "layer head 2"]:
    """Return the interval of Σ sums ÷ Σ counts of every head, over units or their clusters, corrected for `n_tests`."""
    rows, groups = sums.reshape(len(sums), -1).T, units_of_labels(clusters)
    return ratio_intervals(rows, counts, groups, confidence=confidence(n_tests)).reshape(*sums.shape[1:], 2)


def attends(
    excess: Float64[np.ndarray, "unit layer head"],
    counts: Float64[np.ndarray, " unit"],
    clusters: Int64[np.ndarray, " unit"] | None = None,
) -> Bool[np.ndarray, "layer head"]:
    """Mark the heads whose attention above chance, summed over the queries of each unit, is enough for "attends to":
    the second condition of scores that are attention × logits, for which a strong output is enough otherwise."""
    low = corrected_intervals(excess, counts, clusters, n_tests=excess[0].size)[..., 0]
    with np.errstate(invalid="ignore"):
        return (excess.sum(0) / counts.sum() >= LEAST_EXCESS) & (low > 0)


def of_pattern(scores: LabelEvidence) -> Bool[np.ndarray, " motif"]:
    """Mark the motifs that are scores of the pattern alone."""
    known = [MOTIFS.get(name) for name in scores.motifs]
    listed = [
        name not in scores.thresholds and motif is not None and motif.score is not None
        for name, motif in zip(scores.motifs, known, strict=True)
    ]
    return np.array(listed, dtype=bool) | np.isin(scores.motifs, scores.of_pattern)


def asks(scores: LabelEvidence, name: str) -> bool | None:
    """Return whether a motif's keys are those of the query's token; None if that is not known."""
    motif = MOTIFS.get(name)
    return scores.asks.get(name, None if motif is None else motif.asks_token)


def thresholds(scores: LabelEvidence, threshold: float | None = None) -> Float64[np.ndarray, " motif"]:
    """Return the score from which each motif may be a label; `threshold` replaces those of motifs with keys."""
    listed = {name: motif.threshold for name, motif in MOTIFS.items()} | dict(scores.thresholds)
    own = np.array([listed.get(name, Motif.threshold) for name in scores.motifs], dtype=np.float64)
    return own if threshold is None else np.where(of_pattern(scores), own, threshold)


def rests(scores: LabelEvidence, threshold: float | None = None) -> Bool[np.ndarray, "layer head"]:
    """Return heads whose attention to a start token at position 0 reaches the threshold."""
    if "first_token" not in scores.motifs or not scores.starts:
        return np.zeros(scores.values.shape[1:], dtype=bool)
    place = scores.motifs.index("first_token")
    with np.errstate(invalid="ignore"):
        return scores.values[place] >= thresholds(scores, threshold)[place]


def elsewhere(scores: LabelEvidence, threshold: float | None = None) -> Float64[np.ndarray, "motif layer head"]:
    """Return the attention by which scores are divided: of heads that rest what does not go to the first position, for
    motifs with keys other than that; else 1."""
    share = np.ones(scores.values.shape)
    if "first_token" in scores.motifs:
        left = 1 - scores.values[scores.motifs.index("first_token")]
        share = share * np.where(rests(scores, threshold) & (left >= LEAST_ELSEWHERE), left, 1.0)
        share[(np.array(scores.motifs) == "first_token") | of_pattern(scores)] = 1.0
    return share


def lost(scores: LabelEvidence) -> Float64[np.ndarray, "motif layer head"]:
    """Return the share of attention that the same-answer control takes away; NaN for motifs without it."""
    if scores.control is None or scores.n_controls is None:
        return np.full(scores.values.shape, np.nan)
    before, after = np.moveaxis(scores.control, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(before > 0, 1 - after / before, 0.0)
    return np.where((scores.n_controls >= LEAST_CONTROLS)[:, None, None], share, np.nan)


def label_excess(scores: LabelEvidence) -> Float64[np.ndarray, "motif layer head"]:
    """Return the excess that labels are ranked by, as at the head of this module."""
    excess, share = scores.excess.copy(), lost(scores)
    for place, name in enumerate(scores.motifs):
        if asks(scores, name) and scores.control is not None:
            excess[place] = scores.values[place] * np.nan_to_num(share[place])
    return excess


def above_chance(scores: LabelEvidence, threshold: float | None = None) -> Bool[np.ndarray, "motif layer head"]:
    """Return where the second and the third condition hold, whatever the score; of scores of the pattern alone, all."""
    shape, share, excess = scores.values.shape, lost(scores), label_excess(scores)
    low = scores.low if scores.low is not None else None if scores.intervals is None else scores.intervals[..., 0]
    with np.errstate(invalid="ignore"):
        holds = np.ones(shape, dtype=bool) if low is None else low > 0
        for place, name in enumerate(scores.motifs):
            asking = asks(scores, name)
            if asking is None or scores.control is None:
                continue
            if asking:
                assert scores.control_low is not None
                holds[place] = (share[place] >= LEAST_LOST) & (scores.control_low[place] > MOST_LOST)
            else:  # where no query could get another token, nothing speaks against it
                holds[place] &= ~(share[place] > MOST_LOST)
        left = elsewhere(scores, threshold)
        holds &= excess / left >= LEAST_EXCESS
        if scores.uniform is not None:
            holds &= scores.values / left - scores.uniform >= LEAST_EXCESS
        if scores.runner_up is not None:
            holds &= ~((scores.values - scores.runner_up) / left < LEAST_EXCESS)
        if scores.by_frequency is not None:
            holds &= ~((scores.values - scores.by_frequency) / left < LEAST_EXCESS)
        if scores.apart is not None:
            holds &= ~(scores.apart < scores.values * LEAST_LOST)
    holds &= (scores.n_queries >= LEAST_QUERIES)[:, None, None] | _by_sequence(scores)[:, None, None]
    return holds | of_pattern(scores)[:, None, None]


def qualifies(scores: LabelEvidence, threshold: float | None = None) -> Bool[np.ndarray, "motif layer head"]:
    """Return the motifs that may be a head's label; `threshold` replaces those of motifs with keys."""
    with np.errstate(invalid="ignore"):
        reached = scores.values / elsewhere(scores, threshold) >= thresholds(scores, threshold)[:, None, None]
    return reached & above_chance(scores, threshold)


def labelled(scores: LabelEvidence, threshold: float | None = None) -> Int64[np.ndarray, "layer head"]:
    """Return the place of each head's motif among `scores.motifs`; −1 for "mixed"."""
    pattern_alone, names = of_pattern(scores), np.array(scores.motifs)
    holds = qualifies(scores, threshold)
    with_keys = holds & ~pattern_alone[:, None, None]
    excess = np.nan_to_num(label_excess(scores)) / elsewhere(scores, threshold)
    ranked = np.where(with_keys, excess, -np.inf)
    first = (names == "first_token")[:, None, None]
    if scores.starts:  # what a head does besides resting is its label
        ranked = np.where(first & (with_keys & ~first).any(0), -np.inf, ranked)
    for place, name in enumerate(scores.motifs):
        for other in MOTIFS[name].yields_to if name in MOTIFS and name not in scores.thresholds else ():
            if other in scores.motifs:
                explained = with_keys[scores.motifs.index(other)] & (
                    excess[place] - excess[scores.motifs.index(other)] < LEAST_EXCESS
                )
                ranked[place] = np.where(explained, -np.inf, ranked[place])
    ranked[pattern_alone] = np.where(holds[pattern_alone] & ~with_keys.any(0), scores.values[pattern_alone], -np.inf)
    return np.where(np.isfinite(ranked).any(0), ranked.argmax(0), -1)


def _by_sequence(scores: LabelEvidence) -> Bool[np.ndarray, " motif"]:
    """Mark the motifs that are counted by sequence, each of several queries: their `offsets` leave out rare ones."""
    return np.array([name in MOTIFS and MOTIFS[name].offsets is not None for name in scores.motifs])
