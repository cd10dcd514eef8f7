"""The section of docs/scale.md that follows from stored points: exponents, and costs at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats

from aotlens.files import write_section
from benchmarks._scale.analyses import AXES, HEADLINES, NODES, Headline, Shape, Terms
from benchmarks._scale.points import CORNER, Figures, Points, key_of

#: Models whose cost is estimated; each head has 64 dimensions.
TARGETS = {
    "GPT-2 small": Shape(vocabulary=50_257, layers=12, heads=12, width=768, tokens=1024),
    "GPT-2 XL": Shape(vocabulary=50_257, layers=48, heads=25, width=1600, tokens=1024),
    "V = 256k, 96 × 96 heads": Shape(vocabulary=256_000, layers=96, heads=96, width=6144, tokens=1024),
}
#: The largest points of a series, from which its exponent is taken: small ones cost what a call costs.
LARGEST = 4
#: Peaks below this come from the allocator's pages, not from the analysis.
LEAST_BYTES = 4 * 2**20
_SECONDS = ((31_557_600, "years"), (86_400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def slope(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """Return p of cost ∝ size^p over the largest points, by least squares of logarithms, and half its 95% interval.

    The unit is the point: residuals of the logarithms are independent, normal and of one variance.
    """
    x, y = np.log(sizes[-LARGEST:]), np.log(costs[-LARGEST:])
    fit = scipy.stats.linregress(x, y)
    return float(fit.slope), float(fit.stderr * scipy.stats.t.ppf(0.975, len(x) - 2))


def known(points: Points, headline: Headline, axis: str, figure: str) -> dict[Shape, Figures]:
    """Return the points of a series that were measured and are large enough."""
    least = LEAST_BYTES if figure == "bytes" else 0
    return {
        shape: figures
        for shape in headline.series(axis, points.about["quick"])
        if (figures := points.measured(key_of(headline.name, shape))) is not None and figures[figure] > least
    }


def exponent_rows(points: Points, names: Sequence[str] = tuple(HEADLINES)) -> list[dict[str, Any]]:
    """Return a row for each series of at least four points: exponents of time and memory, and the law's of time."""
    rows = []
    for name in names:
        for axis in HEADLINES[name].axes:
            series = known(points, HEADLINES[name], axis, points.clock)
            if len(series) < LARGEST:
                continue
            sizes = [getattr(shape, axis) for shape in series]
            law, _ = slope(sizes, [sum(_terms(HEADLINES[name], *item, points.clock)) for item in series.items()])
            memory = known(points, HEADLINES[name], axis, "bytes")
            rows.append(
                {
                    "analysis": name,
                    "axis": axis,
                    "sizes": f"{sizes[0]:,} to {sizes[-1]:,}",
                    "time ∝ size^p": _exponent(sizes, [figures[points.clock] for figures in series.values()]),
                    "by law": f"{law:.2f}",
                    "at the end": seconds([*series.values()][-1][points.clock]),
                    "memory ∝ size^p": _exponent(
                        [getattr(shape, axis) for shape in memory], [figures["bytes"] for figures in memory.values()]
                    ),
                    "peak at the end": size([*memory.values()][-1]["bytes"]) if memory else "–",
                }
            )
    return rows


def _exponent(sizes: Sequence[float], costs: Sequence[float]) -> str:
    if len(sizes) < LARGEST:
        return "–"
    p, half = slope(sizes, costs)
    return f"{p:.2f} ± {half:.2f}"


def _terms(headline: Headline, shape: Shape, figures: Figures | None, figure: str) -> Terms:
    """Return the law's terms at a shape, with the count that a measured point noted of the last one."""
    if figure == "bytes":
        return headline.byte_terms(shape)
    *terms, last = headline.operation_terms(shape)
    if headline.counted is not None and figures is not None:
        last *= figures.get(headline.counted, NODES) / NODES
    return (*terms, last)


def estimate(points: Points, name: str, target: Shape, figure: str) -> float | None:
    """Return the cost at a shape by the law, or None for too few points.

    cost = Σ rate · term with rates ≥ 0, fitted to relative errors of all points of the analysis; two further terms, 1
    and the number of heads, are the cost of calls. An extrapolation assumes that the rates stay the same.
    """
    headline = HEADLINES[name]
    measured = {key: item for axis in headline.axes for key, item in known(points, headline, axis, figure).items()}
    terms = np.array([(*_terms(headline, *item, figure), *_calls(item[0])) for item in measured.items()])
    if len(terms) < len(headline.operation_terms(target)) + 5:
        return None
    relative = terms / np.array([figures[figure] for figures in measured.values()])[:, None]
    scale = relative.max(0)
    scale[scale == 0] = 1.0
    rates, _ = scipy.optimize.nnls(relative / scale, np.ones(len(terms)))
    rates *= np.exp(-np.log(relative / scale @ rates).mean())  # least squares of fitted ÷ measured is too small
    return float(np.array([*_terms(headline, target, None, figure), *_calls(target)]) / scale @ rates)


