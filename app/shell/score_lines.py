"""Pairs of paths of a score as elements that the browser draws (drawn.py): a row a pair, each head's name a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dash import html

from aotlens.views.path_choice import signed
from app.core.links import Links

if TYPE_CHECKING:
    from aotlens.paths.score import TopPairs
    from aotlens.paths.score.words import Piece, ScoreWords


class Prompted(Protocol):
    """The question about a prompt: a `ScoreQuestion`, or what a view's values are."""

    @property
    def checkpoint(self) -> str: ...
    @property
    def text(self) -> str: ...


def pair_table(links: Links, prompt: Prompted, words: ScoreWords, top: TopPairs) -> html.Table:
    """Return the largest pairs, largest first. A head's name leads to its map: the page Heads goes there by itself, and
    from other pages the link is followed (static/shell.js)."""
    largest = max((abs(value) for value in top.values), default=1.0) or 1.0
    head = html.Tr([html.Th(words.unit, scope="col", className="number"), html.Th("from", scope="col"), html.Td("")])
    rows = []
    for rank, (pair, formula, value) in enumerate(zip(top.pairs, top.formulas, top.values, strict=True)):
        pieces, share = words.sentence(pair), value / largest
        kind = "bar" if share >= 0 else "bar bar-negative"
        bar = html.Span(html.Span(className=kind, style={"width": f"{100 * abs(share):.1f}%"}), className="track")
        sure = "" if rank < top.n_proven else "?"
        sentence = html.Td([head_link(links, prompt, piece) for piece in pieces], title=formula)
        rows.append(html.Tr([html.Td(signed(value, 2) + sure, className="number"), sentence, html.Td(bar)]))
    return html.Table([html.Thead(head), html.Tbody(rows)], className="pairs")


def head_link(links: Links, prompt: Prompted, piece: Piece) -> Any:
    """Return a part of a sentence: words, or a head's name that leads to its map."""
    if piece.head is None:
        return piece.text
    place: dict[str, Any] = {"position": piece.position, "direction": piece.direction}
    if piece.cell is not None:
        place["cell"] = piece.cell
    href = links.to("heads", checkpoint=prompt.checkpoint, text=prompt.text, head=piece.head, **place)
    query, key = piece.cell or ("", "")
    data = {
        "data-layer": piece.head[0], "data-head": piece.head[1], "data-query": query, "data-key": key,
        "data-position": piece.position, "data-direction": piece.direction,
    }  # fmt: skip
    return html.A(
        piece.text, href=href, className="head-entry", title=f"The map of {piece.text}",
        **{"data-in-app": "", **{name: str(value) for name, value in data.items()}},
    )  # fmt: skip
