"""The section of docs/scale.md that follows from stored points, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from aotlens.files import replacing_file, write_section
from benchmarks._scale import words
from benchmarks._scale.extrapolate import AxisFit, Estimate, axis_fit, from_axes, from_law
from benchmarks._scale.figure import draw
from benchmarks._scale.fit import EXPONENTS
from benchmarks._scale.headline import HEADLINES
from benchmarks._scale.reasons import REASONS
from benchmarks._scale.series import CORNER, TRAINED, Points, key_of, shape_of
from benchmarks._scale.shapes import Shape

#: Models whose cost is worked out; each head has 64 dimensions.
TARGETS = {
    "GPT-2 small": Shape(vocabulary=50_257, layers=12, heads=12, width=768, tokens=1024),
    "GPT-2 XL": Shape(vocabulary=50_257, layers=48, heads=25, width=1600, tokens=1024),
    "V = 256k, 96 layers × 96 heads": Shape(vocabulary=256_000, layers=96, heads=96, width=6144, tokens=1024),
}


def exponent_rows(points: Points, names: Sequence[str] = tuple(HEADLINES)) -> list[dict[str, Any]]:
    """Return a row for each series with a fit: the measured exponent of time and of memory, beside the law's."""
    rows = []
    for name in names:
        for axis in HEADLINES[name].axes:
            time = axis_fit(points, HEADLINES[name], axis, points.clock)
            if time.curve is None:
                continue
            memory = axis_fit(points, HEADLINES[name], axis, "bytes")
            rows.append(
                {
                    "analysis": name,
                    "axis": axis,
                    "sizes": f"{time.sizes[0]:,} to {time.sizes[-1]:,}",
                    "points": time.curve.n_points,
                    "time ∝ size^p": _exponent(time),
                    "by law": _law(time),
                    "at the end": words.seconds(time.values[-1]),
                    "memory ∝ size^p": _exponent(memory),
                    "memory by law": _law(memory),
                    "peak at the end": words.size(memory.values[-1]) if memory.values else "–",
                }
            )
    return rows


def _exponent(fit: AxisFit) -> str:
    curve = fit.curve
    if curve is None:
        return "–"
    high = f"{curve.high:.2f}" if curve.high < EXPONENTS[1] else "any"
    return f"{curve.exponent:.2f} ({curve.low:.2f} to {high})"


def _law(fit: AxisFit) -> str:
    return "–" if fit.law is None else f"{fit.law.exponent:.2f}" + (" ≠" if fit.disagrees else "")


def disagreements(points: Points) -> list[tuple[str, str]]:
    """List the series whose time doesn't grow as its law says."""
    return [
        (name, axis)
        for name, headline in HEADLINES.items()
        for axis in headline.axes
        if axis_fit(points, headline, axis, points.clock).disagrees
    ]


def write_page(page: Path, points: Points) -> None:
    """Write the section of the page, and the picture beside it."""
    write_section(page, "scale", section(points))
    with replacing_file(page.with_suffix(".svg")) as temporary:
        temporary.write_text(draw(points), encoding="utf-8")


def section(points: Points) -> str:
    """Write every table that the points give, in Markdown."""
    about = points.about
    measured = sum(points.measured(key) is not None for key in points.figures)
    parts = [
        f"{measured} points; {about['device']}, {about['threads']} thread(s), {about['processor']}, torch "
        f"{about['torch']}, aotlens {about['aotlens']}; {'processor' if points.clock == 'cpu' else 'wall'} time.",
        "### Exponents",
        _table(exponent_rows(points)),
        "### Laws, and where they fail",
        _table({"analysis": name, "what is measured": each.title, "law (time; memory)": each.formula}
               for name, each in HEADLINES.items() if each.axes),
        *[f"- `{name}`, {axis}: {REASONS.get((name, axis), 'unexplained.')}" for name, axis in disagreements(points)],
        "![Seconds against size](scale.svg)",
        "### Where a series ended",
        _table(_ends(points)),
        "### Refused by the library",
        _table(_refusals(points)),
        "### Trained weights beside untrained ones",
        _table(_trained(points)),
        "### All axes at once",
        _table(_corner(points)),
        _held(points),
        *[block for name, target in TARGETS.items() for block in (
            f"### Extrapolated: {name}", f"{_sizes(target)}.", _table(_target(points, target)))],
    ]  # fmt: skip
    return "\n\n".join(_join_lists(part for part in parts if part))


def _sizes(shape: Shape) -> str:
    return (
        f"{shape.vocabulary:,} tokens of vocabulary, {shape.layers} layers of {shape.heads} heads of {shape.d_head}, "
        f"d_model {shape.width:,}, prompts of {shape.tokens:,} tokens; "
        f"{words.size(4 * shape.n_weights)} of weights in float32"
    )


def _with_interval(estimate: Estimate | None, written: Callable[[float], str]) -> str:
    return (
        "–" if estimate is None else f"{written(estimate.value)} ({written(estimate.low)} to {written(estimate.high)})"
    )


