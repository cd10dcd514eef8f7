"""Values as they stand in an address: whole numbers, pairs of them, and what is quoted of a value that cannot be."""

from __future__ import annotations

#: Layers, heads and positions have at most this many digits; longer numbers are no addresses of ours.
MAX_DIGITS = 6
_MAX_QUOTED = 60


def read_whole(value: str, digits: int = MAX_DIGITS) -> int | None:
    """A whole number of at most so many digits; None for anything else."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= digits else None


def read_pair(value: str) -> tuple[int, int] | None:
    """Two whole numbers, `1.3`; None for anything else."""
    first, dot, second = value.partition(".")
    numbers = read_whole(first), read_whole(second)
    return (numbers[0], numbers[1]) if dot and numbers[0] is not None and numbers[1] is not None else None


def quoted(value: str) -> str:
    """A value as a sentence names it: its beginning, where it is long."""
    return value if len(value) <= _MAX_QUOTED else value[: _MAX_QUOTED - 1] + "…"
