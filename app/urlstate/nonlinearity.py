"""The Non-linearity page's address: a network, how it is compiled, η, and what of it is looked at."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from app.urlstate.query import choice, dotted, format_query, head_of, number, parse_query

Preset = Literal["abs", "hat", "ramp", "sawtooth", "square", "sine", "random", "drawn"]
Activation = Literal["relu", "silu"]
Construction = Literal["lean", "narrow", "paper"]

NONLINEARITY_PATH = "/nonlinearity"

FIRST_WIDTH, MAX_WIDTH = 6, 64
FIRST_DEPTH, MAX_DEPTH = 2, 6
FIRST_BOUND, FIRST_TOLERANCE = 2.0, 0.05
#: Points of a function that is drawn, at most.
MAX_KNOTS = 40
#: What a drawing starts from.
FIRST_KNOTS = "-2,0;-1,1;0,-0.5;1,0.8;2,0"

#: Python writes 0.0001234… without an exponent, with up to 20 digits after the point.
_NUMBER = r"[-+]?(\d{1,17}\.?\d{0,21}|\.\d{1,21})(e[-+]?\d{1,3})?"
_FLOAT = re.compile(_NUMBER, re.ASCII | re.IGNORECASE)
#: Points `x,y` with semicolons between; as many as somebody likes: too many are refused on the page, with a reason.
_KNOTS = re.compile(rf"{_NUMBER},{_NUMBER}(;{_NUMBER},{_NUMBER}){{0,199}}", re.ASCII | re.IGNORECASE)
#: `unit`, `random`, or the vector's numbers.
_AUXILIARY = re.compile(rf"unit|random|{_NUMBER}(,{_NUMBER}){{0,299}}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class NonlinearityState:
    """Everything that the Non-linearity page shows."""

    preset: Preset = "hat"
    inputs: int = 1
    """How many numbers the network reads: 1 or 2."""
    activation: Activation = "relu"
    width: int = FIRST_WIDTH
    depth: int = FIRST_DEPTH
    seed: int = 0
    knots: str = FIRST_KNOTS
    """The points of a drawn function, `x,y` with semicolons between."""
    bound: float = FIRST_BOUND
    tolerance: float = FIRST_TOLERANCE
    construction: Construction = "lean"
    auxiliary: str = "unit"
    """`unit`, `random`, or the vector's numbers with commas between."""
    eta: float | None = None
    """η of all ReLU layers; None: as the proof chooses them."""
    head: tuple[int, int] | None = None
    """None: the first."""
    x: tuple[float, ...] | None = None
    """The input that is looked at; None: a place at which something happens."""
    log: bool = False
    """Whether the error's axis is logarithmic."""


def parse_nonlinearity(search: str | None) -> NonlinearityState:
    """The state that `format_nonlinearity` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    knots, auxiliary = query.get("knots", ""), query.get("auxiliary", "")
    x = tuple(real(part) for part in query.get("x", "").split(","))
    found = {
        "width": _within(query.get("width"), MAX_WIDTH),
        "depth": _within(query.get("depth"), MAX_DEPTH),
        "seed": number(query.get("seed")),
        "knots": knots if _KNOTS.fullmatch(knots) else None,
        "bound": real(query.get("bound")),
        "tolerance": real(query.get("tolerance")),
        "auxiliary": auxiliary if _AUXILIARY.fullmatch(auxiliary) else None,
        "eta": real(query.get("eta")),
        "x": x if len(x) <= 2 and None not in x else None,
    }
    return NonlinearityState(
        preset=choice(query, "preset", get_args(Preset), "hat"),
        inputs=2 if query.get("inputs") == "2" else 1,
        activation=choice(query, "activation", get_args(Activation), "relu"),
        construction=choice(query, "construction", get_args(Construction), "lean"),
        head=head_of(query),
        log=query.get("scale") == "log",
        **{key: value for key, value in found.items() if value is not None},  # type: ignore[arg-type]
    )


def format_nonlinearity(state: NonlinearityState) -> str:
    """The address of a state; defaults are left out."""
    first = NonlinearityState()
    pairs: dict[str, str] = {}
    for key in ("preset", "inputs", "activation", "width", "depth", "seed", "knots", "bound", "tolerance",
                "construction", "auxiliary", "eta"):  # fmt: skip
        value = getattr(state, key)
        if value != getattr(first, key):
            pairs[key] = str(value)
    if state.head is not None:
        pairs["head"] = str(dotted(state.head))
    if state.x is not None:
        pairs["x"] = ",".join(map(str, state.x))
    if state.log:
        pairs["scale"] = "log"
    return NONLINEARITY_PATH + format_query(pairs)


def real(text: str | None) -> float | None:
    """A finite number, `0.001` or `1e-3`; None for anything else."""
    if text is None or len(text) > 40 or not _FLOAT.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _within(text: str | None, most: int) -> int | None:
    value = number(text)
    return None if value is None else min(max(value, 1), most)
