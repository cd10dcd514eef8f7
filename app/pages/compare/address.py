"""The Compare page's address: two panes, a pair of heads and how they are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from app.core import address
from app.core.address_checks import Check, Unfit
from app.core.examples import FIRST
from app.core.head_maps import View
from app.core.switches import How

if TYPE_CHECKING:
    from app.core import Core

Tab = Literal["maps", "pairs"]
Side = Literal["left", "right"]
Head = tuple[int, int]


def _position(side: Side) -> Check:
    """The pane's text has a token there."""

    def check(core: Core, state: CompareState, value: int) -> None:
        checkpoint, text = pane_of(state, side)
        n = core.inference.n_tokens(checkpoint or core.catalog.default(), core.corpora.prompt(text))
        if n is not None and value >= n:
            raise Unfit(f"the position of one of the {side} text's {n:,} tokens, from 0 to {n - 1:,}")

    return check


@dataclass(frozen=True, kw_only=True)
class CompareState:
    """Everything that the Compare page shows."""

    left: str | None = address.checkpoint()
    left_off: tuple[Head, ...] = address.heads("left", key="left-off")
    """Heads that are switched off in the left pane."""
    right: str | None = address.checkpoint()
    """The right checkpoint; None: the left one."""
    right_off: tuple[Head, ...] = address.heads("right", "left", key="right-off")
    how: How = address.choice(get_args(How), "zero")
    """The replacement of the output of a head that is switched off."""
    corpus: str | None = address.corpus()
    """The text from which that is taken, where it is what heads do elsewhere."""
    text: str | None = address.prompt()
    """The text; None: the first example."""
    other: str | None = address.prompt()
    """The right pane's text, where it is another one."""
    head: tuple[int, int] | None = address.head("left")
    """The left head; None: 0.0."""
    other_head: tuple[int, int] | None = address.head("right", "left", key="other-head")
    """The right head; None: the one that the left head is matched with."""
    position: int | None = address.whole(check=_position("left"))
    """The locked token, in both panes where they have the same tokens; None: none."""
    other_position: int | None = address.whole(key="other-position", check=_position("right"))
    """The locked token of the right pane, where it has other tokens."""
    view: View = address.choice(get_args(View), "attention")
    hide_first: bool = address.flag("hide", key="sink")
    """Whether attention to position 0 is left out."""
    tab: Tab = address.choice(get_args(Tab), "maps")


def pane_of(state: CompareState, side: Side) -> tuple[str | None, str]:
    """Return the checkpoint of a pane (None: the first) and its text, as the address says it."""
    text = FIRST if state.text is None else state.text
    if side == "left":
        return state.left, text
    return state.right or state.left, text if state.other is None else state.other


ADDRESS: address.Address[Any] = address.Address("compare", CompareState)
