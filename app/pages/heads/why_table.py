"""The tab Why as elements that the browser draws (app/shell/drawn.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from app.core import Core
from app.core.score_words import Piece, plain, sentence, unit
from app.core.scores import Explained
from app.pages.heads import why_words as words

if TYPE_CHECKING:
    from aotlens.paths.score import TopPairs


def lines_table(core: Core, explained: Explained, top: TopPairs, sentences: Sequence[str]) -> list[Any]:
    """What is explained, what it can be compared with, and a row a pair of paths, largest first."""
    size, total = core.scores.cancellation(explained.question)
    below = [words.proof(top), words.cancellation(size, total)]
    return [
        html.P(" ".join(sentences), className="why-says"),
        _against(core, explained),
        html.P(" ".join(text for text in below if text), className="why-says"),
        _rows(core, explained, top),
    ]


def _against(core: Core, explained: Explained) -> html.Div:
    cell = {"data-query": str(explained.score.query), "data-key": str(explained.score.key)}
    buttons = [
        html.Button(
            label, className="why-against",
            **{"data-against": str(value), "aria-pressed": str(value == explained.against).lower()},
        )
        for value, label in core.scores.choices(explained.question)
    ]  # fmt: skip
    label = html.Span("Compared with", className="field-label")
    return html.Div([label, *buttons], className="why-choices", role="group", **{"aria-label": "Compared with", **cell})


def _rows(core: Core, explained: Explained, top: TopPairs) -> html.Table:
    largest = max((abs(value) for value in top.values), default=1.0) or 1.0
    head = html.Tr(
        [html.Th(unit(explained), scope="col", className="number"), html.Th("from", scope="col"), html.Th("")]
    )
    rows = []
    for rank, (pair, value) in enumerate(zip(top.pairs, top.values, strict=True)):
        pieces = sentence(explained, pair)
        share = value / largest
        kind = "bar" if share >= 0 else "bar bar-negative"
        bar = html.Span(html.Span(className=kind, style={"width": f"{100 * abs(share):.1f}%"}), className="track")
        sure = "" if rank < top.n_proven else "?"
        tip = explained.score.describe(pair)
        rows.append(
            html.Tr(
                [
                    html.Td(words.signed(value) + sure, className="number"),
                    html.Td([_piece(core, explained, piece) for piece in pieces], title=tip, **_named(pieces)),
                    html.Td(bar),
                ]
            )
        )
    return html.Table([html.Thead(head), html.Tbody(rows)], className="why")


def _named(pieces: list[Piece]) -> dict[str, str]:
    return {"data-says": plain(pieces)}


def _piece(core: Core, explained: Explained, piece: Piece) -> Any:
    """Words, or a head's name that leads to its map; heads.js goes there without opening the page anew."""
    if piece.head is None:
        return piece.text
    question = explained.question
    place: dict[str, Any] = {"position": piece.position, "direction": piece.direction}
    if piece.cell is not None:
        place["cell"] = piece.cell
    href = core.links.to("heads", checkpoint=question.checkpoint, text=question.text, head=piece.head, **place)
    query, key = piece.cell or ("", "")
    data = {
        "data-layer": piece.head[0], "data-head": piece.head[1], "data-query": query, "data-key": key,
        "data-position": piece.position, "data-direction": piece.direction,
    }  # fmt: skip
    return html.A(
        piece.text, href=href, className="why-cell", title=f"The map of {piece.text}",
        **{name: str(value) for name, value in data.items()},
    )  # fmt: skip
