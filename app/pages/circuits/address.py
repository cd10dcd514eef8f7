"""The Circuits page's address: a head, a circuit's sides, and what of it is listed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address

Kind = Literal["qk", "ov"]
Statistic = Literal["extreme", "mean"]
View = Literal["map", "whole", "eigenvalues", "composition"]
Beside = Literal["top", "lines", "block", "singular", "copying"]

#: A side of a circuit by name; an earlier or later head is `layer.head`.
SIDES = ("tokens", "positions", "bias", "residual", "logits")

#: Rows and columns of the map that an address may name.
MAX_CHOSEN = 48

#: The z-score from which the Circuits page draws those pairs that lie above their null.
FIRST_Z = 0

_SIDE = re.compile(rf"{'|'.join(SIDES)}|(0|[1-9]\d{{0,5}})\.(0|[1-9]\d{{0,5}})", re.ASCII)
_EXPECTED = f"one of {', '.join(SIDES)}, or a head, as 0.3"


@dataclass(frozen=True, kw_only=True)
class CircuitsState:
    """Everything that the Circuits page shows."""

    checkpoint: str | None = address.checkpoint()
    head: tuple[int, int] | None = address.head()
    kind: Kind = address.choice(get_args(Kind), "qk")
    left: str | None = address.text(pattern=_SIDE, expected=_EXPECTED)
    """The rows' side, one of `SIDES` or `layer.head`; None: tokens, where the model has them."""
    right: str | None = address.text(pattern=_SIDE, expected=_EXPECTED)
    biases: bool = address.flag("with")
    """Whether the biases are in every entry of a QK circuit."""
    distance: int | None = address.whole()
    """The distance from source to destination, of a QK circuit that depends on it; None: the mean over distances."""
    rows: tuple[int, ...] = address.wholes(most=MAX_CHOSEN)
    """The map's rows; none: those of the largest entries."""
    columns: tuple[int, ...] = address.wholes(most=MAX_CHOSEN)
    row: int | None = address.whole()
    """The row that is listed; None: that of the largest entry."""
    column: int | None = address.whole()
    statistic: Statistic = address.choice(get_args(Statistic), "extreme", key="blocks")
    """The statistic that stands for a block of the whole matrix."""
    block: tuple[int, int] | None = address.pair()
    """The block that is shown in full; None: that of the largest entry."""
    z: int = address.whole(FIRST_Z)
    """The least z-score of the pairs above their null that are drawn."""
    text: str | None = address.prompt()
    """The text on the Heads page, for the way back."""
    view: View = address.choice(get_args(View), "map")
    """The panel that is open at the left; `beside` is at the right."""
    beside: Beside = address.choice(get_args(Beside), "top")


ADDRESS = address.Address("circuits", CircuitsState)
