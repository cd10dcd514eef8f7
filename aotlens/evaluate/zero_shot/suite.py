"""Zero-shot evaluation of several models on the same data, with intervals, and the models compared in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from aotlens.conventions import Progress
from aotlens.data.zero_shot import QuestionKind, Quotes, open_cbt, open_lambada, open_ptb, open_wikitext
from aotlens.evaluate.zero_shot import aot, usual
from aotlens.evaluate.zero_shot.scorers import ModelScorer, Scorer
from aotlens.evaluate.zero_shot.usual import Hits, Losses, Outcome, SeedLosses
from aotlens.models import AttentionOnlyTransformer
from aotlens.results import Result
from aotlens.statistics import mcnemar_p, ratio_intervals, wilson_interval

if TYPE_CHECKING:
    import pandas as pd

ProtocolName = Literal["usual", "aot"]


class Measure(NamedTuple):
    """A figure of one model on one data set."""

    model: str
    data: str
    measure: str
    value: float
    unit: str
    """`nats a token`, `nats a byte`, `nats a word`, or `share`."""
    low: float
    """End of the 95% interval: Wilson's of a share, over the units of a loss; NaN where there is none."""
    high: float
    standard_error: float
    """The standard error over seeds, of a loss on random windows; NaN elsewhere."""
    over: str
    """The number of units that the interval or the error varies over: `5153 passages`."""


class PairedDifference(NamedTuple):
    """Two models on the same passages or questions."""

    left: str
    right: str
    data: str
    measure: str
    unit: str
    difference: float
    """The left model's figure less the right one's."""
    low: float
    """End of the 95% interval, over units that both share; NaN for accuracies."""
    high: float
    p: float
    """McNemar's exact p-value of an accuracy, for this pair alone; NaN for losses."""
    only_left: int
    """Questions that the left model alone got right; 0 for losses."""
    only_right: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ZeroShot(Result):
    """Figures of several models, by one protocol."""

    protocol: str
    measures: tuple[Measure, ...]
    differences: tuple[PairedDifference, ...]
    notes: tuple[str, ...]
    """The data that was read, its normalisation, and how words are counted; a sentence each."""

    @property
    def headline(self) -> str:
        first = self.measures[0]
        return f"{first.model} on {first.data}, {first.measure}: {first.value:.4g} {first.unit}"

    def to_frame(self) -> pd.DataFrame:
        """One row per model, data set, measure and unit (`Measure`)."""
        import pandas as pd

        return pd.DataFrame(self.measures, columns=list(Measure._fields))

    def differences_frame(self) -> pd.DataFrame:
        """One row per pair of models and what both were measured on (`PairedDifference`)."""
        import pandas as pd

        return pd.DataFrame(self.differences, columns=list(PairedDifference._fields))


def evaluate_zero_shot(
    models: Mapping[str, AttentionOnlyTransformer | Scorer],
    *,
    lambada: str | None = None,
    wikitext: str | None = None,
    ptb: str | None = None,
    cbt_cn: str | None = None,
    cbt_ne: str | None = None,
    protocol: ProtocolName = "usual",
    quotes: Quotes = "as_is",
    limit: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    n_windows: int = 200,
    progress: Progress | None = None,
) -> ZeroShot:
    """Evaluate `models`, by name, on the data sets whose source is set, each a file or `hf:NAME[:config]`.

    `protocol` is `usual` (`aotlens.evaluate.zero_shot.usual`) or `aot` (`aotlens.evaluate.zero_shot.aot`: Table 3's);
    both modules state theirs. `quotes="straight"` writes straight quotes for curly ones, for models whose training text
    has none of those. `limit` takes the first so many passages and questions. `seeds` and `n_windows` draw the windows
    of the protocol `aot`. Only losses per byte (or word) compare across vocabularies. `progress(done, total)` counts
    pairs of a model and a data set.

    Raises `ValueError` for no data set, no model, an unknown protocol, a model that does not write next tokens, and
    for data of another format.
    """
    if protocol not in ("usual", "aot"):
        raise ValueError(f"protocol={protocol!r}: expected 'usual' or 'aot'.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: expected at least 1 passage, or None for all.")
    scorers = {name: model if isinstance(model, Scorer) else ModelScorer(model) for name, model in models.items()}
    sources = {"lambada": lambada, "wikitext": wikitext, "ptb": ptb, "cbt-cn": cbt_cn, "cbt-ne": cbt_ne}
    named = {kind: source for kind, source in sources.items() if source is not None}
    if not named or not scorers:
        raise ValueError(f"expected at least one model and one data set of {', '.join(sources)}, got {len(scorers)}.")
    outcomes: dict[str, list[Outcome]] = {name: [] for name in scorers}
    notes = [_QUOTES_NOTE[quotes]]
    done = 0
    for kind, source in named.items():
        measure, note = _measurement(kind, source, protocol, quotes, limit, seeds, n_windows)
        notes.append(note)
        for name, scorer in scorers.items():
            outcomes[name] += measure(scorer)
            done += 1
            if progress is not None:
                progress(done, len(named) * len(scorers))
    measures = [row for name, several in outcomes.items() for outcome in several for row in summarise(name, outcome)]
    differences = [
        row
        for left, right in combinations(scorers, 2)
        for ours, theirs in zip(outcomes[left], outcomes[right], strict=True)
        for row in compare(left, right, ours, theirs)
    ]
    return ZeroShot(protocol=protocol, measures=tuple(measures), differences=tuple(differences), notes=tuple(notes))


