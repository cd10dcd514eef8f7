"""Training: the curve of a checkpoint, the ledger of the loss, an analysis of each snapshot of a run, and influences of
training windows: by step, by retraining, and what is left without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aotlens.conventions import minus
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, Theme, base_layout
from aotlens.plots.primitives import (
    LEGEND,
    add_level,
    axes,
    error_bars,
    line_colour,
    plotly_text,
    spaced,
    style_panels,
)

if TYPE_CHECKING:
    from aotlens.dynamics import (
        Influence,
        InfluenceCheck,
        InfluenceProperties,
        InfluentialWindows,
        Ledger,
        OverTraining,
        Removal,
        Retrained,
    )

#: The quantities that the horizontal axis may have, best first, and their titles.
_PROGRESS = {
    "tokens_seen": "training tokens",
    "tokens": "training tokens",
    "images": "training images",
    "prompts": "training prompts",
    "step": "step",
}

#: Columns that say how training went rather than how well.
_NOT_PLOTTED = {*_PROGRESS, "tokens_per_second", "seconds", "learning_rate", "lr", "gradient_norm", "grad_norm"}


def training_curve(
    history: Sequence[Mapping[str, Any]],
    *,
    references: Mapping[str, float] | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """Draw losses in nats over training and, below them, scores of heads where they were logged.

    `history` has one mapping a logged step; a column may be missing from some of them. A column whose name ends in
    `loss` is a loss, any other number from 0 to 1 is a score. `references` are levels to compare with, such as a
    bigram model's loss. Raises `ValueError` when there is nothing to draw.
    """
    progress = next((key for key in _PROGRESS if any(key in row for row in history)), None)
    columns = _columns(history)
    if progress is None or not columns:
        raise ValueError(
            f"training_curve: expected rows with one of {', '.join(_PROGRESS)} and a loss, got {len(history)} rows"
            f" with {', '.join(sorted({key for row in history for key in row})) or 'nothing'}."
        )
    losses = [name for name in columns if name.endswith("loss")]
    scores = [name for name in columns if name not in losses]
    both = bool(scores and losses)
    figure = make_subplots(
        rows=1 + both, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.62, 0.38] if both else None
    )
    for name in columns:
        x, y = _series(history, progress, name)
        figure.add_trace(
            go.Scatter(x=x, y=y, name=name.replace("_", " "), mode="lines" if len(x) > 1 else "markers",
                       line={"width": 1.8}, hovertemplate="%{y:.4f}"),
            row=2 if both and name in scores else 1, col=1,
        )  # fmt: skip
    for name, level in (references or {}).items():
        add_level(figure, level, f"{name} {level:.3f}", theme, row=1, col=1)
    style_panels(figure, theme).update_layout(hovermode="x unified", legend=LEGEND)
    figure.update_xaxes(title_text=_PROGRESS[progress], row=1 + both, col=1)
    figure.update_yaxes(title_text="loss (nats)" if losses else "score", row=1, col=1)
    if both:
        figure.update_yaxes(title_text="score", range=[0, 1.02], row=2, col=1)
    return figure


def _columns(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Numeric columns worth a line, in the order in which they first appear."""
    columns: dict[str, None] = {}
    for row in history:
        for key, value in row.items():
            if key in _NOT_PLOTTED or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if key.endswith("loss") or 0 <= value <= 1:
                columns.setdefault(key, None)
    return list(columns)


