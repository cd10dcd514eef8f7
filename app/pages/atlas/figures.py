"""What of an atlas is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotlens.plots import Theme, head_scatter
from app.core.errors import RequestError
from app.pages.atlas import words
from app.pages.atlas.service import Atlases, Made

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.conventions import Head


def scatter(
    service: Atlases, made: Made, x: str, y: str, where: str | None, head: Head | None, theme: Theme
) -> go.Figure:
    """Two scores of every head; those that a search does not find are faint. Raises RequestError for another column."""
    frame, known = service.frame(made), service.scores(made)
    for column in (x, y):
        if column not in known:
            raise RequestError(f"{made.atlas.model} has no score {column}. There are: {', '.join(known)}. Choose one.")
    figure = head_scatter(
        frame[x].to_numpy(dtype=float), frame[y].to_numpy(dtype=float), list(frame["name"]),
        [label.replace("_", " ") for label in frame["label"]], titles=(words.title(x), words.title(y)),
        found=service.found(made, where), chosen=None if head is None else words.name(head), theme=theme,
    )  # fmt: skip
    figure.layout.meta = {"name": f"{made.checkpoint} {x} {y}"}
    return figure
