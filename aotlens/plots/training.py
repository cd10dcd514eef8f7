"""The training curve of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aotlens.plots.colours import INK, Theme, base_layout

#: What may stand on the horizontal axis, best first, and its title.
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
    """Losses in nats over training and, below them, scores of heads where they were logged.

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
