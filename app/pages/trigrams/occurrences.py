"""Places in real text where a row's source … destination occurs, ready to be read and to be opened in Heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from aotlens.plots import glyphs
from aotlens.views.trigram_choice import TrigramsParameters
from app.core import Core

if TYPE_CHECKING:
    from aotlens.trigrams import Example

#: Tokens shown before the source, after it, and before the destination; what lies between is left out.
_AROUND = 12
_MAX_GAP = 40
#: The number of a window's first tokens that may be dropped to find one from which its text tokenises the same.
_MAX_DROPPED = 24
_TITLES = {
    "source": "source",
    "destination": "destination: the attention is this token's",
    "out": "predicted token: the token that came next",
    "instead": "what came next, instead of the predicted token",
}


def occurrence_list(core: Core, chosen: TrigramsParameters, examples: list[Example]) -> html.Ol:
    """Return one a paragraph, its three tokens marked; each opens in Heads."""
    return html.Ol([html.Li(occurrence(core, chosen, example)) for example in examples], className="occurrences")


def occurrence(core: Core, chosen: TrigramsParameters, example: Example) -> Any:
    """Return one place: the attention from the destination to all copies of the source, and the text."""
    loaded = core.catalog.load(chosen.checkpoint)
    tokens = [int(token) for token in example.tokens]
    distance = example.destination_position - example.source_position
    text = html.Span(_pieces(loaded.model.tokenizer.str_tokens(tokens), example), className="occurrence-text")
    follows = "the predicted token follows" if example.follows else "another token follows"
    back = "1 token back" if distance == 1 else f"{distance} tokens back"
    note = f"{follows} · attention {float(example.attention):.1%} · {back}"
    opened, dropped = opening(loaded.model, tokens, example, core.inference.token_limit(loaded))
    if opened is None:
        return [html.Span(f"{note} · no text gives these tokens", className="occurrence-note"), text]
    if dropped:
        note += " · in Heads without the first tokens, so its attention differs a little"
    href = core.links.to(
        "heads", checkpoint=chosen.checkpoint, text=opened, head=chosen.head,
        position=example.destination_position - dropped,
    )  # fmt: skip
    opens = html.Span("open in Heads →", className="occurrence-open")
    return dcc.Link([html.Span([note, opens], className="occurrence-note"), text], href=href, className="occurrence")


def _pieces(names: list[str], example: Example) -> list[html.Span]:
    """The tokens around the three, in order."""
    source, destination = example.source_position, example.destination_position
    roles = {source: "source", destination: "destination", len(names) - 1: "out" if example.follows else "instead"}
    positions = {
        *range(max(0, source - _AROUND), min(len(names), source + _AROUND + 1)),
        *range(max(0, destination - _AROUND), len(names)),
    }
    if destination - source <= _MAX_GAP:
        positions = set(range(max(0, source - _AROUND), len(names)))
    pieces, last = [], -1
    for position in sorted(positions):
        if position != last + 1:
            gap = f"… {position - last - 1} tokens …" if last >= 0 else "…"
            pieces.append(html.Span(gap, className="role-gap"))
        text, role = glyphs(names[position]), roles.get(position)
        # A line end is drawn and also broken at, or a page of a novel would be one long line.
        written = [text, "\n"] if text.endswith("⏎") and role is None else text
        marked = {} if role is None else {"className": f"role-{role}", "title": _TITLES[role]}
        pieces.append(html.Span(written, **marked))
        last = position
    return pieces


def opening(model: Any, tokens: list[int], example: Example, limit: int) -> tuple[str | None, int]:
    """Return a text of which the model makes these very tokens, with as few of the first dropped as possible; and how
    many.

    A window may begin within a word or a character, where its text alone would be cut into other tokens.
    """
    least = max(0, len(tokens) - limit)
    for dropped in range(least, min(least + _MAX_DROPPED, example.source_position)):
        wanted = tokens[1 + dropped :]
        text = model.tokenizer.decode(wanted)
        if text and model.to_tokens(text)[0].tolist()[1:] == wanted:
            return text, dropped
    return None, 0
