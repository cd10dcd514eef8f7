"""Influences kept with a checkpoint, their windows as text, and the properties of windows that predict them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.checkpoints.info import read_info
from aotlens.conventions import require_whole
from aotlens.dynamics.influence_check import InfluenceCheck
from aotlens.dynamics.influence_result import Influence, TrainingWindows, step_means
from aotlens.results import Result, stored
from aotlens.statistics import bootstrap_interval

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.data import Tokenizer


#: The properties of a window: the share of its tokens whose bigram stands earlier in it; the mean log₂ of how many
#: tokens back that was; the share whose bigram stood nowhere in training before.
PROPERTIES = ("repeats", "distance", "novelty")
#: The parts of the steps after the first.
PARTS = ("all", "first quarter", "second quarter", "third quarter", "last quarter")
#: Properties that are correlated beyond this within steps are one variable: their coefficients together say nothing.
_MOST_CORRELATION = 0.95
#: Clusters below which there are no intervals: simulated, 95% intervals miss 0 in 7% of cases with 20, in 26% with 3.
_LEAST_CLUSTERS = 20
_PIECE = 4096  # tokens
_LEAST_SPREAD = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class InfluenceProperties(Result):
    """Least-squares fits of how much windows helped, by each of their properties alone and by all together, in standard
    deviations.

    Help is a window's influence, its sign turned where a smaller measure is better, divided by the root mean square of
    its step. Properties are taken as differences from their mean over the step's windows, since influences of a step
    sum to 0, and divided by their standard deviation.
    """

    run: str
    measure: str
    properties: tuple[str, ...]
    parts: tuple[str, ...]
    """Stretches of training, by position of the window's step."""
    alone: Float64[np.ndarray, "part property"]
    """Help, in root mean squares of a step, for a standard deviation of the property more; NaN where it is constant."""
    alone_intervals: Float64[np.ndarray, "part property 2"]
    """95%, by a bootstrap over `clusters`; of this run, not of others. NaN for fewer than 20 clusters."""
    coefficients: Float64[np.ndarray, "part property"]
    """`alone` with the other properties held; NaN for one that another follows closely (|`correlations`| > .95)."""
    intervals: Float64[np.ndarray, "part property 2"]
    """95% intervals of `coefficients`, drawn as `alone_intervals` are."""
    correlations: Float64[np.ndarray, "property property"]
    """The correlations of the properties' differences within steps; NaN where one is constant."""
    r_squared: Float64[np.ndarray, " part"]
    """R² of all properties together."""
    clusters: str
    """The units that are drawn: windows of one document vary together."""
    n_clusters: int

    @property
    def headline(self) -> str:
        effects = ", ".join(
            f"{name} {value:+.2f}" + (f" ({low:+.2f} to {high:+.2f})" if np.isfinite(low) else "")
            for name, value, (low, high) in zip(self.properties, self.alone[0], self.alone_intervals[0], strict=True)
            if np.isfinite(value)
        )
        if not effects:
            return f"help for {self.measure}: no property varies within steps"
        r_squared = f"R² of all {self.r_squared[0]:.2f}"
        return f"help for {self.measure} by a standard deviation of each alone: {effects}; {r_squared}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per property in a part of training: part, property, alone, its interval (alone_low,
        alone_high), coefficient, its interval (low, high)."""
        import pandas as pd

        rows = [
            (part, name, self.alone[i, j], *self.alone_intervals[i, j], self.coefficients[i, j], *self.intervals[i, j])
            for i, part in enumerate(self.parts)
            for j, name in enumerate(self.properties)
        ]
        columns = ["part", "property", "alone", "alone_low", "alone_high", "coefficient", "low", "high"]
        return pd.DataFrame(rows, columns=columns)


def influence_properties(influence: Influence, measure: str | None = None) -> InfluenceProperties:
    """Estimate which properties of a window predict how much it helped a measure (the influence's first), over
    training.

    Clusters are documents, pieces of 4,096 tokens of the training text where there are fewer than 20 documents, and
    single windows of random tokens; with fewer than 20 intervals are NaN. Raises `ValueError` for an unknown measure.
    """
    name, windows = influence.measures[influence.place(measure)], influence.windows
    later, help_ = windows.steps > 0, influence.help(measure)
    properties = window_properties(windows)
    properties = properties - np.stack([step_means(row, windows.steps) for row in properties])
    clusters, kind = _clusters(windows)
    varying = properties[:, later].std(1) > _LEAST_SPREAD
    correlations = np.full((len(properties), len(properties)), np.nan)
    if varying.any():
        correlations[np.ix_(varying, varying)] = np.corrcoef(properties[np.ix_(varying, later)])
    followed = (np.abs(correlations) > _MOST_CORRELATION).sum(1) > 1
    alone, alone_intervals, coefficients, intervals, fits = [], [], [], [], []
    for part in range(len(PARTS)):
        own = later if part == 0 else windows.quarters == part - 1
        fits_alone = [_regression(column[own, None], help_[own], clusters[own]) for column in properties]
        alone.append(np.concatenate([values for values, _, _ in fits_alone]))
        alone_intervals.append(np.concatenate([interval for _, interval, _ in fits_alone]))
        values, interval, fit = _regression(properties[:, own].T, help_[own], clusters[own], without=followed)
        coefficients.append(values)
        intervals.append(interval)
        fits.append(fit)
    return InfluenceProperties(
        run=influence.run, measure=name, properties=PROPERTIES, parts=PARTS, alone=np.stack(alone),
        alone_intervals=np.stack(alone_intervals), coefficients=np.stack(coefficients), intervals=np.stack(intervals),
        correlations=correlations, r_squared=np.array(fits), clusters=kind,
        n_clusters=len(np.unique(clusters[later])),
    )  # fmt: skip


def window_properties(windows: TrainingWindows) -> Float64[np.ndarray, "property window"]:
    """Return `PROPERTIES` of each window; `distance` of one without a repeated bigram is the mean of its step's
    others."""
    repeated, back = windows.seen_before(2), windows.distances(2)
    own, n_windows = windows.of_token, len(windows)
    counted = np.maximum(windows.lengths - 1, 1)
    repeats = np.bincount(own, repeated, minlength=n_windows)
    logs = np.bincount(own, np.where(repeated, np.log2(np.maximum(back, 1)), 0), minlength=n_windows)
    distance = np.divide(logs, repeats, out=np.full(n_windows, np.nan), where=repeats > 0)
    distance = np.where(np.isnan(distance), step_means(distance, windows.steps), distance)
    novelty = np.bincount(own, windows.new_to_training(), minlength=n_windows)
    return np.stack([repeats / counted, np.nan_to_num(distance), novelty / counted])


def _clusters(windows: TrainingWindows) -> tuple[Int64[np.ndarray, " window"], str]:
    """The cluster of each window, and what clusters are."""
    alone = -1 - np.arange(len(windows))
    if (windows.documents < 0).all():
        return alone, "windows"
    if len(windows.names) >= _LEAST_CLUSTERS:
        return np.where(windows.documents < 0, alone, windows.documents), "documents"
    return np.where(windows.offsets < 0, alone, windows.offsets // _PIECE), f"pieces of {_PIECE:,} tokens"


def _regression(
    x: Float64[np.ndarray, "window property"],
    y: Float64[np.ndarray, " window"],
    clusters: Int64[np.ndarray, " window"],
    without: Bool[np.ndarray, " property"] | None = None,
) -> tuple[Float64[np.ndarray, " property"], Float64[np.ndarray, "property 2"], float]:
    """Coefficients of standardised properties that vary, but for those `without`, their intervals over clusters, and R²
    of all."""
    n = x.shape[1]
    coefficients, interval = np.full(n, np.nan), np.full((n, 2), np.nan)
    spread = x.std(0) if len(x) else np.zeros(n)
    varies = np.flatnonzero(spread > _LEAST_SPREAD)
    if not len(varies) or not len(y):
        return coefficients, interval, float("nan")
    scaled = x[:, varies] / spread[varies]
    numbers, of = np.unique(clusters, return_inverse=True)
    terms = np.concatenate([scaled[:, :, None] * scaled[:, None, :], scaled[:, :, None] * y[:, None, None]], axis=2)
    sums = np.zeros((len(numbers), len(varies) * (len(varies) + 1)))
    np.add.at(sums, of, terms.reshape(len(y), -1))

    def fitted(drawn: np.ndarray) -> Float64[np.ndarray, " property"]:
        total = np.bincount(drawn, minlength=len(numbers)) @ sums
        equations = total.reshape(len(varies), -1)
        values: np.ndarray = np.linalg.lstsq(equations[:, :-1], equations[:, -1], rcond=None)[0]
        return values

    coefficients[varies] = fitted(np.arange(len(numbers)))
    residual = y - scaled @ coefficients[varies]
    if without is not None:
        coefficients[without] = np.nan
    for place, which in enumerate(varies) if len(numbers) >= _LEAST_CLUSTERS else ():
        if np.isfinite(coefficients[which]):
            interval[which] = bootstrap_interval(partial(_one, fitted, place), len(numbers))
    return coefficients, interval, float(1 - residual.var() / y.var()) if y.var() > 0 else float("nan")


def _one(fitted: Callable[[np.ndarray], np.ndarray], place: int, drawn: np.ndarray) -> float:
    return float(fitted(drawn)[place])


def stored_influence(checkpoint: str | Path) -> Influence:
    """Return the influences that `aotlens influence` stored next to a checkpoint's folder.

    Raises `ValueError` if none are stored, or if they belong to weights that the checkpoint had before.
    """
    influence: Influence = stored("influence", checkpoint, read_info(Path(checkpoint)))
    return influence


def stored_check(checkpoint: str | Path) -> InfluenceCheck:
    """Return the check that `aotlens influence --check` stored there. Raises `ValueError` as `stored_influence`."""
    check: InfluenceCheck = stored("influence-check", checkpoint, read_info(Path(checkpoint)))
    return check


@dataclass(frozen=True, kw_only=True, eq=False)
class InfluentialWindows(Result):
    """The windows that helped a measure most and those that harmed it most, as text."""

    run: str
    measure: str
    windows: Int64[np.ndarray, " end"]
    """The most helpful first, then the most harmful."""
    helps: tuple[bool, ...]
    influences: Float64[np.ndarray, " end"]
    steps: Int64[np.ndarray, " end"]
    documents: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]
    """Each window's text without its first token, in pieces: in turn what is new in the window, and what stands earlier
    in it. The first may be empty."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Each window's text, with what occurs earlier in the window in brackets: a [repeated] span."""
        return tuple(
            "".join(f"[{piece}]" if place % 2 else piece for place, piece in enumerate(pieces))
            for pieces in self.pieces
        )

    @property
    def headline(self) -> str:
        if not len(self.windows):
            return f"no window after step 0 has influence on {self.measure}"
        if not self.helps[0]:
            return f"no window after step 0 helps {self.measure}"
        return (
            f"the most helpful window for {self.measure} has influence {self.influences[0]:+.3g} "
            f"(step {self.steps[0]:,}, {self.documents[0]})"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per window: window, helps, influence, step, document, text."""
        import pandas as pd

        return pd.DataFrame(
            {
                "window": self.windows,
                "helps": ["most helpful" if helps else "most harmful" for helps in self.helps],
                "influence": self.influences,
                "step": self.steps,
                "document": list(self.documents),
                "text": list(self.texts),
            }
        )


def influential_windows(
    influence: Influence, tokenizer: Tokenizer, n: int = 10, measure: str | None = None
) -> InfluentialWindows:
    """Return the n most helpful and the n most harmful windows after step 0, fewer where fewer are, with the repeated
    spans marked.

    Raises `ValueError` for an unknown measure (the default is the influence's first).
    """
    n, name = require_whole("n", n, 1), influence.measures[influence.place(measure)]
    ends = [influence.helpful(n, name), influence.harmful(n, name)]
    rows = np.concatenate(ends)
    windows = influence.windows
    return InfluentialWindows(
        run=influence.run, measure=name, windows=rows, helps=tuple(end == 0 for end in (0, 1) for _ in ends[end]),
        influences=influence.of(name)[rows], steps=windows.steps[rows],
        documents=tuple(windows.document(int(window)) for window in rows),
        pieces=tuple(_pieces(influence, tokenizer, int(window)) for window in rows),
    )  # fmt: skip


def _pieces(influence: Influence, tokenizer: Tokenizer, window: int) -> tuple[str, ...]:
    """Return the texts of a window's spans; a character whose bytes two spans share is the first one's."""
    spans = influence.windows.spans(window)
    ids = [token for _, span in spans for token in span]
    whole, pieces, start, end = tokenizer.decode(ids), [""] if spans[0][0] else [], 0, 0
    for _, span in spans:
        end += len(span)
        until = end
        while not whole.startswith(text := tokenizer.decode(ids[:until])):
            until += 1
        pieces.append(whole[start : len(text)])
        start = max(start, len(text))
    return tuple(pieces)
