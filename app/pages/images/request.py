"""What the Images page asks for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ImageRequest:
    """Which images of which data, through which model."""

    checkpoint: str
    data: str
    of: int | None
    start: int
    own: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For the browser."""
        return {**asdict(self), "own": list(self.own)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ImageRequest:
        """What `to_dict` made, whatever else is with it."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name != "own"}, own=tuple(data["own"]))
