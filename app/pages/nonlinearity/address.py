"""The Non-linearity page's address: a network, how it is compiled, η, and what of it is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from app.core import Core, address
from app.core.address_values import REAL

Preset = Literal["abs", "hat", "ramp", "sawtooth", "square", "sine", "random", "drawn"]
Activation = Literal["relu", "silu"]
Construction = Literal["lean", "narrow", "paper"]
Scale = Literal["linear", "log"]
View = Literal["error", "one", "mask"]
Beside = Literal["model", "heads", "gate"]

FIRST_WIDTH, MAX_WIDTH = 6, 64
FIRST_DEPTH, MAX_DEPTH = 2, 6
FIRST_BOUND, FIRST_TOLERANCE = 2.0, 0.05
#: Points of a function that is drawn, at most.
MAX_KNOTS = 40
#: What a drawing starts from.
FIRST_KNOTS = "-2,0;-1,1;0,-0.5;1,0.8;2,0"

_NUMBER = REAL
#: Points `x,y` with semicolons between; as many as somebody likes: too many are refused on the page, with a reason.
_KNOTS = re.compile(rf"{_NUMBER},{_NUMBER}(;{_NUMBER},{_NUMBER}){{0,199}}", re.ASCII | re.IGNORECASE)
#: `unit`, `random`, or the vector's numbers.
_AUXILIARY = re.compile(rf"unit|random|{_NUMBER}(,{_NUMBER}){{0,299}}", re.ASCII | re.IGNORECASE)


def _within(core: Core, state: NonlinearityState, value: tuple[float, ...]) -> None:
    inside = tuple(min(max(number, -state.bound), state.bound) for number in value)
    if inside != value:
        raise address.Unfit(f"numbers from {-state.bound:g} to {state.bound:g}, the inputs' bound", inside)


@dataclass(frozen=True, kw_only=True)
class NonlinearityState:
    """Everything that the Non-linearity page shows."""

    preset: Preset = address.choice(get_args(Preset), "hat")
    inputs: int = address.whole(1, least=1, most=2)
    """How many numbers the network reads: 1 or 2."""
    activation: Activation = address.choice(get_args(Activation), "relu")
    width: int = address.whole(FIRST_WIDTH, least=1, most=MAX_WIDTH)
    depth: int = address.whole(FIRST_DEPTH, least=1, most=MAX_DEPTH)
    seed: int = address.whole(0)
    knots: str = address.text(FIRST_KNOTS, pattern=_KNOTS, expected="points, as -2,0;-1,1;2,0")
    """The points of a drawn function, `x,y` with semicolons between."""
    bound: float = address.real(FIRST_BOUND)
    tolerance: float = address.real(FIRST_TOLERANCE)
    construction: Construction = address.choice(get_args(Construction), "lean")
    auxiliary: str = address.text("unit", pattern=_AUXILIARY, expected="unit, random, or numbers, as 0.5,-1,2")
    """`unit`, `random`, or the vector's numbers with commas between."""
    eta: float | None = address.real()
    """η of all ReLU layers; None: as the proof chooses them."""
    head: tuple[int, int] | None = address.pair(expected="a layer and a head, as 1.3")
    """None: the first."""
    x: tuple[float, ...] | None = address.reals(most=2, check=_within)
    """The input that is looked at; None: a place at which something happens."""
    scale: Scale = address.choice(get_args(Scale), "linear")
    """The error's axis."""
    view: View = address.choice(get_args(View), "error")
    """The panel that is open at the left; `beside` is at the right."""
    beside: Beside = address.choice(get_args(Beside), "model")


ADDRESS = address.Address("nonlinearity", NonlinearityState)