def _calls(shape: Shape) -> Terms:
    return 1.0, float(shape.layers * shape.heads)


def estimate_rows(points: Points) -> list[dict[str, Any]]:
    """Return a row for each analysis: the law compared with a shape that it has not seen, and larger models."""
    rows = []
    for name in HEADLINES:
        corner = points.measured(key_of(name, CORNER))
        if estimate(points, name, CORNER, points.clock) is None:
            continue
        row: dict[str, Any] = {"analysis": name}
        ratios = []
        for figure in (points.clock, "bytes"):
            guess = estimate(points, name, CORNER, figure)
            ratios.append("–" if corner is None or guess is None else f"{guess / corner[figure]:.2f}")
        row["law ÷ measured, time; memory"] = "; ".join(ratios)
        for target, shape in TARGETS.items():
            costs = [estimate(points, name, shape, figure) for figure in (points.clock, "bytes")]
            row[target] = "; ".join(_cost(cost, unit) for cost, unit in zip(costs, (seconds, size), strict=True))
        rows.append(row)
    return rows


def _cost(cost: float | None, written: Callable[[float], str]) -> str:
    return "–" if cost is None else written(cost)


def write_page(page: Path, points: Points) -> None:
    """Write the section of the page."""
    write_section(page, "scale", section(points))


def section(points: Points) -> str:
    """Write the tables as Markdown."""
    about = points.about
    measured = sum(points.measured(key) is not None for key in points.figures)
    parts = [
        f"{measured} points; {about['device']}, {about['threads']} thread(s), {about['processor']}, torch "
        f"{about['torch']}, aotlens {about['aotlens']}; {'processor' if points.clock == 'cpu' else 'wall'} time.",
        "Time: exponent (by law), and the time of the largest point:",
        _table(_by_axis(points, ("time ∝ size^p", "by law", "at the end"), "{} ({}); {}")),
        "Memory: exponent, and the peak of the largest point:",
        _table(_by_axis(points, ("memory ∝ size^p", "peak at the end"), "{}; {}")),
        "The laws: d is the width of a head, D d_model, V the vocabulary, L layers, H heads per layer, n tokens.",
        _table(
            {"analysis": name, "what is measured": headline.title, "law (time; memory)": headline.formula}
            for name, headline in HEADLINES.items()
        ),
        f"Extrapolated by the law (time; memory). The comparison is at V = {CORNER.vocabulary:,}, {CORNER.layers} × "
        f"{CORNER.heads} heads, d_model {CORNER.width}, {CORNER.tokens} tokens, which no fit has seen:",
        _table(estimate_rows(points)),
    ]
    return "\n\n".join(parts)


def _by_axis(points: Points, columns: Sequence[str], form: str) -> list[dict[str, Any]]:
    """Return a row for each analysis, with its series by axis."""
    rows: dict[str, dict[str, Any]] = {name: {"analysis": name, **dict.fromkeys(AXES, "")} for name in HEADLINES}
    for row in exponent_rows(points):
        rows[row["analysis"]][row["axis"]] = form.format(*(row[column] for column in columns))
    return [row for row in rows.values() if any([*row.values()][1:])]


def _table(rows: Iterable[dict[str, Any]]) -> str:
    rows = list(rows)
    if not rows:
        return "Nothing was measured."
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(str(row[c]) for c in columns) + " |" for row in rows)])


def seconds(value: float) -> str:
    """Write a time to two digits in a unit that suits it."""
    return _in(value, _SECONDS)


def size(value: float) -> str:
    """Write bytes to two digits in a unit that suits them."""
    return _in(value, _BYTES)


def _in(value: float, units: tuple[tuple[float, str], ...]) -> str:
    unit, name = next((pair for pair in units if value >= 0.995 * pair[0]), units[-1])
    digits = float(f"{value / unit:.2g}")
    return f"{digits:,.0f} {name}" if digits >= 10 else f"{digits:.1f} {name}"
