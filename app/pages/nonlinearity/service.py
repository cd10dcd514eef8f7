"""The network that the page's controls ask for, with what it has in the place of what it has not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from aotlens.distill.compile.described import CompiledHeads
from aotlens.views.nonlinearity import HEADS
from aotlens.views.nonlinearity_choice import PARAMETERS, USES, Chosen, read_numbers, read_points
from app.core import Core
from app.core.address_checks import Unfit
from app.core.address_values import number
from app.core.errors import RequestError
from app.core.workshop import AppWorkshop
from app.pages.nonlinearity.address import ADDRESS, NonlinearityState
from app.pages.nonlinearity.ids import CONTROLS

#: Powers of ten between which η slides.
LEAST_ETA, MOST_ETA = -9, 1
#: A choice has some eight results: the model, with the proof's η as well, and what the panels show.
_RESULTS = 8
#: The fields of what is looked at, of whatever network.
_LOOKS = ("head", "x", "scale", "eta")


@dataclass(frozen=True, kw_only=True)
class NonlinearityRequest(Chosen):
    """A network, and what else the page says of it."""

    said: tuple[str, ...] = ()
    """A sentence for each thing that the address named and this model has not."""
    same_heads: bool = False
    """Whether the model that was shown before has the same heads."""


class Nonlinearity:
    """Compiled networks by what was asked for."""

    def __init__(self, core: Core) -> None:
        self.workshop = AppWorkshop(core, _RESULTS * core.settings.n_compiled)

    def values(self, form: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> NonlinearityRequest:
        """Return what the page shows for its controls, by their ids; `before` is what it showed when this was asked."""
        try:
            return self.of_address(from_form(form), before)
        except RequestError as error:
            return NonlinearityRequest(problem=str(error))

    def of_address(self, state: NonlinearityState, before: Mapping[str, Any] | None = None) -> NonlinearityRequest:
        """Return the request that an address says; of a network that cannot be compiled, with the reason."""
        first = NonlinearityState()
        unused = {"width", "depth", "seed", "knots"} - set(USES[state.preset])
        unused |= {"eta"} if state.activation == "silu" else set()
        state = replace(state, **{name: getattr(first, name) for name in unused})
        given = {field.name: getattr(state, field.name) for field in fields(state)}
        chosen = NonlinearityRequest(
            **{name: value for name, value in given.items() if name not in ("view", "beside", "x")},
            x=_within(state) if state.bound > 0 else None,
        )
        try:
            heads: CompiledHeads = self.workshop.result(HEADS, chosen)
        except ValueError as error:
            return replace(chosen, problem=str(error))
        roles = {(role.layer, role.head): role for role in heads.roles}
        units = (place for place, role in roles.items() if role.job == "unit")
        head = state.head if state.head in roles else next(units, next(iter(roles)))
        sentences = []
        if before is None and state.head not in (None, head):
            expected = "a head of this model that is not only zeros"
            sentences = [ADDRESS.sentence("head", ADDRESS.written("head", state.head), expected, head)]
        network = {name: value for name, value in ADDRESS.json(state).items() if name not in _LOOKS}
        same = before is not None and all(before[name] == value for name, value in network.items() if name in before)
        return replace(chosen, head=head, gated=roles[head].gated, said=tuple(sentences), same_heads=same)


def from_form(form: Mapping[str, Any]) -> NonlinearityState:
    """Read the page's controls. Raises RequestError for what no address could say, with what was expected."""
    given = {name: form[id] for name, id in CONTROLS.items()}
    knots, auxiliary = NonlinearityState().knots, given["auxiliary"]
    try:
        if given["preset"] == "drawn":
            knots = ";".join(f"{x:.12g},{y:.12g}" for x, y in zip(*read_points(given["knots"] or ""), strict=True))
        if auxiliary == "own":
            numbers = read_numbers(given["vector"] or "", "Auxiliary token")
            auxiliary = ",".join(f"{each:.12g}" for each in numbers)
        whole = {name: PARAMETERS[name].within(given[name]) for name in ("width", "depth", "seed")}
        real = {name: _number(given[name], PARAMETERS[name].label) for name in ("bound", "tolerance")}
        state = ADDRESS.state({
            **{name: given[name] for name in ("preset", "activation", "construction", "eta", "head", "scale")},
            "inputs": 2 if str(given["inputs"]) == "2" else 1, "knots": knots, "auxiliary": auxiliary, **whole, **real,
        })  # fmt: skip
    except Unfit as unfit:
        raise RequestError(f"Expected {unfit.expected}.") from unfit
    except ValueError as error:
        raise RequestError(str(error)) from error
    numbers = [given["x1"], given["x2"]][: state.inputs]
    return replace(state, x=tuple(float(each) for each in numbers) if all(_is_real(each) for each in numbers) else None)


def slider_of(eta: float) -> float:
    """Return where the slider stands for this η: its power of ten."""
    return min(max(round(math.log10(eta), 2), LEAST_ETA), MOST_ETA) if eta > 0 else LEAST_ETA


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _within(state: NonlinearityState) -> tuple[float, ...] | None:
    """Return as many numbers as the network reads, within its bound."""
    if state.x is None:
        return None
    return tuple(min(max(each, -state.bound), state.bound) for each in [*state.x, *state.x][: state.inputs])


def _number(text: Any, name: str) -> float:
    value = number(str(text).strip().replace("−", "-"))
    if value is None:
        raise RequestError(f"{name}: expected a number such as 0.001 or 1e-3, got “{str(text)[:40]}”.")
    return value
