"""The Paths page's tokens and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from aotlens.plots import describe, glyphs, is_whitespace
from aotlens.views.paths import PathsParameters, percent, signed
from app.core.links import Links
from app.shell.tables import number

if TYPE_CHECKING:
    from aotlens.paths import Path, RemovalEffect, TopPaths

#: Chips with less than this share of the largest value have no number.
_NUMBERED = 0.04


def source_strip(str_tokens: Sequence[str], values: np.ndarray, position: int, unit: str) -> list[html.Button]:
    """Return one button a token, shaded by what all paths from it add; the one before the target is marked."""
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    return [
        _chip(index, text, float(value), float(value) / top, index == position, unit)
        for index, (text, value) in enumerate(zip(str_tokens, values, strict=True))
    ]


def _chip(position: int, text: str, value: float, share: float, chosen: bool, unit: str) -> html.Button:
    kinds = ["chip", *(["chip-space"] if is_whitespace(text) else []), *(["chip-negative"] if share < 0 else [])]
    numbers = {"data-value": signed(value, 1)} if abs(share) >= _NUMBERED else {}
    return html.Button(
        glyphs(text),
        className=" ".join([*kinds, *(["chip-locked"] if chosen else [])]),
        title=f"{describe(text)} · position {position} · all paths from here: {signed(value)} {unit}",
        tabIndex=0 if chosen else -1,
        style={"--heat": f"{100 * abs(share):.1f}%"},
        **{"data-position": str(position), "aria-pressed": str(chosen).lower(), **numbers},
    )


def path_table(links: Links, chosen: PathsParameters, top: TopPaths) -> html.Table:
    """Return a row a path: its sentence, with a link at each head, its contribution as a bar, and a way to take it
    away."""
    titles = ("", "path", top.unit, "", html.Span("take it away", className="sr-only"))
    head = [html.Th(title, scope="col", className="number" if title == top.unit else "") for title in titles]
    largest = max((abs(value) for value in top.values), default=1.0) or 1.0
    rows = []
    for rank, (path, sentence, value) in enumerate(zip(top.paths, top.sentences, top.values, strict=True)):
        share, proven = value / largest, rank < top.n_proven
        why = "proven: no path is larger" if proven else "not proven: a path that was not computed may be larger"
        bar = html.Span(
            className="bar" if share >= 0 else "bar bar-negative",
            style={"width": f"{50 * abs(share):.2f}%", "left": "50%" if share >= 0 else f"{50 - 50 * abs(share):.2f}%"},
        )
        without = {"title": f"The model without {sentence}", "data-without": path.key}
        cells = [
            html.Td(f"{rank + 1}" if proven else f"{rank + 1}?", className="rank", title=why),
            html.Td(_sentence(links, chosen, path, sentence, top.end), className="sentence"),
            html.Td(signed(value), className="number"),
            html.Td(html.Span(bar, className="track")),
            html.Td(html.Button("without", className="take-away", **without)),
        ]
        rows.append(html.Tr(cells))
    return html.Table([html.Thead(html.Tr(head)), html.Tbody(rows)], className="paths")


def _sentence(links: Links, chosen: PathsParameters, path: Path, sentence: str, end: str) -> list[Any]:
    """The last head is opened at the target's position, the first one at the source's, seen from there."""
    after = "".join(f" → {layer}.{head}" for layer, head in path.heads) + f" → {end}"
    parts: list[Any] = [html.Span(sentence.removesuffix(after), className="start")]
    for index, head in enumerate(path.heads):
        place: dict[str, Any] = {}
        name = f"{head[0]}.{head[1]}"
        tip = f"Open head {name} on this text"
        if index == len(path.heads) - 1:
            place = {"position": chosen.position}
            tip += f", where position {chosen.position} attends"
        elif index == 0 and path.source_position is not None:
            place = {"position": path.source_position, "direction": "from"}
            tip += f", what attends to position {path.source_position}"
        href = links.to("heads", checkpoint=chosen.checkpoint, text=chosen.text, head=head, **place)
        parts += [" → ", html.A(name, href=href, title=tip, className="step", **{"data-in-app": ""})]
    return [*parts, html.Span(f" → {end}", className="end")]


def head_columns(unit: str) -> list[dict[str, Any]]:
    """Return the columns of what passes through each head."""
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


def effect_tables(effect: RemovalEffect) -> list[Any]:
    """Return the model, and the model without the head or path in two ways; and what it expects next."""
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
        for row in effect.to_frame().to_dict("records")
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
        # A small probability would read as nothing in points.
        small = float(row["clean"]) < 0.01 and row["clean"]
        return f"× {float(row[key]) / float(row['clean']):.2g}" if small else f"{signed(100 * change, 1)} points"
    return signed(change)
