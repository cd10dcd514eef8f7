"""Values as they stand in an address: numbers, pairs of them, and what is quoted of a value that cannot be."""

from __future__ import annotations

import math
import re

#: Layers, heads and positions have at most this many digits; longer numbers are no addresses of ours.
MAX_DIGITS = 6
_MAX_QUOTED = 60
#: The pattern of a number. Python writes 0.0001234… without an exponent, with up to 20 digits after the point.
REAL = r"[-+]?(\d{1,17}\.?\d{0,21}|\.\d{1,21})(e[-+]?\d{1,3})?"
_REAL = re.compile(REAL, re.ASCII | re.IGNORECASE)


def read_whole(value: str, digits: int = MAX_DIGITS) -> int | None:
    """Return a whole number of at most so many digits; None for anything else."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= digits else None


def read_pair(value: str) -> tuple[int, int] | None:
    """Return two whole numbers, `1.3`; None for anything else."""
    first, dot, second = value.partition(".")
    numbers = read_whole(first), read_whole(second)
    return (numbers[0], numbers[1]) if dot and numbers[0] is not None and numbers[1] is not None else None


def quoted(value: str) -> str:
    """Return a value as a sentence names it: its beginning, where it is long."""
    return value if len(value) <= _MAX_QUOTED else value[: _MAX_QUOTED - 1] + "…"


def dotted(pair: tuple[int, int] | None) -> str:
    """Write a pair of numbers as `1.3`; nothing for None."""
    return "" if pair is None else f"{pair[0]}.{pair[1]}"


def number(value: str | None) -> float | None:
    """Return a finite number, `0.001` or `1e-3`; None for anything else."""
    if value is None or len(value) > 40 or not _REAL.fullmatch(value):
        return None
    result = float(value)
    return result if math.isfinite(result) else None
