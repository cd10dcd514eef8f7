"""The Paths page's tokens and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import dcc, html

from aotlens.plots import describe, glyphs, is_whitespace
from app.pages.paths.words import percent, signed
from app.shell.tables import number

if TYPE_CHECKING:
    from app.pages.paths.figures import PathRow
    from app.pages.paths.service import Effect

#: Chips with less than this share of the largest value have no number.
_NUMBERED = 0.04


def source_strip(str_tokens: Sequence[str], values: np.ndarray, position: int, unit: str) -> list[html.Button]:
    """One button a token, shaded by what all paths from it add; the one before the target is marked."""
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    return [
        _chip(at, text, float(value), float(value) / top, at == position, unit)
        for at, (text, value) in enumerate(zip(str_tokens, values, strict=True))
    ]


def _chip(at: int, text: str, value: float, share: float, chosen: bool, unit: str) -> html.Button:
    kinds = ["chip", *(["chip-space"] if is_whitespace(text) else []), *(["chip-negative"] if share < 0 else [])]
    shown = {"data-value": signed(value, 1)} if abs(share) >= _NUMBERED else {}
    return html.Button(
        glyphs(text),
        className=" ".join([*kinds, *(["chip-locked"] if chosen else [])]),
        title=f"{describe(text)} · position {at} · all paths from here: {signed(value)} {unit}",
        tabIndex=0 if chosen else -1,
        style={"--heat": f"{100 * abs(share):.1f}%"},
        **{"data-position": str(at), "aria-pressed": str(chosen).lower(), **shown},
    )


def path_table(rows: Sequence[PathRow], unit: str) -> html.Table:
    """A row a path: its sentence, with a link at each head, its contribution as a bar, and a way to take it away."""
    top = max((abs(row.value) for row in rows), default=1.0) or 1.0
    head = html.Tr(
        [
            html.Th("", scope="col"),
            html.Th("path", scope="col"),
            html.Th(unit, scope="col", className="number"),
            html.Th("", scope="col"),
            html.Th(html.Span("take it away", className="sr-only"), scope="col"),
        ]
    )
    return html.Table([html.Thead(head), html.Tbody([_path(row, row.value / top) for row in rows])], className="paths")


def _path(row: PathRow, share: float) -> html.Tr:
    sentence: list[Any] = [html.Span(row.start, className="start")]
    for step in row.steps:
        sentence += [" → ", dcc.Link(step.head, href=step.href, title=step.help, className="step")]
    sentence.append(html.Span(f" → {row.end}", className="end"))
    bar = html.Span(
        className="bar" if share >= 0 else "bar bar-negative",
        style={"width": f"{50 * abs(share):.2f}%", "left": "50%" if share >= 0 else f"{50 - 50 * abs(share):.2f}%"},
    )
    rank = html.Td(
        str(row.rank) if row.proven else f"{row.rank}?",
        className="rank",
        title="proven: no path is larger" if row.proven else "not proven: a path that was not computed may be larger",
    )
    button = html.Button("without", className="take-away", title=f"The model without {row.sentence}",
                         **{"data-without": row.key})  # fmt: skip
    cells = [rank, html.Td(sentence, className="sentence"), html.Td(signed(row.value), className="number")]
    return html.Tr([*cells, html.Td(html.Span(bar, className="track")), html.Td(button)])


def head_columns(unit: str) -> list[dict[str, Any]]:
    """What passes through each head."""
    return [
        {"field": "head", "headerName": "head", "cellClass": "mono pick",
         "headerTooltip": "layer.head; click to see the model without it"},
        number("through", "all paths through it", "+.3f", f"Sum of all paths that pass this head, {unit}. A path "
               "through two heads counts for both. Click to list them.",
               cellClass=["ag-right-aligned-cell", "pick"]),
        number("direct", "it is the last", "+.3f", f"Of these, the paths on which it is the last head, {unit}: its "
               "direct effect. These sums, and the paths without heads, add up to the logit."),
        number("later", "by later heads", "+.3f", f"Of these, the paths that later heads carry on, {unit}"),
    ]  # fmt: skip


def effect_tables(effect: Effect, rows: Sequence[dict[str, Any]]) -> list[Any]:
    """The model, and the model without the head or path in two ways; and what it expects next."""
    titles = ("", "model", "without it: forward pass", "change", "without it: linear estimate", "change")
    head = html.Tr([html.Th(title, scope="col", className="number" if title else "") for title in titles])
    body = [
        html.Tr(
            [
                html.Th(row["name"], scope="row"),
                html.Td(_value(row, "clean"), className="number"),
                html.Td(_value(row, "forward"), className="number strong"),
                html.Td(_change(row, "forward"), className="number"),
                html.Td(_value(row, "linear"), className="number"),
                html.Td(_change(row, "linear"), className="number"),
            ]
        )
        for row in rows
    ]
    return [
        html.Table([html.Thead(head), html.Tbody(body)], className="effect"),
        html.Div(
            [_expected("The model expects next", effect.before), _expected("Without it", effect.after)],
            className="two expected",
        ),
    ]


def _expected(title: str, likeliest: Sequence[tuple[str, float]]) -> html.Div:
    items = [
        html.Li([html.Span(glyphs(text), className="token", title=describe(text)), f" {percent(share)}"])
        for text, share in likeliest
    ]
    return html.Div([html.H3(title, className="table-heading"), html.Ol(items)])


def _value(row: dict[str, Any], key: str) -> str:
    value = float(row[key])
    if row["unit"] == "probability":
        return percent(value)
    return signed(value) if row["unit"] == "logits" else f"{value:.3f} nats"


def _change(row: dict[str, Any], key: str) -> str:
    change = float(row[key]) - float(row["clean"])
    if row["unit"] == "probability":
        # Of a small probability, points would read as nothing.
        small = float(row["clean"]) < 0.01 and row["clean"]
        return f"× {float(row[key]) / float(row['clean']):.2g}" if small else f"{signed(100 * change, 1)} points"
    return signed(change)