def _join_lists(parts: Iterable[str]) -> list[str]:
    """Join the entries of a list, so that they stand together."""
    joined: list[str] = []
    for part in parts:
        if part.startswith("- ") and joined and joined[-1].startswith("- "):
            joined[-1] += f"\n{part}"
        else:
            joined.append(part)
    return joined


def _table(rows: Iterable[dict[str, Any]]) -> str:
    rows = list(rows)
    if not rows:
        return "Nothing was measured."
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(str(row[c]) for c in columns) + " |" for row in rows)])


def _ends(points: Points) -> list[dict[str, Any]]:
    """The first size of each series that was not measured, and why."""
    rows = []
    for name, headline in HEADLINES.items():
        for axis in headline.axes:
            for shape in headline.series(axis, points.about["quick"]):
                figures = points.figures.get(key_of(name, shape), {})
                if why := figures.get("failed") or figures.get("skipped"):
                    size = getattr(shape, axis)
                    rows.append({"analysis": name, "axis": axis, "first size left out": f"{size:,}", "why": why})
                    break
    return rows


def _refusals(points: Points) -> list[dict[str, Any]]:
    return [
        {"asked for": headline.title, "at": str(headline.refused), "answer": f"`{figures['failed']}`"}
        for name, headline in HEADLINES.items()
        if headline.refused is not None
        and "failed" in (figures := points.figures.get(key_of(name, headline.refused), {}))
    ]


def _trained(points: Points) -> list[dict[str, Any]]:
    rows = []
    for checkpoint, names in TRAINED.items():
        for name in names:
            untrained = points.measured(key_of(name, shape_of(checkpoint)))
            trained = points.measured(key_of(name, checkpoint))
            if untrained is None or trained is None:
                continue
            notes = [", ".join(f"{note} {each[note]:,}" for note in each if note not in _FIGURES) or "–"
                     for each in (trained, untrained)]  # fmt: skip
            clock = points.clock
            rows.append(
                {
                    "checkpoint": checkpoint, "analysis": name, "trained": words.seconds(trained[clock]),
                    "untrained": words.seconds(untrained[clock]), "ratio": f"{trained[clock] / untrained[clock]:.2f}",
                    "trained: found": notes[0], "untrained: found": notes[1],
                }
            )  # fmt: skip
    return rows


_FIGURES = ("cpu", "wall", "bytes", "calls")


def _corner(points: Points) -> list[dict[str, Any]]:
    """Return what law and fits say of the one shape that changes every axis, beside what was measured there."""
    rows = []
    for name, headline in HEADLINES.items():
        figures = points.measured(key_of(name, CORNER))
        if figures is None or not headline.axes:
            continue
        for figure, unit, written in ((points.clock, "time", words.seconds), ("bytes", "memory", words.size)):
            row: dict[str, Any] = {"analysis": name, "of": unit, "measured": written(figures[figure])}
            for how, estimate in (("law", from_law), ("axes", from_axes)):
                cost = estimate(points, name, CORNER, figure)
                row[f"from the {how}"] = _with_interval(cost, written)
                row[f"{how} ÷ measured"] = "–" if cost is None else f"{cost.value / figures[figure]:.2f}"
            rows.append(row)
    return rows


def _needs(points: Points, estimate_of: Callable[..., Estimate | None]) -> list[float]:
    """List what each point that changes all axes at once needs of its interval (`Estimate.needs`); time and memory."""
    needs = []
    for name, headline in HEADLINES.items():
        figures = points.measured(key_of(name, CORNER))
        for figure in (points.clock, "bytes") if figures is not None and headline.axes else ():
            estimate = estimate_of(points, name, CORNER, figure)
            needs += [] if estimate is None else [estimate.needs(figures[figure])]
    return needs


def _widening(points: Points) -> float:
    """Return by how much the law's intervals are widened: what would have held every point that they had not seen."""
    return max([1.0, *_needs(points, from_law)])


def _held(points: Points) -> str:
    """Say how many of the unseen points the intervals hold."""
    law, axes = _needs(points, from_law), _needs(points, from_axes)
    if not law:
        return ""
    held = [sum(need <= 1 for need in each) for each in (law, axes)]
    n = len(law)
    return (
        f"The law's intervals hold {held[0]} of these {n} points, those of the axes {held[1]}: they say how well the "
        "points of an analysis fix its rates, and are no 95% intervals of a new shape. Below, those of the law are "
        f"{_widening(points):.1f} times as wide, in logarithms, which would have held all {n}. They are of one "
        "shape, and time and memory of an analysis are of one run: how shapes differ they do not say."
    )


def _target(points: Points, target: Shape) -> list[dict[str, Any]]:
    rows = []
    for name, headline in HEADLINES.items():
        if not headline.axes or from_law(points, name, target, points.clock) is None:
            continue
        row = {"analysis": name}
        for figure, unit, written in (
            (points.clock, "time", words.seconds),
            ("bytes", "memory", words.size),
        ):
            law = from_law(points, name, target, figure)
            row[f"{unit}, from the law"] = _with_interval(law and law.widened(_widening(points)), written)
            axes = from_axes(points, name, target, figure)
            row[f"{unit}, from the axes"] = "–" if axes is None else written(axes.value)
        rows.append(row)
    return rows
