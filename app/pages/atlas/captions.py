"""Captions of the Atlas page's numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from app.pages.atlas.service import AtlasResult


def shown(result: AtlasResult) -> list[str]:
    """Say which atlas the page shows, and what stands out."""
    sentences = [f"{result.atlas.headline.replace('_', ' ')}.", f"Read: {result.about}."]
    reasons: dict[str, list[str]] = {}
    for what, why in result.atlas.missing.items():
        reasons.setdefault(why, []).append(what)
    sentences += [f"Not measured: {' and '.join(names)}; {why}." for why, names in reasons.items()]
    return sentences


def mlps(checkpoint: str, d_mlp: int) -> str:
    """Say what the page shows of a model with MLPs, and what not."""
    return (
        f"{checkpoint} has MLPs (d_mlp = {d_mlp}): they run in every loss and every effect of leaving a head out, and "
        "are left out of copying, which reads a head's weights alone."
    )


def none_yet(checkpoint: str) -> str:
    """Say that a checkpoint has no atlas yet."""
    return f"There is no atlas of {checkpoint} yet. Open “On another text”, choose one and press Run."


def gone(checkpoint: str, corpus: str) -> str:
    """Say that the atlas that an address names is not here."""
    return (
        f"An atlas of {checkpoint} on {corpus} is not in memory now. Press Run: what was measured before is "
        "read from disk."
    )


def signed(value: float, form: str = "+.3f") -> str:
    """Return a number with its sign."""
    return format(value, form).replace("-", "−")


def between(low: float, high: float, form: str = "+.3f") -> str:
    """Return an interval; an empty text for an unknown one, as of a single document."""
    return f"{signed(low, form)} to {signed(high, form)}" if low == low else ""


def name(head: Head) -> str:
    """Return a head as it is written."""
    return f"{head[0]}.{head[1]}"


def named(where: str | None, columns: Iterable[str]) -> list[str]:
    """Return the columns that a search names."""
    written = (where or "").casefold().replace(" ", "_")
    return [column for column in columns if column in written]
