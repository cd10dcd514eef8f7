"""The Non-linearity page's address: a network, how it is compiled, η, and what of it is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from aotlens.views.nonlinearity_choice import ACTIVATIONS, CONSTRUCTIONS, FIRST_KNOTS, PARAMETERS, PRESETS, SCALES
from app.core import Core, address
from app.core.address_values import REAL
from app.core.parameters import declared

View = Literal["error", "one", "mask"]
Beside = Literal["model", "heads", "gate"]

#: Points `x,y` with semicolons between; as many as somebody likes: too many are refused on the page, with a reason.
_KNOTS = re.compile(rf"{REAL},{REAL}(;{REAL},{REAL}){{0,199}}", re.ASCII | re.IGNORECASE)
#: The form of the auxiliary vector: `unit`, `random`, or the vector's numbers.
_AUXILIARY = re.compile(rf"unit|random|{REAL}(,{REAL}){{0,299}}", re.ASCII | re.IGNORECASE)


def _within(core: Core, state: NonlinearityState, value: tuple[float, ...]) -> None:
    inside = tuple(min(max(number, -state.bound), state.bound) for number in value)
    if inside != value:
        raise address.Unfit(f"numbers from {-state.bound:g} to {state.bound:g}, the inputs' bound", inside)


@dataclass(frozen=True, kw_only=True)
class NonlinearityState:
    """Everything that the Non-linearity page shows."""

    preset: str = address.choice(tuple(PRESETS), "hat")
    inputs: int = declared(PARAMETERS["inputs"])
    activation: str = address.choice(tuple(ACTIVATIONS), "relu")
    width: int = declared(PARAMETERS["width"])
    depth: int = declared(PARAMETERS["depth"])
    seed: int = declared(PARAMETERS["seed"])
    knots: str = address.text(FIRST_KNOTS, pattern=_KNOTS, expected="points, as -2,0;-1,1;2,0")
    """The points of a drawn function, `x,y` with semicolons between."""
    bound: float = address.real(PARAMETERS["bound"].first)
    """The bound; any number, as `tolerance`: the page says what is wrong with one."""
    tolerance: float = address.real(PARAMETERS["tolerance"].first)
    construction: str = address.choice(tuple(CONSTRUCTIONS), "lean")
    auxiliary: str = address.text("unit", pattern=_AUXILIARY, expected="unit, random, or numbers, as 0.5,-1,2")
    """The auxiliary vector: `unit`, `random`, or the vector's numbers with commas between."""
    eta: float | None = address.real()
    """η of all ReLU layers; None for those that the proof chooses."""
    head: tuple[int, int] | None = address.pair(expected="a layer and a head, as 1.3")
    """None for the first hidden unit's."""
    x: tuple[float, ...] | None = address.reals(most=2, check=_within)
    """The input that is looked at; None for a quarter of the bound."""
    scale: str = address.choice(tuple(SCALES), "linear")
    """The error's axis."""
    view: View = address.choice(get_args(View), "error")
    """The panel that is open at the left; `beside` is at the right."""
    beside: Beside = address.choice(get_args(Beside), "model")


ADDRESS = address.Address("nonlinearity", NonlinearityState)
