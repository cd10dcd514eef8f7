"""The Heads page's address: a text, a head and how it is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address
from app.core.examples import FIRST
from app.core.head_maps import View

Direction = Literal["to", "from"]
Tab = Literal["map", "predictions"]


@dataclass(frozen=True, kw_only=True)
class HeadsState:
    """Everything that the Heads page shows."""

    checkpoint: str | None = address.checkpoint()
    text: str | None = address.text(blank=True)
    """None: the first example."""
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
    tab: Tab = address.choice(get_args(Tab), "map")


ADDRESS = address.Address("heads", HeadsState)
