"""What all addresses have in common: keys and values in, numbers and choices out; anything unreadable is None."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode

#: Layers, heads and positions have at most this many digits; longer numbers are no addresses of ours.
_MAX_DIGITS = 6


def parse_query(search: str | None) -> dict[str, str]:
    """The last value of each key of `?key=value&…`."""
    query = (search or "").removeprefix("?")
    values = parse_qs(query, keep_blank_values=True, max_num_fields=None)
    return {key: found[-1] for key, found in values.items()}


def format_query(pairs: Mapping[str, str]) -> str:
    """`?key=value&…`, or nothing."""
    # A lone surrogate can't be part of an address; the page says so where the text is.
    return "?" + urlencode(pairs, errors="replace") if pairs else ""


def number(value: str | None) -> int | None:
    """A whole number of at most six digits."""
    if value is None or not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
        return None
    return int(value)


def head_of(query: Mapping[str, str]) -> tuple[int, int] | None:
    """Layer and head: `head=1.3`."""
    return pair(query.get("head", ""))


def pair(value: str) -> tuple[int, int] | None:
    """`1.3`."""
    first, dot, second = value.partition(".")
    parts = number(first), number(second)
    return (parts[0], parts[1]) if dot and parts[0] is not None and parts[1] is not None else None


def dotted(pair: tuple[int, int] | None) -> str | None:
    """What `pair` reads."""
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def choice(query: Mapping[str, str], key: str, choices: tuple[str, ...], default: str | None):  # type: ignore[no-untyped-def]
    """One of `choices`, else `default`."""
    value = query.get(key)
    return value if value in choices else default
