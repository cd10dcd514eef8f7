"""Numbers that sliders set and addresses remember: declared once, with their bounds.

class State:
    noise: float = parameter("Noise δ", 0.1, least=0.0, most=1.0, step=0.01)

PARAMETERS = parameters(State)  # {"noise": Parameter(…)}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core import address


def whole_within(value: Any, otherwise: int, least: int, most: int) -> int:
    """The whole number that a box holds, within bounds; `otherwise` for what is no number, as an empty box."""
    return min(max(int(value), least), most) if isinstance(value, int | float) else otherwise


@dataclass(frozen=True)
class Parameter:
    """A number that a slider sets: what it is called, the first value, its bounds, and the slider's steps."""

    label: str
    first: float
    least: float
    most: float
    step: float = 1

    def within(self, value: Any) -> Any:
        """What a slider says, within the bounds; the first value for what is no number."""
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else self.first
        number = min(max(number, self.least), self.most)
        return float(number) if self.step < 1 else int(number)


def parameter(label: str, first: float, *, least: float, most: float, step: float = 1) -> Any:
    """A field of an address that a slider sets; whole where its steps are."""
    if step < 1:
        field = address.real(first, least=least, most=most)
    else:
        field = address.whole(int(first), least=int(least), most=int(most))
    told = Parameter(label, first, least, most, step)
    return dataclasses.field(default=field.default, metadata={**field.metadata, "parameter": told})


def parameters(state: type[Any]) -> dict[str, Parameter]:
    """Those of an address's state by the names of their fields, in their order."""
    declared = dataclasses.fields(state)
    return {field.name: field.metadata["parameter"] for field in declared if "parameter" in field.metadata}


def within(parameters: Mapping[str, Parameter], form: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says, its sliders within their bounds."""
    return {**form, **{name: parameter.within(form[name]) for name, parameter in parameters.items()}}
