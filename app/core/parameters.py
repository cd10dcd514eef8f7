"""Numbers that sliders set and addresses remember: declared once, with their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.core import address


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A number that a slider sets: what it is called, the first value, its bounds, and the slider's steps."""

    label: str
    first: float
    least: float
    most: float
    step: float

    def field(self) -> Any:
        """It in an address: whole where its steps are."""
        if self.step < 1:
            return address.real(self.first, least=self.least, most=self.most)
        return address.whole(int(self.first), least=int(self.least), most=int(self.most))

    def within(self, value: Any) -> Any:
        """What a slider says, within the bounds; the first value for what is no number."""
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else self.first
        number = min(max(number, self.least), self.most)
        return float(number) if self.step < 1 else int(number)
