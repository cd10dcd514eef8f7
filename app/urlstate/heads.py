"""The Heads page's address: a text, a head and how it is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.urlstate.query import choice, format_query, head_of, number, parse_query

View = Literal["attention", "weighted", "scores"]
Direction = Literal["to", "from"]

HEADS_PATH = "/heads"


@dataclass(frozen=True, kw_only=True)
class HeadsState:
    """Everything that the Heads page shows."""

    checkpoint: str | None = None
    text: str | None = None
    """None: the first example."""
    head: tuple[int, int] | None = None
    """Layer and head."""
    position: int | None = None
    """The locked token; None: none."""
    view: View = "attention"
    direction: Direction = "to"
    """Whether chips show where the token attends, or what attends to it."""
    hide_first: bool = False
    """Whether attention to position 0 is left out."""


def parse_heads(search: str | None) -> HeadsState:
    """The state that `format_heads` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    return HeadsState(
        checkpoint=query.get("checkpoint") or None,
        text=query.get("text"),
        head=head_of(query),
        position=number(query.get("position")),
        view=choice(query, "view", get_args(View), "attention"),
        direction=choice(query, "direction", get_args(Direction), "to"),
        hide_first=query.get("sink") == "hide",
    )


def format_heads(state: HeadsState) -> str:
    """The address of a state; defaults are left out."""
    pairs: dict[str, str] = {}
    if state.checkpoint:
        pairs["checkpoint"] = state.checkpoint
    if state.text is not None:
        pairs["text"] = state.text
    if state.head is not None:
        pairs["head"] = f"{state.head[0]}.{state.head[1]}"
    if state.position is not None:
        pairs["position"] = str(state.position)
    if state.view != "attention":
        pairs["view"] = state.view
    if state.direction != "to":
        pairs["direction"] = state.direction
    if state.hide_first:
        pairs["sink"] = "hide"
    return HEADS_PATH + format_query(pairs)
