"""A layered graph: boxes in columns, and links from left to right whose width is a share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import BACKGROUND, LINES, QUIET_INK, Theme, base_layout
from aotlens.plots.labels import plotly_text

_STEPS = 24  # of a curve
_ROW = 52  # pixels for a box


@runtime_checkable
class LayeredBox(Protocol):
    """The drawing of a box: two lines of text, a column from the left, and its height from 0 (the top) to 1.

    `notes` are said on hover; `cell` is the point's customdata, for what follows a click.
    """

    @property
    def title(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def column(self) -> int: ...
    @property
    def row(self) -> float: ...
    @property
    def cell(self) -> object: ...
    @property
    def notes(self) -> Sequence[str]: ...


class LayeredLink(NamedTuple):
    """The drawing of a link: its ends, as places among the boxes, its width from 0 to 1, and what hover says."""

    start: int
    end: int
    share: float
    text: str
    colour: int = 0
    """The colour's place among the theme's lines."""
    dash: str = "solid"
    """The dash of the line, as plotly names it."""
    cell: str | None = None
    """The points' customdata, for what follows a click."""


def layered_graph(boxes: Sequence[LayeredBox], links: Sequence[LayeredLink], *, theme: Theme = "light") -> go.Figure:
    """Draw boxes, and the links between them.

    Raises `ValueError` for a link that does not lead to the right.
    """
    figure = go.Figure()
    figure.update_layout(base_layout(theme))
    # Before the links, which end where the boxes are: of two points that are as near, the pointer finds the first.
    figure.add_scatter(
        x=[box.column for box in boxes],
        y=[box.row for box in boxes],
        mode="markers",
        marker={"size": 30, "opacity": 0},
        customdata=[box.cell for box in boxes],
        text=[
            "<br>".join(plotly_text(text) for text in (f"{box.title} {box.detail}".strip(), *box.notes))
            for box in boxes
        ],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    for link in links:
        start, end = boxes[link.start], boxes[link.end]
        if start.column >= end.column:
            raise ValueError(f"layered_graph: expected links to the right, got {start.title} → {end.title}.")
        across = np.linspace(0, 1, _STEPS)
        bend = across**2 * (3 - 2 * across)
        figure.add_scatter(
            x=(start.column + across * (end.column - start.column)).tolist(),
            y=(start.row + bend * (end.row - start.row)).tolist(),
            mode="lines",
            line={
                "width": 0.8 + 9 * link.share,
                "color": LINES[theme][link.colour],
                "dash": link.dash,
            },
            opacity=0.6,
            showlegend=False,
            customdata=[link.cell] * _STEPS if link.cell else None,
            hovertemplate=f"{link.text}<extra></extra>",
        )
    for box in boxes:
        detail = f"<br>{plotly_text(box.detail)}" if box.detail else ""
        figure.add_annotation(
            x=box.column,
            y=box.row,
            text=f"<b>{plotly_text(box.title)}</b>{detail}",
            showarrow=False,
            bgcolor=BACKGROUND[theme],
            bordercolor=QUIET_INK[theme],
            borderpad=3,
            font={"size": 11},
        )
    columns = [box.column for box in boxes]
    most = max((columns.count(column) for column in set(columns)), default=1)
    figure.update_xaxes(visible=False, range=[-0.5, max(columns, default=0) + 0.5])
    figure.update_yaxes(visible=False, range=[1, 0])
    figure.update_layout(height=max(260, _ROW * most), hovermode="closest")
    return figure
