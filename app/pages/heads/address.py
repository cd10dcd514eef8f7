"""The Heads page's address: a text, a head and how it is looked at, heads that are switched off, a continuation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address
from app.core.examples import FIRST
from app.core.head_maps import View
from app.core.switches import HOWS, How

Direction = Literal["to", "from"]
Tab = Literal["map", "why", "predictions", "loss", "continue"]


@dataclass(frozen=True, kw_only=True)
class HeadsState:
    """Everything that the Heads page shows."""

    checkpoint: str | None = address.checkpoint()
    text: str | None = address.prompt()
    """The text; None: the first example."""
    head: tuple[int, int] | None = address.head()
    position: int | None = address.position(FIRST)
    """The locked token; None: none."""
    view: View = address.choice(get_args(View), "attention")
    direction: Direction = address.choice(get_args(Direction), "to")
    """Whether chips show where the token attends, or what attends to it."""
    hide_first: bool = address.flag("hide", key="sink")
    """Whether attention to position 0 is left out."""
    rank: str = address.motif("induction")
    """The motif by which heads are ranked."""
    cell: tuple[int, int] | None = address.cell(FIRST)
    """The locked entry of the head's map, query and key; None: none."""
    against: int | str | None = address.against()
    """The contrast of its score in the explanation of why the head attends there."""
    tab: Tab = address.choice(get_args(Tab), "map")
    off: tuple[tuple[int, int], ...] = address.heads()
    """The heads that are switched off."""
    how: How = address.choice(tuple(HOWS), "zero")
    """The replacement of the outputs of ablated heads."""
    corpus: str | None = address.corpus()
    """The text from which that is taken, where it takes one."""
    new: int = address.whole(40, least=1, most=400)
    """The number of tokens that the text is continued by, at most."""
    temperature: float = address.real(0.8, least=0.0, most=10.0)
    """The divisor of the logits; 0: the likeliest token."""
    top_k: int = address.whole(40, least=1, most=100_000)
    """The number of likeliest tokens among which the next one is drawn."""
    seed: int = address.whole(0)
    """The seed of the draws."""
    stop: str | None = address.text(most=40)
    """The text of the token after which a continuation ends; None: none."""


ADDRESS = address.Address("heads", HeadsState)