def _series(history: Sequence[Mapping[str, Any]], progress: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [(row[progress], row[name]) for row in history if progress in row and row.get(name) is not None]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _steps(log: bool) -> dict[str, Any]:
    return {"title": {"text": "step"}, "type": "log" if log else "linear"}


def step_places(steps: Sequence[int] | np.ndarray, log: bool = True) -> list[float]:
    """Return the places of steps on an axis; on a logarithmic one step 0 is left of step 1."""
    return [max(float(step), 0.5) if log else float(step) for step in steps]


def ledger_areas(result: Ledger, *, log: bool = True, theme: Theme = "light") -> go.Figure:
    """Draw each entry's part of the change so far, those that lower the loss stacked downwards and the others upwards,
    with the change itself as a line. With `log` the axis is logarithmic, and step 0 is left of step 1."""
    steps = step_places(result.steps, log)
    so_far = np.vstack([np.zeros(len(result.entries)), result.parts.cumsum(0)])
    layout = base_layout(theme, xaxis=_steps(log), yaxis={"title": {"text": "change of the loss (nats a token)"}})
    figure = go.Figure(layout=layout)
    for index, place in enumerate(np.argsort(so_far[-1], kind="stable")):
        below, above = np.minimum(so_far[:, place], 0), np.maximum(so_far[:, place], 0)
        areas = [(-1, below)] if below.any() or not above.any() else []
        areas += [(1, above)] if above.any() else []
        for sign, values in areas:
            figure.add_scatter(
                x=steps, y=values, name=plotly_text(result.entries[place]), stackgroup=str(sign), mode="lines",
                line={"width": 0.5, "color": line_colour(theme, index)}, customdata=result.steps.tolist(),
                legendgroup=result.entries[place], showlegend=sign == areas[0][0],
                hovertemplate="step %{customdata:,}: %{y:+.4f} nats a token",
            )  # fmt: skip
    figure.add_scatter(
        x=steps, y=result.losses - result.losses[0], name="change of the loss", mode="lines",
        line={"color": INK[theme], "width": 1.6, "dash": "dot"}, customdata=result.steps.tolist(),
        hovertemplate="step %{customdata:,}: %{y:+.4f} nats a token",
    )  # fmt: skip
    return figure


#: The number of lines up to which they can be distinguished.
MOST_LINES = 64


def training_lines(
    result: OverTraining, *, of: str | None = None, log: bool = True, theme: Theme = "light"
) -> go.Figure:
    """Draw every number of the results over training, or with `of` the entries of that array.

    With `log` the axis is logarithmic, and step 0 is left of step 1. Of a film, the change points (`events`) are
    dotted lines: all of them on the losses, and on a measure of heads its own. Raises `ValueError` for an
    unknown name and for more than `MOST_LINES` lines.
    """
    curves = result.curves(of)
    if len(curves) > MOST_LINES:
        raise ValueError(
            f"plot: {len(curves)} curves are too many for one figure; expected at most {MOST_LINES}. Choose another "
            f"of {', '.join(result.names)} with of=."
        )
    steps = step_places(result.steps, log)
    ends = [np.log10(step) if log else step for step in (steps[0], steps[-1])]
    across = {**_steps(log), "range": ends if len(steps) > 1 else None}
    figure = axes(theme, "step", spaced(of or ""), xaxis=across)
    for index, (name, values) in enumerate(curves.items()):
        figure.add_scatter(
            x=steps, y=values, name=spaced(name), customdata=result.steps.tolist(),
            mode="lines+markers" if len(steps) <= 30 else "lines", marker={"size": 4},
            line={"color": line_colour(theme, index), "width": 1.6},
            hovertemplate="step %{customdata:,}: %{y:.4g}",
        )  # fmt: skip
    for row, (step, names) in enumerate(sorted(_events(result, of).items())):
        (x,) = step_places([step], log)
        # An annotation takes the logarithm, and a line the step.
        place = np.log10(x) if log else x
        figure.add_vline(x=x, line={"dash": "dot", "width": 1.2, "color": INK[theme]})
        figure.add_annotation(
            x=place, xanchor="left" if place < sum(ends) / 2 else "right", y=1 - 0.08 * row, yanchor="top",
            yref="paper", text=", ".join(names), showarrow=False, font={"size": 11, "color": INK[theme]},
        )  # fmt: skip
    return figure


#: The event that a measure of heads has a change point of.
_EVENT_OF = {
    "motif_scores/previous_token": "previous token",
    "motif_scores/induction": "induction",
    "composition/k": "k composition",
    "copying": "copying",
}


def _events(result: OverTraining, of: str | None) -> dict[int, list[str]]:
    """The events of a film that belong to this measure, by the step of their change point."""
    by_step: dict[int, list[str]] = {}
    for name, change in result.events.items():
        if change.step is not None and (of is None or _EVENT_OF.get(of) == name):
            by_step.setdefault(change.step, []).append(name)
    return by_step


def influence_steps(result: Influence, *, log: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw Σ |dM/dw| over the windows of each step, as a share of all steps but the first, which is left out."""
    up = {"tickformat": ".1%", "rangemode": "tozero"}
    figure = axes(theme, "step", "share of the influence", xaxis=_steps(log), yaxis=up, showlegend=True)
    later = result.by_step[:, 1:]
    whole = later.sum(1, keepdims=True)
    for place, shares in enumerate(later / np.where(whole > 0, whole, 1)):
        figure.add_scatter(
            x=np.arange(1, result.n_steps), y=shares, name=plotly_text(result.measures[place]), mode="lines",
            line={"width": 1.4, "color": line_colour(theme, place)},
            hovertemplate="step %{x:,}: %{y:.2%} of the influence",
        )  # fmt: skip
    return figure


def window_table(result: InfluentialWindows, *, theme: Theme = "light") -> go.Figure:
    """Draw the windows at both ends as text; what stands earlier in a window is bold."""
    columns = {
        "": ["helps" if helps else "harms" for helps in result.helps],
        "influence": [minus(value, "+.3g") for value in result.influences],
        "step": [f"{step:,}" for step in result.steps],
        "document": [plotly_text(name) for name in result.documents],
        "text": [
            "".join(f"<b>{_line(piece)}</b>" if place % 2 else _line(piece) for place, piece in enumerate(pieces))
            for pieces in result.pieces
        ],
    }
    figure = go.Figure(layout=base_layout(theme))
    colours = {"fill": BACKGROUND, "line": QUIET, "font": INK}
    cell = {"align": "left", **{part: {"color": colour[theme]} for part, colour in colours.items()}}
    figure.add_table(
        columnwidth=[1.2, 1.8, 1.1, 3.6, 9], header={"values": [*columns], **cell},
        cells={"values": [*columns.values()], "height": 22, **cell},
    )  # fmt: skip
    return figure


def _line(piece: str) -> str:
    """Write text in one line."""
    return plotly_text(piece.replace("\n", "↵"))


def check_points(result: InfluenceCheck, *, theme: Theme = "light") -> go.Figure:
    """Draw each measure's retrainings: the predicted change and the measured one; next to them TracIn's order."""
    n = len(result.measures)
    titles = [
        f"{plotly_text(name)}: rank correlation {correlation(name):.2f}"
        for name in result.measures
        for correlation in (result.correlation, result.tracin_correlation)
    ]
    figure = make_subplots(rows=n, cols=2, subplot_titles=titles, horizontal_spacing=0.12, vertical_spacing=0.22 / n)
    for place in range(n):
        for column, (kind, predicted) in enumerate((("influence", result.predicted), ("TracIn", result.tracin)), 1):
            figure.add_scatter(
                x=predicted[place], y=result.found[place], mode="markers", name=kind, showlegend=False,
                marker={"size": 6, "color": LINES[theme][column - 1]}, customdata=np.arange(result.found.shape[1]),
                hovertemplate="subset %{customdata}<br>predicted %{x:.3g}<br>found %{y:+.3g}",
                row=place + 1, col=column,
            )  # fmt: skip
            figure.update_xaxes(title_text=f"predicted by {kind}", row=place + 1, col=column)
        figure.update_yaxes(title_text="found", row=place + 1, col=1)
    figure.update_annotations(font={"size": 12, "color": INK[theme]})
    return style_panels(figure, theme).update_layout(height=120 + 260 * n)


def removal_lines(result: Removal, *, theme: Theme = "light") -> go.Figure:
    """Draw the measure over training, with all windows and without those at the ends; random removals are thin."""
    figure = axes(theme, "step", spaced(result.measure))
    hover = "step %{x:,}: %{y:.4g}"
    runs = [
        ("without the most helpful", result.without_helpful, result.random_helpful),
        ("without the most harmful", result.without_harmful, result.random_harmful),
    ]
    for place, (name, own, random) in enumerate(runs):
        colour = LINES[theme][place]
        for draw, values in enumerate(random):
            figure.add_scatter(
                x=result.steps, y=values, mode="lines", line={"width": 0.8, "color": colour}, opacity=0.35,
                name=f"random, {name.rpartition(' ')[2]} ones’ steps", legendgroup=name, showlegend=draw == 0,
                hovertemplate=hover,
            )  # fmt: skip
        line = {"width": 2.4, "color": colour}
        figure.add_scatter(x=result.steps, y=own, mode="lines", line=line, name=name, hovertemplate=hover)
    line = {"width": 1.8, "color": INK[theme], "dash": "dot"}
    figure.add_scatter(x=result.steps, y=result.whole, mode="lines", line=line, name="all windows", hovertemplate=hover)
    return figure


def retrained_lines(result: Retrained, *, theme: Theme = "light") -> go.Figure:
    """Draw each measure of a run that was repeated, over its steps."""
    layout = base_layout(theme, xaxis={"title": {"text": "step"}}, legend=LEGEND, showlegend=True)
    figure = go.Figure(layout=layout)
    for place, (name, values) in enumerate(zip(result.measures, result.values, strict=True)):
        line = {"width": 1.6, "color": line_colour(theme, place)}
        figure.add_scatter(
            x=result.steps, y=values, mode="lines", name=spaced(name), line=line,
            hovertemplate="step %{x:,}: %{y:.4g}",
        )  # fmt: skip
    return figure


def property_points(result: InfluenceProperties, *, theme: Theme = "light") -> go.Figure:
    """Draw the prediction of windows' help by each of their properties alone, with its interval, over training."""
    figure = axes(theme, "part of training", "help, root mean squares of a step", scattermode="group")
    for place, name in enumerate(result.properties):
        values = result.alone[:, place]
        low, high = result.alone_intervals[:, place].T
        figure.add_scatter(
            x=[*result.parts], y=values, mode="markers", name=name, error_y=error_bars(values, low, high),
            marker={"size": 8, "color": line_colour(theme, place)}, hovertemplate="%{x}: %{y:+.3f}",
        )  # fmt: skip
    return figure.add_hline(y=0, line={"color": INK[theme], "width": 1, "dash": "dot"})
