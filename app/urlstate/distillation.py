"""The Distillation page's address: which results, how they are looked at, one head on one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.urlstate.query import choice, dotted, format_query, head_of, number, parse_query

#: Where heads attend (`aotlens.distill.heads.TARGETS`, whose import takes seconds), as an address writes it.
Across = Literal["first", "previous", "self", "induction", "separator", "next"]

DISTILLATION_PATH = "/distillation"

#: Results that are shown side by side.
MAX_RESULTS = 3
_MAX_KEY = 120


@dataclass(frozen=True, kw_only=True)
class DistillationState:
    """Everything that the Distillation page shows."""

    results: tuple[str, ...] = ()
    """Names of results; empty: the page's own first choice."""
    width: int | None = None
    """Hidden units of the FFNs; None: 16 where they are."""
    across: Across = "first"
    """Attention to what the errors are drawn against."""
    of: str | None = None
    """The result that the chosen head is of; None: the first."""
    head: tuple[int, int] | None = None
    """None: the most FFN-like."""
    text: str | None = None
    """None: the first example."""


def parse_distillation(search: str | None) -> DistillationState:
    """The state that `format_distillation` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    names = [name[:_MAX_KEY] for name in query.get("results", "").split(",") if name]
    return DistillationState(
        results=tuple(dict.fromkeys(names))[:MAX_RESULTS],
        width=number(query.get("width")),
        across=choice(query, "across", get_args(Across), "first"),
        of=query.get("of") or None,
        head=head_of(query),
        text=query.get("text"),
    )


def format_distillation(state: DistillationState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "results": ",".join(state.results) or None,
        "width": None if state.width is None else str(state.width),
        "across": state.across if state.across != "first" else None,
        "of": state.of,
        "head": dotted(state.head),
        "text": state.text,
    }
    return DISTILLATION_PATH + format_query({key: value for key, value in pairs.items() if value is not None})
