"""Distilled heads: errors by head, by width and against attention; costs of heads replaced; one head closely."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from aotlens.conventions import head_name, require_choice, several
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, colorscale
from aotlens.plots.primitives import LEGEND, axes, cell_texts, line_colour, plotly_text, style_panels

if TYPE_CHECKING:
    from aotlens.distill import ComparedDistillations, Distillation, SubstitutionCosts

#: One head of one of the records: a key, its layer, its number.
MarkedHead = tuple[str, int, int]

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
_DASHES = ("solid", "dash", "dot", "dashdot")


def compared_distillations(result: ComparedDistillations, *, what: str = "heads", theme: Theme = "light") -> go.Figure:
    """Draw errors of all heads (`what="heads"`), by width (`"widths"`), against attention (`"attention"`), costs of
    heads replaced (`"costs"`); of the result's head errors by kind of token (`"classes"`) and during training
    (`"curve"`).

    Raises `ValueError` for another `what`, and if it was not measured.
    """
    return _FIGURES[require_choice("plot: what", what, _FIGURES)](result, theme)


def distillation(result: Distillation, *, width: int | None = None, theme: Theme = "light") -> go.Figure:
    """Draw every head's held-out error as a feed-forward network of `width` (the widest for None), 0 to 1."""
    width = max(result.hidden) if width is None else width
    name = f"{result.model_name}, {hidden_units(width)}".removeprefix(", ")
    return _error_grids({name: result}, width, theme=theme)


def substitution(result: SubstitutionCosts, *, theme: Theme = "light") -> go.Figure:
    """Draw the cost of replacing more and more heads, in four orders and by three replacements."""
    unit = "loss, nats a token" if result.measure == "loss" else "divergence, nats a token"
    return _cost_curves({hidden_units(result.width): result}, unit=unit, theme=theme)


def hidden_units(width: int) -> str:
    """Name FFNs by their width, as a legend calls them."""
    return several(width, "hidden unit") if width else "linear map"


def _heads(result: ComparedDistillations, theme: Theme) -> go.Figure:
    return _error_grids(_distillations(result), result.width, (result.of, *result.head), theme=theme)


def _distillations(result: ComparedDistillations) -> dict[str, Distillation]:
    return {name: record.distillation for name, record in result.records.items()}


