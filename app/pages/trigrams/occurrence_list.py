"""Real occurrences of a skip-trigram, its three tokens marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from app.pages.trigrams.service_occurrences import Occurrence


def occurrence_list(found: Sequence[Occurrence]) -> html.Ol:
    """One a paragraph; each opens in Heads."""
    return html.Ol([html.Li(_one(one)) for one in found], className="occurrences")


def _one(one: Occurrence) -> Any:
    text = html.Span(
        [
            html.Span(
                # A line end is drawn and also broken at, or a page of a novel would be one long line.
                [piece.text, "\n"] if piece.text.endswith("⏎") and not piece.role else piece.text,
                className=f"role-{piece.role}" if piece.role else None,
                title=_TITLES.get(piece.role),
            )
            for piece in one.pieces
        ],
        className="occurrence-text",
    )
    tokens = "1 token back" if one.distance == 1 else f"{one.distance} tokens back"
    note = f"{'the out follows' if one.follows else 'another token follows'} · attention {one.attention:.1%} · {tokens}"
    if one.address is None:
        return [html.Span(f"{note} · no text gives these tokens", className="occurrence-note"), text]
    if not one.same:
        note += " · in Heads without the first tokens, so its attention differs a little"
    opens = html.Span("open in Heads →", className="occurrence-open")
    return dcc.Link(
        [html.Span([note, opens], className="occurrence-note"), text],
        href=one.address,
        className="occurrence",
    )


_TITLES = {
    "source": "source",
    "destination": "destination: the attention is this token's",
    "out": "out: the token that came next",
    "instead": "what came next, instead of the out",
}
