"""Numbers of heads: maps of scores, similarities of every two heads, points with intervals, skip-trigrams by
verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import head_name, require_choice
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, QUIET_INK, Theme, base_layout
from aotlens.plots.primitives import LEGEND, axes, error_bars, head_map, head_points, matrix_map, names_of_heads

if TYPE_CHECKING:
    from aotlens.heads import (
        EachHead,
        HeadMatching,
        HeadScores,
        MotifScores,
        PatternConsistency,
        RepeatedPatterns,
        ShapleyValues,
        SufficientHeads,
        Universality,
    )
    from aotlens.trigrams import Evidence, TrigramRows


def motifs(scores: MotifScores, *, motif: str | None = None, excess: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw one motif's score of every head, layers down and heads across; without a name induction, or else the first.
    With `excess`, attention to the keys of each motif beyond chance, a row per head."""
    if excess:
        rows = names_of_heads(scores.excess.shape[1:])
        columns = [name.replace("_", " ") for name in scores.motifs]
        values = scores.excess.reshape(len(columns), -1).T
        return matrix_map(
            values, rows, columns, quantity="attention − chance", row_title="head", column_title="", theme=theme
        )
    motif = motif or ("induction" if "induction" in scores.motifs else scores.motifs[0])
    return head_map(np.asarray(scores[motif]), f"attention: {motif.replace('_', ' ')}", theme, shares=True)


def head_scores(result: HeadScores, *, score: str | None = None, theme: Theme = "light") -> go.Figure:
    """Draw one score of every head less its chance, layers down and heads across; without a name the first measured
    one."""
    name = score or next(iter(result.measured), result.scores[0])
    values = result.excess[result.scores.index(require_choice("plot: score", name, result.scores))]
    return head_map(np.asarray(values), f"{name.replace('_', ' ')} − chance", theme)


