"""Pairs of paths of a score as elements that the browser draws (drawn.py): a row a pair, each head's name a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from app.core.links import Links
from app.core.score_words import Piece, sentence, signed, unit
from app.core.scores import Explained

if TYPE_CHECKING:
    from aotlens.paths.score import TopPairs


def pair_table(links: Links, explained: Explained, top: TopPairs) -> html.Table:
    """The largest pairs, largest first. A head's name leads to its map: the page Heads goes there by itself, and from
    other pages the link is followed (static/shell.js)."""
    largest = max((abs(value) for value in top.values), default=1.0) or 1.0
    head = html.Tr(
        [html.Th(unit(explained), scope="col", className="number"), html.Th("from", scope="col"), html.Td("")]
    )
    rows = []
    for rank, (pair, value) in enumerate(zip(top.pairs, top.values, strict=True)):
        pieces, share = sentence(explained, pair), value / largest
        kind = "bar" if share >= 0 else "bar bar-negative"
        bar = html.Span(html.Span(className=kind, style={"width": f"{100 * abs(share):.1f}%"}), className="track")
        sure = "" if rank < top.n_proven else "?"
        said = html.Td([head_link(links, explained, piece) for piece in pieces], title=explained.score.describe(pair))
        rows.append(html.Tr([html.Td(signed(value) + sure, className="number"), said, html.Td(bar)]))
    return html.Table([html.Thead(head), html.Tbody(rows)], className="pairs")


def head_link(links: Links, explained: Explained, piece: Piece) -> Any:
    """A part of a sentence: words, or a head's name that leads to its map."""
    if piece.head is None:
        return piece.text
    question = explained.question
    place: dict[str, Any] = {"position": piece.position, "direction": piece.direction}
    if piece.cell is not None:
        place["cell"] = piece.cell
    href = links.to("heads", checkpoint=question.checkpoint, text=question.text, head=piece.head, **place)
    query, key = piece.cell or ("", "")
    data = {
        "data-layer": piece.head[0], "data-head": piece.head[1], "data-query": query, "data-key": key,
        "data-position": piece.position, "data-direction": piece.direction,
    }  # fmt: skip
    return html.A(
        piece.text, href=href, className="head-entry", title=f"The map of {piece.text}",
        **{"data-in-app": "", **{name: str(value) for name, value in data.items()}},
    )  # fmt: skip
