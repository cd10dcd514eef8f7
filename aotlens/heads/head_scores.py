"""The scores of heads that are more than attention to keys: one declaration each, with source, null and threshold.

    anti_induction, copy_suppression   lower what they attend to (`aotlens.heads.key_logits`)
    output_norm, written_norm, first_value_norm   inactive heads (`aotlens.heads.score_measures`)
    name_mover                         raises or lowers the answer of a prompt (`aotlens.heads.key_logits`)
    function_vector                    carries a task from prompt to prompt (`aotlens.heads.key_logits`)
    fuzzy_induction, delimiter         shares of attention (`aotlens.heads.score_measures`)
    copy_suppression_ov, successor     from the weights alone (`aotlens.heads.score_measures`)
    positional_share                   what scores vary with (`aotlens.heads.score_measures`)

A motif (`aotlens.heads.motifs`) says where a head looks; a score says what comes of it. A head has a score that reaches
its threshold if the interval of the excess over chance, over sequences, words or pairs and corrected for the number of
scores and heads, is on that side of 0; and, if the sentence says that it attends to something, if it does so by the
rule of labels (`aotlens.heads.label_rule`): a head of uniform attention with a strong output has none of them. A new
score is one more entry of `HEAD_SCORES`: `head_scores`, `aotlens head-scores`, the atlas, its search and the sentence
about a head take it from there. Each reads what it needs (`ScoreInputs`), in at most two forward passes over the
sequences, but for `function_vector`, which takes a pass a head over its prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.conventions import HeadLike, Progress, as_head, require_seed
from aotlens.heads.inputs import MeasuredScore, Missing, ScoreInputs
from aotlens.heads.key_logits import anti_induction, copy_suppression, function_vector, name_mover
from aotlens.heads.label_rule import LEAST_EXCESS, corrected_intervals
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.score_measures import (
    INACTIVE,
    delimiter,
    first_value_norm,
    fuzzy_induction,
    output_norm,
    positional_share,
    successor,
    suppressed_share,
    written_norm,
)
from aotlens.results import Result, table, top_head
from aotlens.statistics import as_clusters

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.data import PromptPairs


@dataclass(frozen=True, kw_only=True)
class HeadScore:
    """Something that a head may do, as a number beside its chance."""

    name: str
    """The name in code, files and tables: lower-case letters, digits and underscores."""
    sentence: str
    """The behaviour of a head that has it, in a sentence."""
    source: str
    """The paper that the score is from."""
    null: str
    """The null that chance is of, in words."""
    unit: str
    measure: Callable[[ScoreInputs], MeasuredScore]
    threshold: float | None = None
    """The score from which a head has it; None for a number of which nothing is said in a sentence."""
    low: bool = False
    """Whether a head has it whose score is at most the threshold."""
    margin: float = 0.0
    """The least by which it has to exceed chance, where chance itself may reach the threshold."""
    beside: str = ""
    """The score whose value is given next to this one in the sentence, as the absolute one next to a ratio."""
    opposite: str = ""
    """The behaviour of a head whose score is at most −threshold, in a sentence, where that has a name."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"name={self.name!r}: expected lower-case letters, digits and underscores.")

    def sentence_of(self, value: float, chance: float, interval: tuple[float, float] | None = None) -> str:
        """Describe a head whose score reaches the threshold, on that side of chance, with the `interval` of the excess
        (None: not known); an empty string for another head."""
        low, high = (value - chance, value - chance) if interval is None else interval
        if self.threshold is None:
            return ""
        if self.low:
            return self.sentence if value <= self.threshold and high < 0 else ""
        if value >= self.threshold and value > chance + self.margin and low > 0:
            return self.sentence
        return self.opposite if value <= -self.threshold and high < 0 else ""


