"""Figures as a reader wants them."""

from __future__ import annotations

_SECONDS = ((31_557_600, "years"), (86_400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def seconds(value: float) -> str:
    """Write a time to two digits in a unit that suits it."""
    return _in(value, _SECONDS)


def size(value: float) -> str:
    """Write bytes to two digits in a unit that suits them."""
    return _in(value, _BYTES)


def _in(value: float, units: tuple[tuple[float, str], ...]) -> str:
    unit, name = next((pair for pair in units if value >= 0.995 * pair[0]), units[-1])
    number = value / unit
    digits = float(f"{number:.2g}")
    return f"{digits:,.0f} {name}" if digits >= 10 else f"{digits:.1f} {name}"
