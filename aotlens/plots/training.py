"""Training: the curve of a checkpoint, the ledger of the loss, and what an analysis gave of each snapshot of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aotlens.plots.colours import INK, LINES, Theme, base_layout
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.dynamics import Ledger, OverTraining

#: The quantities that may stand on the horizontal axis, best first, and their titles.
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
    figure = make_subplots(
        rows=2 if scores and losses else 1,
        shared_xaxes=True,
        vertical_spacing=0.08,
        row_heights=[0.62, 0.38] if scores and losses else None,
    )
    figure.update_layout(base_layout(theme))
    for name in columns:
        x, y = _series(history, progress, name)
        row = 2 if losses and name in scores else 1
        figure.add_trace(
            go.Scatter(x=x, y=y, name=_title(name), mode="lines" if len(x) > 1 else "markers", line={"width": 1.8},
                       hovertemplate="%{y:.4f}"),
            row=row, col=1,
        )  # fmt: skip
    for name, level in (references or {}).items():
        figure.add_hline(
            y=level, row=1, col=1, line={"dash": "dot", "width": 1.2, "color": INK[theme]},
            annotation={"text": f"{name} {level:.3f}", "font": {"size": 11, "color": INK[theme]}},
            annotation_position="top right",
        )  # fmt: skip
    axis = base_layout(theme)["xaxis"]
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_xaxes(title_text=_PROGRESS[progress], row=2 if scores and losses else 1, col=1)
    figure.update_yaxes(title_text="loss (nats)" if losses else "score", row=1, col=1)
    if scores and losses:
        figure.update_yaxes(title_text="score", range=[0, 1.02], row=2, col=1)
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
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


def _title(name: str) -> str:
    return name.replace("_", " ")


def ledger_areas(result: Ledger, *, log: bool = True, theme: Theme = "light") -> go.Figure:
    """Draw each entry's part of the change so far, those that lower the loss stacked downwards and the others upwards,
    with the change itself as a line. With `log` the axis is logarithmic, and step 0 is left of step 1."""
    steps = [max(float(step), 0.5) if log else float(step) for step in result.steps]
    so_far = np.vstack([np.zeros(len(result.entries)), result.parts.cumsum(0)])
    figure = go.Figure(layout=base_layout(theme))
    for index, place in enumerate(np.argsort(so_far[-1], kind="stable")):
        below, above = np.minimum(so_far[:, place], 0), np.maximum(so_far[:, place], 0)
        areas = [(-1, below)] if below.any() or not above.any() else []
        areas += [(1, above)] if above.any() else []
        for sign, values in areas:
            figure.add_scatter(
                x=steps, y=values, name=plotly_text(result.entries[place]), stackgroup=str(sign), mode="lines",
                line={"width": 0.5, "color": LINES[theme][index % len(LINES[theme])]}, customdata=result.steps.tolist(),
                legendgroup=result.entries[place], showlegend=sign == areas[0][0],
                hovertemplate="step %{customdata:,}: %{y:+.4f} nats a token",
            )  # fmt: skip
    figure.add_scatter(
        x=steps, y=result.losses - result.losses[0], name="change of the loss", mode="lines",
        line={"color": INK[theme], "width": 1.6, "dash": "dot"}, customdata=result.steps.tolist(),
        hovertemplate="step %{customdata:,}: %{y:+.4f} nats a token",
    )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log" if log else "linear")
    figure.update_yaxes(title_text="change of the loss (nats a token)")
    return figure


#: More lines than this are not told apart.
MOST_LINES = 64


def training_lines(
    result: OverTraining, *, of: str | None = None, log: bool = True, theme: Theme = "light"
) -> go.Figure:
    """Draw every number of the results over training, or with `of` the entries of that array.

    With `log` the axis is logarithmic, and step 0 is left of step 1. Of a film, the change points (`events`) are
    dotted lines: all of them beside the losses, and beside a measure of heads its own. Raises `ValueError` for an
    unknown name and for more than `MOST_LINES` lines.
    """
    curves = result.curves(of)
    if len(curves) > MOST_LINES:
        raise ValueError(
            f"plot: {len(curves)} curves are too many for one figure; expected at most {MOST_LINES}. Choose another "
            f"of {', '.join(result.names)} with of=."
        )
    steps = [max(float(step), 0.5) if log else float(step) for step in result.steps]
    figure = go.Figure(layout=base_layout(theme))
    for index, (name, values) in enumerate(curves.items()):
        figure.add_scatter(
            x=steps, y=values, name=plotly_text(name.replace("_", " ")), customdata=result.steps.tolist(),
            mode="lines+markers" if len(steps) <= 30 else "lines", marker={"size": 4},
            line={"color": LINES[theme][index % len(LINES[theme])], "width": 1.6},
            hovertemplate="step %{customdata:,}: %{y:.4g}",
        )  # fmt: skip
    ends = [np.log10(each) if log else each for each in (steps[0], steps[-1])]
    figure.update_xaxes(title_text="step", type="log" if log else "linear", range=ends if len(steps) > 1 else None)
    figure.update_yaxes(title_text=plotly_text((of or "").replace("_", " ")))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    for row, (step, names) in enumerate(sorted(_events(result, of).items())):
        x = max(float(step), 0.5) if log else float(step)
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
    """The events of a film by the step of their change point, which belong beside that measure."""
    by_step: dict[int, list[str]] = {}
    for name, change in result.events.items():
        if change.step is not None and (of is None or _EVENT_OF.get(of) == name):
            by_step.setdefault(change.step, []).append(name)
    return by_step