_QUOTES_NOTE = {
    "as_is": "Text is as published.",
    "straight": "Curly quotes are written as straight ones, and the text is as published otherwise.",
}


def _measurement(
    kind: str,
    source: str,
    protocol: ProtocolName,
    quotes: Quotes,
    limit: int | None,
    seeds: Sequence[int],
    n_windows: int,
) -> tuple[Callable[[Scorer], list[Outcome]], str]:
    """Return the function to call for each model, with the data read once; and the note on the data."""
    if kind == "lambada":
        passages = open_lambada(source, quotes=quotes)[:limit]
        note = f"LAMBADA: {len(passages):,} passages."
        if protocol == "usual":
            return lambda scorer: usual.lambada(scorer, passages), note
        return lambda scorer: aot.lambada(scorer, passages, seeds, n_windows), note
    if kind in ("wikitext", "ptb"):
        text = (open_wikitext if kind == "wikitext" else open_ptb)(source, quotes=quotes)
        by_spaces, with_lines = text.n_words
        note = (
            f"{text.name}: {text.n_bytes:,} bytes, {by_spaces:,} words between spaces, {with_lines:,} with each line's "
            "end as a word."
        )
        if protocol == "usual":
            return lambda scorer: usual.running_text(scorer, text), note
        return lambda scorer: aot.random_windows(scorer, text.name, "loss", text.rows, seeds, n_windows), note
    letters: QuestionKind = "CN" if kind == "cbt-cn" else "NE"
    name = f"CBT-{letters}"
    rules = usual if protocol == "usual" else aot
    questions = open_cbt(source, letters, rules.CBT_SPLIT, quotes=quotes)[:limit]
    return lambda scorer: rules.cbt(scorer, name, questions), f"{name}: {len(questions):,} questions."


def summarise(model: str, outcome: Outcome) -> list[Measure]:
    """A row of an accuracy, one of a loss per each unit."""
    nan = float("nan")
    if isinstance(outcome, Hits):
        n, right = len(outcome.hits), int(outcome.hits.sum())
        low, high = wilson_interval(right, n)
        over = f"{n} {outcome.over}"
        return [Measure(model, outcome.data, outcome.measure, right / n, "share", low, high, nan, over)]
    if isinstance(outcome, SeedLosses):
        mean = float(outcome.nats_per_token.mean())
        error = float(outcome.nats_per_token.std(ddof=1) / np.sqrt(len(outcome.nats_per_token)))
        over = f"{len(outcome.nats_per_token)} seeds"
        return [
            Measure(model, outcome.data, outcome.measure, mean * times, unit, nan, nan, error * times, over)
            for unit, times in (("nats a token", 1.0), ("nats a byte", outcome.tokens_per_byte))
        ]
    over = f"{len(outcome.nats)} {outcome.over}"
    rows = []
    for unit, counts in outcome.counts.items():
        (low, high), *_ = ratio_intervals(outcome.nats[None], counts)
        value = float(outcome.nats.sum() / counts.sum())
        rows.append(
            Measure(model, outcome.data, outcome.measure, value, f"nats a {unit}", float(low), float(high), nan, over)
        )
    return rows


def compare(left: str, right: str, ours: Outcome, theirs: Outcome) -> list[PairedDifference]:
    """The difference on what both models were asked: hits by McNemar's test, losses per what both count alike.

    Losses on random windows are not compared, since windows of two vocabularies hold different text.
    """
    nan = float("nan")
    if isinstance(ours, Hits) and isinstance(theirs, Hits):
        difference = float(ours.hits.mean() - theirs.hits.mean())
        only_left, only_right = int((ours.hits & ~theirs.hits).sum()), int((theirs.hits & ~ours.hits).sum())
        p = mcnemar_p(ours.hits, theirs.hits)
        return [
            PairedDifference(
                left, right, ours.data, ours.measure, "share", difference, nan, nan, p, only_left, only_right
            )
        ]
    if not isinstance(ours, Losses) or not isinstance(theirs, Losses):
        return []
    rows = []
    for unit, counts in ours.counts.items():
        if unit == "token" or not np.array_equal(counts, theirs.counts[unit]):
            continue
        nats = ours.nats - theirs.nats
        (low, high), *_ = ratio_intervals(nats[None], counts)
        difference = float(nats.sum() / counts.sum())
        rows.append(
            PairedDifference(
                left, right, ours.data, ours.measure, f"nats a {unit}", difference, float(low), float(high), nan, 0, 0
            )
        )
    return rows
