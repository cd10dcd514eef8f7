"""The Distillation page's address: which results, how they are looked at, one head on one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address

View = Literal["heads", "widths", "attention", "replaced", "table"]
Beside = Literal["head", "curve", "text", "new"]

#: Results that are shown side by side.
MAX_RESULTS = 3


@dataclass(frozen=True, kw_only=True)
class DistillationState:
    """Everything that the Distillation page shows."""

    results: tuple[str, ...] = address.texts(most=MAX_RESULTS, longest=120)
    """Names of results; empty: the page's own first choice."""
    width: int | None = address.whole()
    """Hidden units of the FFNs; None: 16 where they are."""
    across: str = address.motif("first_token")
    """The motif that errors are drawn against attention to."""
    of: str | None = address.text()
    """The result that the chosen head is of; None: the first."""
    head: tuple[int, int] | None = address.pair(expected="a layer and a head, as 1.3")
    """The head; None: the most FFN-like."""
    corpus: str | None = address.corpus()
    """The text that a new distillation reads: a name that the server knows, or the key of one's own."""
    text: str | None = address.prompt()
    """The text; None: the first example."""
    view: View = address.choice(get_args(View), "heads")
    """The panel that is open at the left; `beside` is at the right."""
    beside: Beside = address.choice(get_args(Beside), "head")


ADDRESS = address.Address("distillation", DistillationState)
