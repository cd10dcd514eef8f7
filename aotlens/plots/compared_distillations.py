"""Distillations side by side, and one head of them closely."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import Theme
from aotlens.plots.distillation import (
    Cloud,
    Costs,
    ErrorGrid,
    class_bars,
    cost_curves,
    error_grids,
    head_clouds,
    learning_curves,
    width_profiles,
)

if TYPE_CHECKING:
    from aotlens.distill import ComparedDistillations, Distillation


def compared_distillations(result: ComparedDistillations, *, what: str = "heads", theme: Theme = "light") -> go.Figure:
    """Errors of all heads (`what="heads"`), by width (`"widths"`), against attention (`"attention"`), costs of heads
    replaced (`"costs"`); of the chosen head errors by kind of token (`"classes"`) and as training went on (`"curve"`).

    Raises `ValueError` for another `what`, and for what was not measured.
    """
    if what not in _FIGURES:
        raise ValueError(f"plot: what={what!r}: expected one of {', '.join(_FIGURES)}.")
    return _FIGURES[what](result, theme)


def hidden_units(width: int) -> str:
    """FFNs by their width, as a legend calls them."""
    return f"{width} hidden unit{'' if width == 1 else 's'}" if width else "linear map"


def _grids(result: ComparedDistillations, theme: Theme) -> go.Figure:
    grids = []
    for name, record in result.records.items():
        found = record.distillation
        n_layers, n_heads = found.attending.scores.values.shape[1:]  # of all of the model's heads
        errors = np.full((n_layers, n_heads), np.nan)
        notes = [["not distilled"] * n_heads for _ in range(n_layers)]
        means, intervals = found.mean_error(result.width), found.interval(result.width)
        for place, (layer, head) in enumerate(found.heads):
            errors[layer, head] = means[place]
            notes[layer][head] = _note(found, place, intervals[place])
        grids.append(ErrorGrid(key=name, name=name, errors=errors, notes=notes))
    return error_grids(grids, (result.of, *result.head), theme=theme)


def _note(found: Distillation, place: int, interval: np.ndarray) -> str:
    seeds = f"{found.n_seeds:,} seed{'' if found.n_seeds == 1 else 's'}"
    said = f"95%: {interval[0]:.3f} to {interval[1]:.3f}, over {found.text_unit} and {seeds}"
    said += f" · attends: {found.attending.attends[place].replace('_', ' ')}"
    return said if found.linear_error is None else f"{said} · linear map {found.linear_error[place]:.3f}"


def _widths(result: ComparedDistillations, theme: Theme) -> go.Figure:
    every = {name: record.distillation for name, record in result.records.items()}
    wides = sorted({found.settings.wide or 0 for found in every.values()} - {0})
    names = ["linear" if width == 0 else str(width) for width in result.widths]
    wide = "wide FFN" if len(wides) > 1 else f"wide FFN<br>({wides[0]})" if wides else ""
    others = [one for one in (wide, "position’s<br>mean", "neighbours", "least<br>of all") if one]

    def profile(found: Distillation, pick: Callable[[np.ndarray], float]) -> np.ndarray:
        values = [pick(found.mean_error(width)) if width in found.hidden else np.nan for width in result.widths]
        for name, errors in (
            (wide, found.wide_error), ("position’s<br>mean", found.position_error),
            ("neighbours", found.neighbour_error), ("least<br>of all", found.floor),
        ):  # fmt: skip
            if name:
                values.append(np.nan if errors is None else pick(errors))
        return np.array(values, dtype=np.float64)

    means, intervals = {}, {}
    for name, found in every.items():
        means[name] = profile(found, np.mean)  # type: ignore[arg-type]
        if len(found.heads) > 1:
            reach = np.repeat(means[name][:, None], 2, axis=1)
            for k, width in enumerate(result.widths):
                if width in found.hidden:
                    reach[k] = found.over_heads(width)[1:]
            intervals[name] = reach
    one = f"{result.of} {result.head[0]}.{result.head[1]}"
    head = (one, profile(result.found, lambda errors: errors[result.place]))
    figure = width_profiles([*names, *others], len(names), means, intervals, head, theme=theme)
    return figure.update_xaxes(title={"text": "FFNs, by hidden units · other predictors"})


def _clouds(result: ComparedDistillations, theme: Theme) -> go.Figure:
    clouds: list[Cloud] = []
    for name, record in result.records.items():
        found = record.distillation
        kinds = [label.replace("_", " ") for label in found.attending.attends]
        clouds.append(
            Cloud(
                key=name, name=name, heads=found.heads, errors=found.mean_error(result.width),
                intervals=found.interval(result.width), kinds=kinds,
                x=(found.attending.to(result.across), found.attending.constancy),
            )
        )  # fmt: skip
    titles = (f"mean attention: {result.across.replace('_', ' ')}", "pattern consistency over texts")
    return head_clouds(clouds, titles, (result.of, *result.head), kinds=result.kinds, theme=theme)


def _costs(result: ComparedDistillations, theme: Theme) -> go.Figure:
    result.cost_frame()  # says where there are none
    made = [
        Costs(
            name=f"{name}, {hidden_units(costs.width)}", sizes=costs.sizes, random=costs.random,
            curves={"FFNs, most FFN-like first": costs.by_error[0], "the same heads’ means": costs.by_error[1],
                    "the same heads zero": costs.by_error[2], "FFNs, least FFN-like first": costs.reverse},
        )
        for name, costs in ((name, record.costs) for name, record in result.records.items())
        if costs is not None
    ]  # fmt: skip
    return cost_curves(made, unit="loss, nats a token", theme=theme)


def _classes(result: ComparedDistillations, theme: Theme) -> go.Figure:
    frame = result.class_frame()
    return class_bars(
        frame["class"].replace("first", "first token").tolist(), frame["error"].to_numpy(), frame["tokens"].to_numpy(),
        frame["share_of_error"].to_numpy(), theme=theme,
    )  # fmt: skip


def _curve(result: ComparedDistillations, theme: Theme) -> go.Figure:
    frame = result.curve_frame()
    lines = {name.replace("_", " "): frame[name].to_numpy() for name in frame.columns[1:]}
    linear = result.found.linear_error
    references = {} if linear is None else {"linear map (held out)": float(linear[result.place])}
    return learning_curves(frame["tokens"].tolist(), lines, references, theme=theme)


_FIGURES: dict[str, Callable[[ComparedDistillations, Theme], go.Figure]] = {
    "heads": _grids, "widths": _widths, "attention": _clouds, "costs": _costs, "classes": _classes, "curve": _curve,
}  # fmt: skip
