"""What an address says, as values; pure functions.

    /heads?checkpoint=novels-2l-mhsa&text=The+cat&head=1.3&position=4&view=scores&direction=from&sink=hide
    /checkpoints?checkpoint=novels-2l-mhsa

Addresses are typed, cut and pasted, so parsing never fails: what can't be understood is left out, which the page reads
as "not chosen". The browser writes the same form (assets/address.js).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qs, urlencode

View = Literal["attention", "weighted", "scores"]
Direction = Literal["to", "from"]

HEADS_PATH = "/heads"
CHECKPOINTS_PATH = "/checkpoints"

#: Layers, heads and positions have at most this many digits; longer numbers are no addresses of ours.
_MAX_DIGITS = 6


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


def parse_query(search: str | None) -> dict[str, str]:
    """The last value of each key of `?key=value&…`."""
    query = (search or "").removeprefix("?")
    values = parse_qs(query, keep_blank_values=True, max_num_fields=None)
    return {key: found[-1] for key, found in values.items()}


def parse_heads(search: str | None) -> HeadsState:
    """The state that `format_heads` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    return HeadsState(
        checkpoint=query.get("checkpoint") or None,
        text=query.get("text"),
        head=_head(query),
        position=_number(query.get("position")),
        view=_choice(query, "view", get_args(View), "attention"),
        direction=_choice(query, "direction", get_args(Direction), "to"),
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
    return HEADS_PATH + _query(pairs)


def parse_checkpoints(search: str | None) -> str | None:
    """The checkpoint chosen on the Checkpoints page."""
    return parse_query(search).get("checkpoint") or None


def format_checkpoints(checkpoint: str | None) -> str:
    """The address of the Checkpoints page with one chosen."""
    return CHECKPOINTS_PATH + _query({"checkpoint": checkpoint} if checkpoint else {})


def _query(pairs: Mapping[str, str]) -> str:
    # A lone surrogate can't be part of an address; the page says so where the text is.
    return "?" + urlencode(pairs, errors="replace") if pairs else ""


def _number(value: str | None) -> int | None:
    if value is None or not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
        return None
    return int(value)


def _head(query: Mapping[str, str]) -> tuple[int, int] | None:
    layer, dot, head = query.get("head", "").partition(".")
    parts = _number(layer), _number(head)
    return (parts[0], parts[1]) if dot and parts[0] is not None and parts[1] is not None else None


def _choice(query: Mapping[str, str], key: str, choices: tuple[str, ...], default: str):  # type: ignore[no-untyped-def]
    value = query.get(key)
    return value if value in choices else default
