"""The runs of trained layers as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining


def runs_table(record: DenoiserTraining) -> html.Table:
    """A row a run."""
    frame = record.layers.to_frame()
    titles = ("seed", "α", "β", "αβ", "W_QK off diagonal", "W_OV off diagonal", "training loss", "test loss", "")
    head = html.Tr([html.Th(title, scope="col", className="number") for title in titles])
    return html.Table(
        [html.Thead(head), html.Tbody([_row(row) for row in frame.to_dict("records")])], className="effect"
    )


def _row(row: dict[str, Any]) -> html.Tr:
    numbers = [f"{row[name]:.4g}" for name in list(row)[1:-1]]
    cells = [html.Td(text, className="number") for text in (str(row["seed"]), *numbers)]
    return html.Tr([*cells, html.Td("stuck" if row["stuck"] else "", className="number stuck")])
