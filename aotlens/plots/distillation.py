"""Distilled heads: errors by head, by width and against attention; costs of heads replaced; one head closely."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from aotlens.conventions import head_name
from aotlens.plots.cells import cell_texts
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.distill import ComparedDistillations, Distillation, SubstitutionCosts

#: The head that is looked at: a key, its layer, its number.
Chosen = tuple[str, int, int]

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
_DASHES = ("solid", "dash", "dot", "dashdot")


def compared_distillations(result: ComparedDistillations, *, what: str = "heads", theme: Theme = "light") -> go.Figure:
    """Draw errors of all heads (`what="heads"`), by width (`"widths"`), against attention (`"attention"`), costs of
    heads replaced (`"costs"`); of the chosen head errors by kind of token (`"classes"`) and as training went on
    (`"curve"`).

    Raises `ValueError` for another `what`, and for what was not measured.
    """
    if what not in _FIGURES:
        raise ValueError(f"plot: what={what!r}: expected one of {', '.join(_FIGURES)}.")
    return _FIGURES[what](result, theme)


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
    return f"{width} hidden unit{'' if width == 1 else 's'}" if width else "linear map"


def _heads(result: ComparedDistillations, theme: Theme) -> go.Figure:
    every = {name: record.distillation for name, record in result.records.items()}
    return _error_grids(every, result.width, (result.of, *result.head), theme=theme)


def _error_grids(
    records: Mapping[str, Distillation], width: int, chosen: Chosen | None = None, *, theme: Theme = "light"
) -> go.Figure:
    """A grid a model, layer 0 on top, all cells of one height and on one scale from 0 to 1 (above 1: 1's colour).

    A point's customdata is [key, layer, head, note]; the chosen head has a frame, and one not distilled is blank.
    """
    shapes = [each.attending.scores.values.shape[1:] for each in records.values()]  # of all of a model's heads
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
            xanchor="center",
            yanchor="bottom", showarrow=False, yshift=4,
        )  # fmt: skip
        if chosen is not None and chosen[0] == name:
            figure.add_shape(
                type="rect", x0=chosen[2] - 0.47, x1=chosen[2] + 0.47, y0=chosen[1] - 0.45, y1=chosen[1] + 0.45,
                line={"color": LINES[theme][1], "width": 3}, row=1, col=place,
            )  # fmt: skip
    for place, texts in enumerate(traces, 1):  # behind all grids, which a click knows by their numbers
        figure.add_trace(texts, row=1, col=place)
    _lay_out(figure, theme)
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
    """Mean error over a model's heads at each width, joined by a line, and beside them what else was tried; the chosen
    head is one more line.

    The picture reaches from 0 to above the largest mean, at least to 1: an interval over two or three heads may be many
    times as long, and its bar then leaves the picture.
    """
    every = {name: record.distillation for name, record in result.records.items()}
    wides = sorted({each.settings.wide or 0 for each in every.values()} - {0})
    names = ["linear" if width == 0 else str(width) for width in result.widths]
    wide = "wide FFN" if len(wides) > 1 else f"wide FFN<br>({wides[0]})" if wides else ""
    others = [each for each in (wide, "position’s<br>mean", "neighbours", "least<br>of all") if each]

    def profile(of: Distillation, pick: Callable[[np.ndarray], float]) -> np.ndarray:
        values = [pick(of.mean_error(width)) if width in of.hidden else np.nan for width in result.widths]
        for name, errors in (
            (wide, of.wide_error), ("position’s<br>mean", of.position_error),
            ("neighbours", of.neighbour_error), ("least<br>of all", of.floor),
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
    figure = go.Figure()
    colours = LINES[theme]
    series = [(name, values, colours[k % len(colours)], "solid") for k, (name, values) in enumerate(means.items())]
    series.append((*head, INK[theme], "dot"))
    for place, (name, values, colour, dash) in enumerate(series):
        bars = None
        if name in intervals:
            low, high = intervals[name].T
            bars = {"type": "data", "array": high - values, "arrayminus": values - low, "thickness": 1.2, "width": 4}
        for part in (slice(0, n_lines), slice(n_lines, None)):
            joined = part.start == 0
            figure.add_scatter(
                x=list(categories[part]), y=values[part].astype(np.float32), name=plotly_text(name), legendgroup=name,
                mode="lines+markers" if joined else "markers", showlegend=joined,
                error_y=None if bars is None else {**bars, "array": bars["array"][part],
                                                   "arrayminus": bars["arrayminus"][part]},
                line={"width": 1.8, "color": colour, "dash": dash}, connectgaps=True,
                marker={"symbol": _symbol(place) + ("" if joined else "-open"), "size": 9, "color": colour},
                hovertemplate="%{y:.3f}",
            )  # fmt: skip
    _lay_out(figure, theme)
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    figure.update_layout(margin={"t": 40})
    figure.update_xaxes(
        type="category", categoryorder="array", categoryarray=list(categories), showgrid=False,
        range=[-0.4, len(categories) - 0.6],
    )  # fmt: skip
    figure.add_vline(x=n_lines - 0.5, line={"width": 1, "dash": "dot", "color": QUIET_INK[theme]})
    known = np.concatenate([values[np.isfinite(values)] for _, values, _, _ in series])
    figure.update_yaxes(title={"text": "held-out error"}, range=[0, 1.07 * max(1.0, float(known.max(initial=0.0)))])
    return figure.update_xaxes(tickangle=0, title={"text": "FFNs, by hidden units · other predictors"})


def _clouds(result: ComparedDistillations, theme: Theme) -> go.Figure:
    titles = (f"mean attention: {result.across.replace('_', ' ')}", "pattern consistency over texts")
    every = {name: record.distillation for name, record in result.records.items()}
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
    chosen: Chosen | None = None,
    *,
    kinds: Sequence[str],
    theme: Theme = "light",
) -> go.Figure:
    """Draw error against each of several quantities `x`: colour is where a head attends, shape its model, bars the
    interval.

    `kinds` are all kinds that a point can be of, in the order of the legend: each has its colour whatever else is
    there, the last is grey. A point's customdata is [key, layer, head]; the chosen head has a ring.
    """
    of_kind = {
        name: [label.replace("_", " ") for label in record.attending.attends] for name, record in records.items()
    }
    figure = make_subplots(1, len(titles), shared_yaxes=True, horizontal_spacing=0.04)
    colours = {kind: LINES[theme][place % len(LINES[theme])] for place, kind in enumerate(kinds)}
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
                if chosen == (name, *head):
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
    _lay_out(figure, theme)
    figure.update_layout(
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False},
        margin={"t": 44}, hovermode="closest",
    )  # fmt: skip
    figure.update_yaxes(title={"text": "held-out error"}, rangemode="tozero", row=1, col=1)
    return figure


def _costs(result: ComparedDistillations, theme: Theme) -> go.Figure:
    result.cost_frame()  # says where there are none
    every = {name: record.costs for name, record in result.records.items()}
    curves = {f"{name}, {hidden_units(costs.width)}": costs for name, costs in every.items() if costs is not None}
    return _cost_curves(curves, theme=theme)


def _cost_curves(
    costs: Mapping[str, SubstitutionCosts], *, unit: str = "loss, nats a token", theme: Theme = "light"
) -> go.Figure:
    """A picture a model, on one scale: added loss against how many heads are replaced; a band for random orders."""
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
    _lay_out(figure, theme)
    figure.update_layout(
        hovermode="x unified", margin={"t": 64}, legend={"orientation": "h", "y": 1.1, "yanchor": "bottom"}
    )
    figure.update_annotations(font={"size": 12}, yshift=2)
    figure.update_yaxes(zeroline=True, zerolinecolor=INK[theme], zerolinewidth=1)
    figure.update_yaxes(title={"text": f"added {unit}"}, row=1, col=1)
    return figure


def _classes(result: ComparedDistillations, theme: Theme) -> go.Figure:
    """Error among each kind of token; on the bars, which share of tokens and of the squared error they are."""
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
    _lay_out(figure, theme)
    figure.update_xaxes(
        title={"text": "error among tokens of the kind"}, range=[0, 2.4 * max(float(errors.max()), 1e-6)]
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def _curve(result: ComparedDistillations, theme: Theme) -> go.Figure:
    """Validation error as training goes on, one line a seed, and the linear map's level to compare with."""
    frame, linear = result.curve_frame(), result.found.linear_error
    tokens = frame["tokens"].tolist()
    figure = go.Figure()
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
    _lay_out(figure, theme)
    figure.update_layout(hovermode="x unified", margin={"t": 40})
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True)
    figure.update_xaxes(title={"text": "training tokens"}, rangemode="tozero", showgrid=False)
    figure.update_yaxes(title={"text": "error on validation text"}, rangemode="tozero")
    return figure


def _symbol(place: int) -> str:
    return _SYMBOLS[place % len(_SYMBOLS)]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or share == 0 else "<1%"


def _lay_out(figure: go.Figure, theme: Theme) -> None:
    """The shared look, on every axis."""
    layout = base_layout(theme)
    axes = {name: layout.pop(name) for name in ("xaxis", "yaxis")}
    figure.update_layout(layout)
    figure.update_xaxes(axes["xaxis"])
    figure.update_yaxes(axes["yaxis"])


_FIGURES: dict[str, Callable[[ComparedDistillations, Theme], go.Figure]] = {
    "heads": _heads, "widths": _widths, "attention": _clouds, "costs": _costs, "classes": _classes, "curve": _curve,
}  # fmt: skip
