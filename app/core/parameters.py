"""Numbers that sliders set and addresses remember: declared once, with their bounds.

class State:
    noise: float = parameter("Noise δ", 0.1, least=0.0, most=1.0, step=0.01)

PARAMETERS = parameters(State)  # {"noise": NumberParameter(…)}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from aotlens.views.kinds import NumberParameter
from aotlens.views.parameters import declared as declared_in
from app.core import address


def whole_within(value: Any, otherwise: int, least: int, most: int) -> int:
    """Return the whole number that a box holds, within bounds; `otherwise` for what is no number, as an empty box."""
    return min(max(int(value), least), most) if isinstance(value, int | float) else otherwise


def parameter(label: str, first: float, *, least: float, most: float, step: float = 1) -> Any:
    """Return a field of an address that a slider sets; whole where its steps are."""
    return declared(NumberParameter(label, first, least=least, most=most, step=step))


def declared(parameter: NumberParameter) -> Any:
    """Return the field of an address for a view's parameter."""
    if parameter.whole:
        field = address.whole(parameter.first, least=int(parameter.least), most=int(parameter.most))
    else:
        field = address.real(parameter.first, least=parameter.least, most=parameter.most)
    return dataclasses.field(default=field.default, metadata={**field.metadata, "parameter": parameter})


def parameters(state: type[Any]) -> dict[str, NumberParameter]:
    """Return the parameters of an address's state by the names of their fields, in their order."""
    declared = dataclasses.fields(state)
    return {field.name: field.metadata["parameter"] for field in declared if "parameter" in field.metadata}


def within(parameters: Mapping[str, NumberParameter], form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a form, its sliders within their bounds."""
    return {**form, **{name: parameter.within(form[name]) for name, parameter in parameters.items()}}


def numbers(of: type[Any], *names: str) -> dict[str, NumberParameter]:
    """Return the number parameters of a family's dataclass, all of them or those of these names."""
    known = {name: each for name, each in declared_in(of).items() if isinstance(each, NumberParameter)}
    return {name: known[name] for name in names or known}
