"""The theorem's conditions as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html


def conditions_table(rows: Sequence[dict[str, Any]]) -> html.Table:
    """Lay out a row a condition: what the proof assumes, what is here, whether it is met."""
    head = html.Tr(
        [html.Th("condition", scope="col")]
        + [html.Th(title, scope="col", className="number") for title in ("here", "needed", "met")]
        + [html.Th("in the paper", scope="col")]
    )
    return html.Table([html.Thead(head), html.Tbody([_row(row) for row in rows])], className="effect conditions")


def _row(row: dict[str, Any]) -> html.Tr:
    return html.Tr(
        [
            html.Td(row["statement"]),
            html.Td(f"{row['value']:.4g}", className="number"),
            html.Td(f"{row['bound']:.4g}", className="number"),
            html.Td("✓ met" if row["met"] else "✗ not met", className="number met" if row["met"] else "number unmet"),
            html.Td(row["source"], className="source"),
        ]
    )


def audit_table(rows: Sequence[dict[str, Any]]) -> html.Table:
    """Lay out a row a grouping and layer: SNR beside rotated subspaces, and its ratio beside rotated writes."""
    numbers = {
        "layer": "layer", "snr": "SNR before", "rotated_snr": "rotated subspaces", "p_snr": "p",
        "ratio": "after ÷ before",
        "null_least": "writes rotated: least", "null_largest": "largest", "p_above": "p above", "p_below": "p below",
    }  # fmt: skip
    head = [html.Th("tokens", scope="col")]
    head += [html.Th(title, scope="col", className="number") for title in numbers.values()]
    body = [
        html.Tr(
            [html.Td(row["grouping"])]
            + [html.Td(f"{row[name]:.{2 if name.startswith('p_') else 3}g}", className="number") for name in numbers]
        )
        for row in rows
    ]
    return html.Table([html.Thead(html.Tr(head)), html.Tbody(body)], className="effect")