def pattern_consistency(
    result: PatternConsistency, *, without_first: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw every head's pattern consistency, layers down and heads across; with key 0 or without it."""
    values = result.without_first if without_first else result.values
    return head_map(np.asarray(values), "pattern consistency" + (" without key 0" if without_first else ""), theme)


def repeated(result: RepeatedPatterns, *, theme: Theme = "light") -> go.Figure:
    """Draw the distance of every two heads' patterns, heads of one group side by side."""
    order = np.argsort(result.groups, kind="stable")
    several = len(result.models) > 1
    names = [
        (f"{result.models[place]} " if several else "") + head_name(head)
        for place, head in (result.heads[index] for index in order)
    ]
    values = np.asarray(result.distances)[np.ix_(order, order)]
    title = "head, by group"
    return matrix_map(
        values, names, names, quantity="Jensen–Shannon distance", row_title=title, column_title=title, theme=theme
    )


def matching(result: HeadMatching, *, by: str | None = None, theme: Theme = "light") -> go.Figure:
    """Draw the similarity of every two heads, by one measure (ov, qk, pattern) or the mean of all."""
    if by is not None and by not in result.measured:
        raise ValueError(f"plot: no measure {by!r}; there are {', '.join(result.measured)}.")
    values = np.asarray(result.similarity if by is None else getattr(result, by))
    rows, columns = (list(map(head_name, side)) for side in (result.left, result.right))
    quantity = "mean similarity" if by is None else f"{by} cosine"
    return matrix_map(
        values, rows, columns, quantity=quantity, row_title="left head", column_title="right head", theme=theme
    )


def universality(
    result: Universality, *, by: str | None = None, blocks: bool = False, layers: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw the similarity of every two heads of all models by one evidence (that of the groups), groups side by side;
    with `blocks` model by model, and heads that are assigned to each other have a square; with `layers` instead how
    much the heads of each layer recur above permuted ones, a line per test."""
    if layers:
        return _by_layer(result, theme)
    evidence = result.grouped_by[0] if by is None else by
    keys = [(result.models[place], head) for place, head in zip(result.model, result.heads, strict=True)]
    grouped = [] if blocks else [keys.index(key) for group in result.groups for key in group.heads]
    order = grouped + [place for place in range(len(keys)) if place not in set(grouped)]
    names = [f"{keys[place][0]} {head_name(keys[place][1])}" for place in order]
    values = result.of(evidence)[np.ix_(order, order)]
    figure = matrix_map(values, names, names, quantity=evidence, row_title="head", column_title="head", theme=theme)
    if blocks:
        ends = np.concatenate([result.pairs, result.pairs[:, ::-1]]).T
        first, other = np.array(figure.data[0].x)[ends]
        line = {"width": 1.5, "color": INK[theme]}
        colours = np.where(np.abs(values[*ends]) > np.abs(values).max() / 2, BACKGROUND[theme], INK[theme])
        figure.add_scatter(
            x=first, y=other, mode="markers", name="assigned to each other", hoverinfo="skip", showlegend=False,
            marker={"symbol": "square-open", "size": 9, "color": colours, "line": {"width": 1.5}},
        )  # fmt: skip
        edges = [-0.5, len(names) - 0.5]
        figure.update_layout(xaxis={"range": edges}, yaxis={"range": edges[::-1], "autorange": None})
        for edge in np.flatnonzero(np.diff(result.model)) + 0.5:
            figure.add_hline(y=edge, line=line).add_vline(x=edge, line=line)
    return figure


def _by_layer(result: Universality, theme: Theme) -> go.Figure:
    """Each test's excess over permuted heads by layer, with intervals over models."""
    ticks = {"tickvals": list(range(result.by_layer.shape[1]))}
    figure = axes(theme, "layer", "above permuted heads", xaxis=ticks, showlegend=True)
    for place, (names, rows) in enumerate(result.layers_frame().groupby(["matched", "tested"], sort=False)):
        beside = (place - (len(result.tests) - 1) / 2) * 0.06  # so that intervals do not lie on each other
        bars = error_bars(rows.excess, rows.low, rows.high, width=0, thickness=1.2)
        figure.add_scatter(
            x=rows.layer + beside, y=rows.excess, mode="lines+markers", name=f"{names[0]}, tested by {names[1]}",
            line={"width": 1.6, "color": LINES[theme][place]}, marker={"size": 8},
            error_y={**bars, "array": bars["array"].fillna(0), "arrayminus": bars["arrayminus"].fillna(0)},
            customdata=rows[["layer", "low", "high"]].to_numpy(),
            hovertemplate="layer %{customdata[0]}: %{y:+.3f} (%{customdata[1]:+.3f} to %{customdata[2]:+.3f})",
        )  # fmt: skip
    return figure.add_hline(y=0, line={"color": INK[theme], "width": 1, "dash": "dot"})


def each_head(result: EachHead, *, theme: Theme = "light") -> go.Figure:
    """Draw the change of the model's loss without each head alone, with intervals; heads not left out are blank."""
    layers, heads = np.array(result.heads).T
    values = np.full((layers.max() + 1, heads.max() + 1, 3), np.nan)
    values[layers, heads] = np.column_stack([result.changes, result.intervals()])
    return head_points(values[..., 0], values[..., 1:], quantity=f"change in {result.unit}", theme=theme)


def sufficient_points(result: SufficientHeads, *, theme: Theme = "light") -> go.Figure:
    """Draw the faithfulness of the set without each of its heads, and of the full model without it, with intervals;
    dotted, the faithfulness to keep; at the left the set itself. A filled point is necessary, a ring is not, a ring
    with a dot is undecided."""
    names = list(map(head_name, result.heads))
    places = np.arange(1, len(names) + 1)
    figure = _axis_of_heads([0, *places], ["the set", *names], "without head", "faithfulness", theme)
    figure.add_hline(y=result.keep, line={"color": INK[theme], "width": 1, "dash": "dot"})
    _add(figure, "the set", [0], [result.faithfulness], [result.interval], ["the set"], [""], LINES[theme][2])
    series = (
        ("the set without it", -0.12, result.within, result.within_intervals, result.necessary_within),
        ("the model without it", 0.12, result.without, result.without_intervals, result.necessary_in_model),
    )
    for index, (name, shift, values, intervals, verdicts) in enumerate(series):
        if names:
            _add(figure, name, places + shift, values, intervals, names, verdicts, LINES[theme][index])
    return figure


def shapley_points(result: ShapleyValues, *, theme: Theme = "light") -> go.Figure:
    """Draw each head's Shapley value with its interval, and what it adds before all other heads and after them."""
    names = names_of_heads(result.values.shape)
    places = np.arange(len(names))
    figure = _axis_of_heads(places, names, "head", result.unit, theme)
    nothing = [""] * len(names)
    _add(figure, "Shapley value", places, result.values.ravel(), result.intervals, names, nothing, LINES[theme][0])
    series = (("alone", result.first, "triangle-up-open"), ("after all others", result.last, "triangle-down-open"))
    for index, (name, values, symbol) in enumerate(series, start=1):
        figure.add_scatter(
            x=places, y=values.ravel(), name=name, mode="markers", text=names,
            marker={"size": 8, "color": LINES[theme][index], "symbol": symbol},
            hovertemplate=f"{name}<br>%{{text}}<br>%{{y:+.4f}}<extra></extra>",
        )  # fmt: skip
    return figure


def _axis_of_heads(places: Any, names: Sequence[str], title: str, y_title: str, theme: Theme) -> go.Figure:
    """A figure with a place for each name, and room at both ends."""
    across = {"tickvals": places, "ticktext": names, "range": [-0.6, len(names) - 0.4], "zeroline": False}
    up = {"zeroline": True, "zerolinecolor": INK[theme]}
    return axes(theme, title, y_title, height=360, xaxis=across, yaxis=up, showlegend=True)


_SYMBOLS = {"necessary": "circle", "not necessary": "circle-open", "undecided": "circle-open-dot"}


def _add(
    figure: go.Figure,
    name: str,
    x: Any,
    values: Any,
    intervals: Any,
    names: Sequence[str],
    verdicts: Sequence[str],
    colour: str,
) -> None:
    low, high = np.asarray(intervals, float).reshape(-1, 2).T
    y = np.asarray(values, float)
    texts = [f"{head}: {verdict}" if verdict else head for head, verdict in zip(names, verdicts, strict=True)]
    bars = error_bars(y, low, high, width=0, thickness=1.2, color=colour)
    reach = "%{y:.3f} (%{customdata[0]:.3f} to %{customdata[1]:.3f})"
    figure.add_scatter(
        x=x, y=y, name=name, mode="markers", text=texts,
        marker={"size": 9, "color": colour, "symbol": [_SYMBOLS.get(verdict, "diamond") for verdict in verdicts]},
        error_y={**bars, "array": np.nan_to_num(bars["array"]), "arrayminus": np.nan_to_num(bars["arrayminus"])},
        customdata=np.stack([low, high], -1),
        hovertemplate=f"{name}<br>%{{text}}<br>{reach}<extra></extra>",
    )  # fmt: skip


#: Verdicts that say nothing, or no; drawn in grey.
_QUIET = ("not confirmed", "too rare", "not checked")


def verdicts(result: Evidence | TrigramRows, *, theme: Theme = "light") -> go.Figure:
    """Draw the number of rows of each kind, and of those that the text confirms: a bar per kind, a part a verdict."""
    frame = result.by_kind()
    colours = iter(LINES[theme])
    greys = iter((QUIET_INK[theme], QUIET[theme]))
    layout = base_layout(theme, barmode="stack", bargap=0.3, legend={**LEGEND, "traceorder": "normal"})
    figure = go.Figure(layout=layout)
    for part in frame:
        numbers = frame[part]
        figure.add_bar(
            x=numbers, y=list(frame.index), orientation="h", name=part,
            text=[f"{number:,}" if number else "" for number in numbers], textposition="auto",
            marker={"color": next(greys if part in _QUIET else colours)},
            hovertemplate=f"%{{y}}: %{{x:,}} {part}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title={"text": "rows"}, rangemode="tozero")
    return figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