def _error_grids(
    records: Mapping[str, Distillation], width: int, marked: MarkedHead | None = None, *, theme: Theme = "light"
) -> go.Figure:
    """A grid per model, layer 0 on top, cells of one height, a scale from 0 to 1; customdata is [key, layer, head,
    note]."""
    shapes = [record.attending.scores.values.shape[1:] for record in records.values()]  # of all of a model's heads
    deepest = max(n_layers for n_layers, _ in shapes)
    figure = make_subplots(
        1, len(shapes), column_widths=[n_heads for _, n_heads in shapes], horizontal_spacing=0.12 / len(shapes)
    )
    traces: list[go.Scatter] = []
    for place, (name, record) in enumerate(records.items(), 1):
        n_layers, n_heads = shapes[place - 1]
        errors = np.full((n_layers, n_heads), np.nan)
        custom = [[[name, i, j, "not distilled"] for j in range(n_heads)] for i in range(n_layers)]
        means, intervals = record.mean_error(width), record.interval(width)
        for index, (layer, head) in enumerate(record.heads):
            errors[layer, head] = means[index]
            custom[layer][head][3] = plotly_text(_note(record, index, intervals[index]))
        figure.add_heatmap(
            z=errors.astype(np.float32), x=[str(j) for j in range(n_heads)],
            y=[str(i) for i in range(n_layers)], customdata=custom, coloraxis="coloraxis", xgap=2, ygap=2,
            hovertemplate=f"{plotly_text(name)} %{{y}}.%{{x}}<br>error <b>%{{z:.3f}}</b>"
            "<br>%{customdata[3]}<extra></extra>", row=1, col=place, hoverongaps=False,
        )  # fmt: skip
        texts = [["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in errors]
        cells = figure.data[-1]
        traces.append(cell_texts(errors, texts, theme, x=cells.x, y=cells.y, low=0.0, high=1.0))
        low = 1 - n_layers / deepest
        figure.update_yaxes(
            autorange="reversed", type="category", domain=[low, 1], showgrid=False, zeroline=False, col=place, row=1
        )
        figure.update_xaxes(type="category", side="bottom", showgrid=False, zeroline=False, col=place, row=1)
        axis = figure.get_subplot(1, place)
        figure.add_annotation(
            text=f"<b>{plotly_text(name)}</b>", x=sum(axis.xaxis.domain) / 2, y=1, xref="paper", yref="paper",
            xanchor="center", yanchor="bottom", showarrow=False, yshift=4,
        )  # fmt: skip
        if marked is not None and marked[0] == name:
            _, layer, head = marked
            figure.add_shape(
                type="rect", x0=head - 0.47, x1=head + 0.47, y0=layer - 0.45, y1=layer + 0.45,
                line={"color": LINES[theme][1], "width": 3}, row=1, col=place,
            )  # fmt: skip
    for place, texts in enumerate(traces, 1):  # behind all grids, which a click knows by their numbers
        figure.add_trace(texts, row=1, col=place)
    style_panels(figure, theme)
    figure.update_layout(
        coloraxis={
            "colorscale": colorscale("sequential", theme), "cmin": 0, "cmax": 1,
            "colorbar": {"title": {"text": "held-out error", "side": "right"}, "thickness": 12, "outlinewidth": 0},
        },
        margin={"t": 30},
    )  # fmt: skip
    figure.update_xaxes(title={"text": "head", "standoff": 4})
    figure.update_yaxes(title={"text": "layer"}, col=1)
    return figure


def _note(record: Distillation, place: int, interval: np.ndarray) -> str:
    seeds = f"{record.n_seeds:,} seed{'' if record.n_seeds == 1 else 's'}"
    note = f"over {record.text_unit} and {seeds}"
    if np.isfinite(interval).all():
        note = f"95%: {interval[0]:.3f} to {interval[1]:.3f}, {note}"
    note += f" · attends: {record.attending.attends[place].replace('_', ' ')}"
    return note if record.linear_error is None else f"{note} · linear map {record.linear_error[place]:.3f}"


def _widths(result: ComparedDistillations, theme: Theme) -> go.Figure:
    """Mean error over a model's heads by width, other predictors, and the result's head; a long bar leaves the
    picture."""
    every = _distillations(result)
    wides = sorted({record.settings.wide or 0 for record in every.values()} - {0})
    names = ["linear" if width == 0 else str(width) for width in result.widths]
    wide = "wide FFN" if len(wides) > 1 else f"wide FFN<br>({wides[0]})" if wides else ""
    others = [name for name in (wide, "position’s<br>mean", "neighbours", "least<br>of all") if name]

    def profile(record: Distillation, pick: Callable[[np.ndarray], float]) -> np.ndarray:
        values = [pick(record.mean_error(width)) if width in record.hidden else np.nan for width in result.widths]
        for name, errors in (
            (wide, record.wide_error), ("position’s<br>mean", record.position_error),
            ("neighbours", record.neighbour_error), ("least<br>of all", record.floor),
        ):  # fmt: skip
            if name:
                values.append(np.nan if errors is None else pick(errors))
        return np.array(values, dtype=np.float64)

    means, intervals = {}, {}
    for name, distilled in every.items():
        means[name] = profile(distilled, np.mean)  # type: ignore[arg-type]
        if len(distilled.heads) > 1:
            reach = np.repeat(means[name][:, None], 2, axis=1)
            for k, width in enumerate(result.widths):
                if width in distilled.hidden:
                    reach[k] = distilled.over_heads(width)[1:]
            intervals[name] = reach
    categories, n_lines = [*names, *others], len(names)
    head = f"{result.of} {head_name(result.head)}", profile(result.found, lambda errors: errors[result.place])
    errors = np.concatenate([*means.values(), head[1]])
    ceiling = max(1.0, float(errors[np.isfinite(errors)].max(initial=0.0)))
    across = {
        "type": "category", "categoryorder": "array", "categoryarray": list(categories), "showgrid": False,
        "range": [-0.4, len(categories) - 0.6], "tickangle": 0,
    }  # fmt: skip
    figure = axes(
        theme, "FFNs, by hidden units · other predictors", "held-out error", xaxis=across,
        yaxis={"range": [0, 1.07 * ceiling]}, hovermode="x unified", margin={"l": 8, "r": 8, "t": 40, "b": 8},
    )  # fmt: skip
    series = [(name, values, line_colour(theme, k), "solid") for k, (name, values) in enumerate(means.items())]
    series.append((*head, INK[theme], "dot"))
    for place, (name, values, colour, dash) in enumerate(series):
        for part in (slice(0, n_lines), slice(n_lines, None)):
            joined, bars = part.start == 0, None
            if name in intervals:
                low, high = intervals[name][part].T
                bars = {"type": "data", "array": high - values[part], "arrayminus": values[part] - low,
                        "thickness": 1.2, "width": 4}  # fmt: skip
            figure.add_scatter(
                x=list(categories[part]), y=values[part].astype(np.float32), name=plotly_text(name), legendgroup=name,
                mode="lines+markers" if joined else "markers", showlegend=joined, error_y=bars,
                line={"width": 1.8, "color": colour, "dash": dash}, connectgaps=True,
                marker={"symbol": _symbol(place) + ("" if joined else "-open"), "size": 9, "color": colour},
                hovertemplate="%{y:.3f}",
            )  # fmt: skip
    return figure.add_vline(x=n_lines - 0.5, line={"width": 1, "dash": "dot", "color": QUIET_INK[theme]})


def _clouds(result: ComparedDistillations, theme: Theme) -> go.Figure:
    titles = (f"mean attention: {result.across.replace('_', ' ')}", "pattern consistency over texts")
    every = _distillations(result)
    x = {
        name: (record.attending.to(result.across), record.attending.pattern_consistency)
        for name, record in every.items()
    }
    return head_clouds(every, result.width, x, titles, (result.of, *result.head), kinds=result.kinds, theme=theme)


def head_clouds(
    records: Mapping[str, Distillation],
    width: int,
    x: Mapping[str, Sequence[Float[np.ndarray, " head"]]],
    titles: Sequence[str],
    marked: MarkedHead | None = None,
    *,
    kinds: Sequence[str],
    theme: Theme = "light",
) -> go.Figure:
    """Draw error against each of several quantities `x`: colour is where a head attends, shape its model, bars the
    interval.

    `kinds` are all kinds of points, in the order of the legend: each keeps its colour, the last is grey. A point's
    customdata is [key, layer, head]; the `marked` head has a ring.
    """
    of_kind = {
        name: [label.replace("_", " ") for label in record.attending.attends] for name, record in records.items()
    }
    figure = make_subplots(1, len(titles), shared_yaxes=True, horizontal_spacing=0.04)
    colours = {kind: line_colour(theme, place) for place, kind in enumerate(kinds)}
    colours[kinds[-1]] = QUIET_INK[theme]
    for column, title in enumerate(titles, 1):
        for place, (name, record) in enumerate(records.items()):
            errors, (low, high) = record.mean_error(width), record.interval(width).T
            figure.add_scatter(
                x=x[name][column - 1].astype(np.float32), y=errors.astype(np.float32), mode="markers",
                showlegend=False, row=1, col=column,
                error_y={"type": "data", "array": high - errors, "arrayminus": errors - low, "width": 0,
                         "thickness": 0.8, "color": QUIET_INK[theme]},
                customdata=[[name, *head] for head in record.heads],
                text=[f"{plotly_text(name)} {i}.{j}, {kind}"
                      for (i, j), kind in zip(record.heads, of_kind[name], strict=True)],
                marker={"size": 9, "symbol": _symbol(place), "color": [colours[kind] for kind in of_kind[name]],
                        "line": {"width": 0.6, "color": BACKGROUND[theme]}},
                hovertemplate="<b>%{text}</b><br>" + plotly_text(title) + " %{x:.2f}, error %{y:.3f}<extra></extra>",
            )  # fmt: skip
            for k, head in enumerate(record.heads):
                if marked == (name, *head):
                    figure.add_scatter(
                        x=[x[name][column - 1][k]], y=[errors[k]], mode="markers", showlegend=False,
                        hoverinfo="skip", row=1, col=column,
                        marker={"size": 17, "symbol": "circle-open", "color": LINES[theme][1], "line": {"width": 2.5}},
                    )  # fmt: skip
        figure.update_xaxes(title={"text": plotly_text(title)}, zeroline=False, row=1, col=column)
    used = [kind for kind in kinds if any(kind in own for own in of_kind.values())]
    legend = [(kind, "circle", colours[kind]) for kind in used]
    if len(records) > 1:
        legend += [(name, f"{_symbol(k)}-open", INK[theme]) for k, name in enumerate(records)]
    for name, symbol, colour in legend:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=plotly_text(name), row=1, col=1,
            marker={"size": 9, "symbol": symbol, "color": colour},
        )  # fmt: skip
    style_panels(figure, theme)
    legend_look = {**LEGEND, "itemclick": False, "itemdoubleclick": False}
    figure.update_layout(legend=legend_look, margin={"t": 44}, hovermode="closest")
    figure.update_yaxes(title={"text": "held-out error"}, rangemode="tozero", row=1, col=1)
    return figure


def _costs(result: ComparedDistillations, theme: Theme) -> go.Figure:
    result.cost_frame()  # raises if no record has costs
    every = {name: record.costs for name, record in result.records.items()}
    curves = {f"{name}, {hidden_units(costs.width)}": costs for name, costs in every.items() if costs is not None}
    return _cost_curves(curves, theme=theme)


def _cost_curves(
    costs: Mapping[str, SubstitutionCosts], *, unit: str = "loss, nats a token", theme: Theme = "light"
) -> go.Figure:
    """A panel per model, on one scale: added loss by the number of heads replaced; a band for random orders."""
    figure = make_subplots(
        1, len(costs), shared_yaxes=True, horizontal_spacing=0.03,
        subplot_titles=[plotly_text(name) for name in costs],
    )  # fmt: skip
    for column, cost in enumerate(costs.values(), 1):
        x = list(cost.sizes)
        curves = {
            "FFNs, most FFN-like first": cost.by_error[0], "the same heads’ means": cost.by_error[1],
            "the same heads zero": cost.by_error[2], "FFNs, least FFN-like first": cost.reverse,
        }  # fmt: skip
        figure.add_scatter(
            x=[*x, *x[::-1]], y=[*cost.random.max(0), *cost.random.min(0)[::-1]], fill="toself", mode="lines",
            hoverinfo="skip", line={"width": 0, "color": QUIET_INK[theme]}, opacity=0.35, name="FFNs, random orders",
            legendgroup="random", showlegend=column == 1, row=1, col=column,
        )  # fmt: skip
        for place, (name, values) in enumerate(curves.items()):
            figure.add_scatter(
                x=x, y=values.astype(np.float32), name=plotly_text(name), legendgroup=name, showlegend=column == 1,
                mode="lines+markers", row=1, col=column, hovertemplate="%{y:+.3f}",
                line={"width": 1.8, "color": LINES[theme][place], "dash": _DASHES[place % 4]},
                marker={"size": 7, "symbol": ("circle", "diamond", "square", "x")[place % 4]},
            )  # fmt: skip
        figure.update_xaxes(type="log", tickvals=x, showgrid=False, title={"text": "heads replaced"}, row=1, col=column)
    style_panels(figure, theme)
    figure.update_layout(hovermode="x unified", margin={"t": 64}, legend={**LEGEND, "y": 1.1})
    figure.update_annotations(font={"size": 12}, yshift=2)
    figure.update_yaxes(zeroline=True, zerolinecolor=INK[theme], zerolinewidth=1)
    figure.update_yaxes(title={"text": f"added {unit}"}, row=1, col=1)
    return figure


def _classes(result: ComparedDistillations, theme: Theme) -> go.Figure:
    """Error among each kind of token; on the bars, its shares of tokens and of the squared error."""
    frame = result.class_frame()
    errors = frame["error"].to_numpy()
    figure = go.Figure(
        go.Bar(
            y=frame["class"].replace("first", "first token").tolist(), orientation="h",
            x=errors.astype(np.float32), marker={"color": LINES[theme][0]},
            text=[f"{_percent(share)} of tokens, {_percent(part)} of the error"
                  for share, part in zip(frame["tokens"], frame["share_of_error"], strict=True)],
            textposition="outside", cliponaxis=False,
            hovertemplate="%{y}: error <b>%{x:.3f}</b><br>%{text}<extra></extra>",
        )
    )  # fmt: skip
    reach = 2.4 * max(float(errors.max()), 1e-6)
    style_panels(figure, theme).update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure.update_xaxes(title={"text": "error among tokens of the kind"}, range=[0, reach])


def _curve(result: ComparedDistillations, theme: Theme) -> go.Figure:
    """Validation error during training, a line per seed, and the linear map's level."""
    frame, linear = result.curve_frame(), result.found.linear_error
    tokens = frame["tokens"].tolist()
    across, up = {"rangemode": "tozero", "showgrid": False}, {"rangemode": "tozero"}
    figure = axes(
        theme, "training tokens", "error on validation text", xaxis=across, yaxis=up, hovermode="x unified",
        margin={"l": 8, "r": 8, "t": 40, "b": 8}, showlegend=True,
    )  # fmt: skip
    for name in frame.columns[1:]:
        figure.add_scatter(
            x=tokens, y=frame[name].to_numpy().astype(np.float32), name=name.replace("_", " "),
            mode="lines", line={"width": 1.8}, hovertemplate="%{y:.4f}",
        )  # fmt: skip
    if linear is not None:
        level = float(linear[result.place])
        # In the legend, since beside its line the name would lie on the curves.
        figure.add_scatter(
            x=[0, tokens[-1]], y=[level, level], name=f"linear map (held out) {level:.3f}", mode="lines",
            line={"dash": "dot", "width": 1.4, "color": INK[theme]}, hoverinfo="skip",
        )  # fmt: skip
    return figure


def _symbol(place: int) -> str:
    return _SYMBOLS[place % len(_SYMBOLS)]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or share == 0 else "<1%"


_FIGURES: dict[str, Callable[[ComparedDistillations, Theme], go.Figure]] = {
    "heads": _heads, "widths": _widths, "attention": _clouds, "costs": _costs, "classes": _classes, "curve": _curve,
}  # fmt: skip
