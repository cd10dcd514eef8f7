"""The Circuits page's tables: entries of a circuit, its singular pairs, composition, copying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from app.pages.circuits import words
from app.shell.choices import tooltip
from app.shell.tables import number

if TYPE_CHECKING:
    import numpy as np

    from aotlens.circuits import TopEntries
    from app.pages.circuits.service import Shown
    from app.pages.circuits.service_sides import Option

_RANK = {"field": "rank", "headerName": "", "width": 30, "cellClass": "rank", "sortable": False, "type": "rightAligned"}


def side_options(sides: Sequence[Option]) -> list[dict[str, str]]:
    """What a side may be."""
    return [{"value": side.value, "label": side.label} for side in sides]


def entry_columns(shown: Shown, *, rows: bool = True, columns: bool = True) -> list[dict[str, Any]]:
    """Definitions for entries; a table of one row leaves out the row, and so on."""
    these, unit = words.WORDS[shown.choice.kind], words.quantity(shown)
    defs: list[dict[str, Any]] = [_RANK]
    if rows:
        title = words.short_role(shown.rows, these.row.role)
        defs.append(_token("row", title, f"{words.row_role(shown)}; click to list this row"))
    if columns:
        title = words.short_role(shown.columns, these.column.role)
        defs.append(_token("column", title, f"{words.column_role(shown)}; click to list this column"))
    defs.append(number("value", unit, ".2f", f"The entry, in {unit}"))
    if shown.columns.n > 1:
        defs.append(number("relative", these.relative, "+.2f", these.relative_help))
    return defs


def entry_rows(shown: Shown, entries: TopEntries, relative: np.ndarray) -> list[dict[str, Any]]:
    """One record an entry, the largest (or smallest) first."""
    lists = (entries.rows.tolist(), entries.columns.tolist(), entries.values.tolist(), relative.tolist())
    return [
        {
            "key": str(rank),
            "rank": rank,
            "row": row,
            "row_shown": shown.rows.short(row),
            "row_name": shown.rows.shown(row),
            "row_tip": tooltip(shown.rows, row),
            "column": column,
            "column_shown": shown.columns.short(column),
            "column_name": shown.columns.shown(column),
            "column_tip": tooltip(shown.columns, column),
            "value": value,
            "relative": above,
        }
        for rank, (row, column, value, above) in enumerate(zip(*lists, strict=True), start=1)
    ]


def _token(field: str, title: str, help: str) -> dict[str, Any]:
    return {
        "field": f"{field}_shown",
        "headerName": title,
        "headerTooltip": help,
        "tooltipField": f"{field}_tip",
        "cellClass": "mono pick",
    }


def singular_table(shown: Shown, records: list[dict[str, Any]]) -> html.Table:
    """Two rows a pair: what goes together at its + end, and at its − end."""
    unit = words.quantity(shown)
    roles = (words.row_role(shown), words.column_role(shown))
    titles = ("", f"strength σ ({unit})", "share of Σσ²", "", *roles)
    body = []
    for record in records:
        first = record["sign"] == "+"
        pair = [
            html.Td(str(record["pair"]), rowSpan=2, className="rank"),
            html.Td(f"{record['value']:,.4g}", rowSpan=2, className="number"),
            html.Td(f"{record['share']:.1%}", rowSpan=2, className="number"),
        ]
        tokens = [
            html.Td([html.Span(one, className="token") for one in record[side]], className="tokens")
            for side in ("rows", "columns")
        ]
        cells = [*(pair if first else []), html.Td(record["sign"]), *tokens]
        body.append(html.Tr(cells, className="first" if first else ""))
    return html.Table(
        [html.Thead(html.Tr([html.Th(title, scope="col") for title in titles])), html.Tbody(body)], className="singular"
    )


def edge_columns() -> list[dict[str, Any]]:
    """Composition of the chosen head with the others."""
    turned = "of the product's squared norm over random rotations of the same two heads"
    above = "Whether the pair lies above its null: z of 3 or more"
    z = (
        "Standard deviations of the product's squared norm from its mean, over flips of signs in the directions in "
        "which the embeddings vary: a candidate, since later layers read another stream (the Atlas has it on text). "
        "Skewed, and blind to size: the norm stands beside it"
    )
    z_turned = (
        f"Standard deviations {turned}, from their mean: large for any two heads of a stream that few directions fill"
    )
    return [
        {"field": "relation", "headerName": "this head"},
        {"field": "head", "headerName": "head", "cellClass": "mono pick",
         "headerTooltip": "Click to go there"},
        {"field": "mode", "headerName": "by its", "cellClass": "pick",
         "headerTooltip": "What the later head computes from what the earlier one wrote; click to see that circuit "
                          "through the earlier head"},
        number("value", "composition", ".3f", "‖W_first W_second‖ / (‖W_first‖ ‖W_second‖), 0 to 1"),
        number("rank", "place", "d", "Of the earlier head among all heads that the later one can read, by composition"),
        {"field": "above_null", "headerName": "above null", "headerTooltip": above},
        number("z", "z", "+.1f", z),
        number("z_turned", "z, turned", "+.1f", z_turned),
        number("norm", "norm", ".3g", "‖W_first W_second‖: how much the later head reads"),
        {"field": "turned", "headerName": "norm², turned", "type": "rightAligned",
         "headerTooltip": f"Mean ± standard deviation {turned}"},
    ]  # fmt: skip


def copying_columns() -> list[dict[str, Any]]:
    """What every head copies."""
    return [
        {"field": "head", "headerName": "head", "cellClass": "mono pick",
         "cellClassRules": {"here": "params.data.chosen"}, "headerTooltip": "layer.head; click to go there"},
        number("score", "copying score", "+.3f", "Σ Re λ / Σ |λ| of the OV circuit's eigenvalues: 1 pure copying, "
               "−1 pure suppression"),
        number("top1", "own token first", ".1%", "Share of tokens whose own logit is the largest of all that "
               "attending to them adds"),
        number("top5", "in the first 5", ".1%", "Share of tokens whose own logit is among the 5 largest"),
    ]  # fmt: skip
