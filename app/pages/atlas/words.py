"""What the Atlas page says of its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.pages.atlas.service import Made

if TYPE_CHECKING:
    from aotlens.conventions import Head

#: Columns by what they are called in the table and on an axis, and what they are.
COLUMNS: dict[str, tuple[str, str]] = {
    "label": (
        "does",
        "The motif that its attention exceeds chance by most, or “mixed” where none is enough; resting: with what it "
        "does not spend on the first token",
    ),
    "margin": ("margin", "By how much that excess beats the next motif’s"),
    "induction_random": (
        "induction, random tokens",
        "On random tokens that come twice: attention to what followed the first occurrence",
    ),
    "constancy": ("constancy", "1: the same pattern on every text; 0: the mean over other texts says nothing of it"),
    "constancy_without_first": (
        "constancy without key 0", "The same with attention to the start token left out and the rest rescaled"
    ),
    "mean_distance": ("mean distance", "Tokens between query and key, weighted by attention"),
    "entropy": ("entropy", "Of a query’s attention, nats"),
    "copying": ("copies", "Share of tokens that raise their own logit most through the head"),
    "copying_score": ("copying score", "Σ λ ÷ Σ |λ| over the eigenvalues of tokens → logits"),
    "loss_position_mean": (
        "loss without it", "Nats that the loss rises by with the head’s output replaced by its mean at each position"
    ),
    "loss_fixed_pattern": (
        "loss with its mean pattern", "Nats that the loss rises by with its pattern the mean over other texts"
    ),
    "ffn_error": ("error of its FFN", "Relative error of a feed-forward network of 16 hidden units in its place"),
    "reads": (
        "reads most",
        "The earlier head that it reads most on the text beyond flipped signs, by which input, and z; from 3 on it "
        "stands out",
    ),
    "feeds": ("feeds most", "The later head that reads it most beyond flipped signs"),
}  # fmt: skip

HOWS = {
    "position_mean": ("its means by position", "whatever the text is, it does the same"),
    "fixed_pattern": ("its mean pattern", "its queries and keys have no say"),
    "zero": ("nothing", "it writes nothing"),
    "mean": ("its mean", "it writes a constant"),
    "uniform": ("even attention", "it attends to all keys alike"),
    "resample": ("itself on another text", "it writes what it writes elsewhere"),
}

MODES = {"q": "queries", "k": "keys", "v": "values"}


def title(column: str) -> str:
    """What a column is called."""
    if column in COLUMNS:
        return COLUMNS[column][0]
    if column.startswith("x_"):
        return f"{title(column[2:])} − chance"
    return column.replace("_", " ")


def help_of(column: str) -> str:
    """What a column is."""
    if column in COLUMNS:
        return COLUMNS[column][1]
    if column.startswith("x_"):
        return f"Attention to {column[2:].replace('_', ' ')} less what chance gives"
    return f"Mean attention to {column.replace('_', ' ')} on the text"


def shown(made: Made) -> list[str]:
    """Of which atlas the page is, and what stands out."""
    said = [f"{made.atlas.headline.replace('_', ' ')}.", f"Read: {made.about}."]
    reasons: dict[str, list[str]] = {}
    for what, why in made.atlas.missing.items():
        reasons.setdefault(why, []).append(what)
    said += [f"Not measured: {' and '.join(names)}; {why}." for why, names in reasons.items()]
    return said


def mlps(checkpoint: str, d_mlp: int) -> str:
    """What the page shows of a model with MLPs, and what not."""
    return (
        f"{checkpoint} has MLPs (d_mlp = {d_mlp}): they run in every loss and every effect of leaving a head out, and "
        "are left out of copying, which reads a head's weights alone."
    )


def none_yet(checkpoint: str) -> str:
    """Where a checkpoint has no atlas."""
    return f"There is no atlas of {checkpoint} yet. Open “On another text”, choose one and press Make the atlas."


def gone(checkpoint: str, corpus: str) -> str:
    """Where an address names an atlas that is not here."""
    return (
        f"An atlas of {checkpoint} on {corpus} is not in memory now. Press Make the atlas: what was measured before is "
        "read from disk."
    )


def listed(n: int, total: int) -> str:
    """How many heads a search finds."""
    heads = "head" if total == 1 else "heads"
    return f"{total} {heads}" if n == total else f"{n} of {total} {heads}"


def signed(value: float, form: str = "+.3f") -> str:
    """A number with its sign."""
    return format(value, form).replace("-", "−")


def between(low: float, high: float, form: str = "+.3f") -> str:
    """An interval."""
    return f"{signed(low, form)} to {signed(high, form)}"


def name(head: Head) -> str:
    """A head as it is written."""
    return f"{head[0]}.{head[1]}"


def named(where: str | None, columns: Iterable[str]) -> list[str]:
    """The columns that a search names."""
    written = (where or "").casefold().replace(" ", "_")
    return [column for column in columns if column != "name" and column in written]


def bin_said(counts: list[int], place: int) -> str:
    """Which queries the examples are of, and how many there are."""
    total = sum(counts)
    upper = "1" if place == 9 else f"{(place + 1) / 10:.1f}"
    share = counts[place] / total if total else 0.0
    return (
        f"{counts[place]:,} of {total:,} queries ({share:.1%}) have {place / 10:.1f} to {upper} of their attention "
        "away from the start token."
    )