#: Every score by its name.
HEAD_SCORES: dict[str, HeadScore] = {
    score.name: score
    for score in (
        HeadScore(
            name="anti_induction", unit="logits", measure=anti_induction, threshold=0.5,
            sentence="It attends to what followed an earlier occurrence of the query's token, and lowers its logit.",
            source="Olsson et al. 2022 (anti-copying prefix-search heads); McDougall et al. 2310.04625",
            null="the logits of the other tokens of the sequence, by the same attention and values",
        ),
        HeadScore(
            name="output_norm", unit="of its layer's mean", measure=output_norm, threshold=INACTIVE, low=True,
            sentence="It writes little compared with its layer.",
            source="Sandoval-Segura et al. 2504.03889 (Avg Head Output Norm, layer-normalised)",
            null="heads of a layer that write alike", beside="written_norm",
        ),
        HeadScore(
            name="written_norm", unit="in the stream", measure=written_norm,
            sentence="Mean norm of what it writes.",
            source="Sandoval-Segura et al. 2504.03889",
            null="its layer's mean",
        ),
        HeadScore(
            name="first_value_norm", unit="of the others' mean", measure=first_value_norm,
            sentence="Length of the first position's value vector: where it is short, attention there writes little.",
            source="Sandoval-Segura et al. 2504.03889; Guo et al. 2410.13835 (value-state drains)",
            null="a first token whose value is read as any other's",
        ),
        HeadScore(
            name="copy_suppression", unit="logits", measure=copy_suppression, threshold=0.5,
            sentence="It attends to a token of the context that is predicted in front of it, and lowers its logit.",
            source="McDougall et al. 2310.04625",
            null="the logits of the other tokens of the sequence, by the same attention and values",
        ),
        HeadScore(
            name="copy_suppression_ov", unit="of tokens", measure=suppressed_share, threshold=0.5,
            sentence="By its OV circuit a token that it attends to is among the ten that it lowers most.",
            source="McDougall et al. 2310.04625",
            null="logits in any other order, each as likely (tokens permuted)",
        ),
        HeadScore(
            name="name_mover", unit="logits", measure=name_mover, threshold=0.5,
            sentence="From the end of the prompts it attends to the answer and raises it over the wrong answer.",
            opposite="From the end of the prompts it attends to the answer and lowers it: a negative name mover.",
            source="Wang et al. 2211.00593, §3.1",
            null="the answers of other pairs, by the same attention and values",
        ),
        HeadScore(
            name="function_vector", unit="of the answer's probability", measure=function_vector, threshold=0.05,
            margin=0.05,
            sentence="Its mean output on prompts that show a task raises the answer on prompts that do not.",
            source="Todd et al. 2310.15213 (average indirect effect)",
            null="the head's mean output on the prompts that do not show the task, put there alike",
        ),
        HeadScore(
            name="fuzzy_induction", unit="of attention", measure=fuzzy_induction, threshold=0.4,
            margin=LEAST_EXCESS,
            sentence="It attends to what followed a token similar to the query's, where the same one did not come.",
            source="Olsson et al. 2022 (completion of patterns of similar tokens, [A*][B*] … [A] → [B])",
            null="the head's mean pattern over other sequences",
        ),
        HeadScore(
            name="delimiter", unit="of attention", measure=delimiter, threshold=0.4, margin=LEAST_EXCESS,
            sentence="It attends to delimiters: punctuation, brackets, quotes, line breaks.",
            source="Clark et al. 1906.04341 (attention to punctuation and separators)",
            null="equal attention to all visible keys",
        ),
        HeadScore(
            name="successor", unit="of ordinal words", measure=successor, threshold=0.5,
            sentence="By its OV circuit attention to an ordinal word raises its successor most.",
            source="Gould et al. 2312.09230, Figure 2",
            null="logits in any other order, each as likely (tokens permuted)",
        ),
        HeadScore(
            name="positional_share", unit="of the variance of its scores", measure=positional_share,
            sentence="Its attention scores depend on positions, not on what stands there.",
            source="aotlens, after Elhage et al. 2021",
            null="scores of which positions say nothing",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadScores(Result):
    """The scores of every head, each beside its chance."""

    scores: tuple[str, ...]
    """The names of the scores."""
    values: Float64[np.ndarray, "score layer head"]
    """NaN for a score that could not be measured."""
    chance: Float64[np.ndarray, "score layer head"]
    counts: Int64[np.ndarray, " score"]
    """The number of queries, tokens or pairs that each score is a mean over."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reason why a score is NaN, by its name."""
    intervals: Float64[np.ndarray, "score layer head 2"] | None = None
    """The intervals of the excess, corrected for the number of scores and heads; of a score without units the excess.
    None in files made before they were measured."""
    attends: Bool[np.ndarray, "score layer head"] | None = None
    """Whether a head attends to what the score's sentence says; True for a score that says nothing of the kind."""

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the scores that could be measured."""
        return tuple(name for name in self.scores if name not in self.reasons)

    @property
    def headline(self) -> str:
        if not self.measured:
            return "no score was measured"
        first = self.measured[0]
        return f"{first.replace('_', ' ')} is highest in {top_head(self[first])}"

    def __getitem__(self, score: str) -> Float64[np.ndarray, "layer head"]:
        if score not in self.scores:
            raise KeyError(f"{score!r}: expected one of {', '.join(self.scores)}")
        return self.values[self.scores.index(score)]

    @property
    def excess(self) -> Float64[np.ndarray, "score layer head"]:
        """Return the scores less their chance."""
        return self.values - self.chance

    def describe_head(self, head: HeadLike) -> list[str]:
        """Describe a head by the declared scores that it has, each with its value and chance."""
        layer, number = as_head(head)
        sentences = []
        for name in self.measured:
            score, place = HEAD_SCORES.get(name), self.scores.index(name)
            value, chance = self.values[place, layer, number], self.chance[place, layer, number]
            interval = None if self.intervals is None else tuple(self.intervals[place, layer, number].tolist())
            sentence = "" if score is None else score.sentence_of(value, chance, interval)
            if self.attends is not None and not self.attends[place, layer, number]:
                sentence = ""
            if sentence and score is not None:
                more = ""
                if score.beside in self.measured:
                    more = f"; {self[score.beside][layer, number]:.3g} {HEAD_SCORES[score.beside].unit}"
                sentences.append(f"{sentence[:-1]} ({value:.2f} {score.unit}; {chance:.2f} by chance{more}).")
        return sentences

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head and score: layer, head, score, value, chance, excess, n."""
        columns = {"value": self.values, "chance": self.chance, "excess": self.excess}
        frame = table(("score", "layer", "head"), columns)
        frame = frame.assign(n=self.counts[frame["score"]], score=np.array(self.scores)[frame["score"]])
        return frame[["layer", "head", "score", *columns, "n"]]


def head_scores(
    model: Model,
    tokens: TokenSequences | None = None,
    scores: Iterable[str | HeadScore] | str | HeadScore | None = None,
    *,
    pairs: PromptPairs | None = None,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadScores:
    """Score every head for each of `scores`, declared names or custom `HeadScore`s (None: all of `HEAD_SCORES`).

    `tokens` are sequences of a text, as in `attention_to`, `clusters` the document of each, so that intervals are over
    documents, and `pairs` prompts for the scores that read some. A score
    whose inputs are not given, or which is not defined for this model, is NaN, and `HeadScores.reasons` says why.
    Definitions and costs are in the modules of the scores; `progress(done, total)` counts scores.

    Raises `ValueError` for a name that is not declared, and as `HeadReader.require_ids`.
    """
    reader = HeadReader.of(model, "head scores")
    listed = [scores] if isinstance(scores, str | HeadScore) else list(HEAD_SCORES if scores is None else scores)
    unknown = [score for score in listed if not isinstance(score, HeadScore) and score not in HEAD_SCORES]
    if unknown or not listed:
        what = f"no score {unknown[0]!r}" if unknown else "expected at least one score"
        raise ValueError(f"{what}; there are {', '.join(HEAD_SCORES)}.")
    declared = [score if isinstance(score, HeadScore) else HEAD_SCORES[score] for score in listed]
    text = None if tokens is None else reader.require_ids(tokens)
    groups = None if text is None else as_clusters(clusters, len(text))
    inputs = ScoreInputs(reader=reader, tokens=text, pairs=pairs, seed=require_seed(seed), clusters=groups)
    values, chance = (np.full((len(declared), *inputs.shape), np.nan) for _ in range(2))
    counts, reasons = np.zeros(len(declared), dtype=np.int64), {}
    intervals, attends = np.full((*values.shape, 2), np.nan), np.ones(values.shape, dtype=bool)
    for place, score in enumerate(declared):
        try:
            measured = score.measure(inputs)
        except Missing as missing:
            reasons[score.name] = str(missing)
        else:
            values[place], chance[place], counts[place] = measured.values, measured.chance, measured.n
            intervals[place] = _interval(measured, values.size)
            attends[place] = True if measured.attends is None else measured.attends
        if progress is not None:
            progress(place + 1, len(declared))
    names = tuple(score.name for score in declared)
    return HeadScores(
        scores=names, values=values, chance=chance, counts=counts, reasons=reasons, intervals=intervals, attends=attends
    )  # fmt: skip


def _interval(measured: MeasuredScore, n_tests: int) -> Float64[np.ndarray, "layer head 2"]:
    """The corrected interval of the excess over a score's units; the excess itself without units."""
    if measured.excess is None:
        return np.repeat((measured.values - measured.chance)[..., None], 2, axis=-1)
    counts = np.ones(len(measured.excess)) if measured.counts is None else measured.counts
    return corrected_intervals(measured.excess, counts, measured.clusters, n_tests=n_tests)
