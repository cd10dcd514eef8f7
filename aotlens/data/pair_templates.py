"""Templates of pairs: which names stand in their braces, and which words fill them without sharing too many."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, permutations
from string import Formatter
from typing import Any

import numpy as np

#: Words that a template is tried with, all of them in pairs.
MAX_WORDS = 1000


def template_names(template: Any) -> set[str]:
    """Return the names in a template's braces; nothing else, as a format (`{A:>9999}`) or attribute makes any text."""
    if not isinstance(template, str):
        raise ValueError(f"template: expected a text, got {template!r:.60}.")
    try:
        fields = [each[1:] for each in Formatter().parse(template) if each[1] is not None]
    except ValueError as error:
        raise ValueError(f"template {template!r:.200}: {error}.") from error
    for name, style, conversion in fields:
        if not str(name).isidentifier() or style or conversion:
            raise ValueError(f"template {template!r:.200}: expected names alone in braces, as {{A}}, got {name!r:.60}.")
    return {str(name) for name, _, _ in fields}


def grouped_pairs(
    pairs: Collection[tuple[str, ...]], n: int, rng: np.random.Generator
) -> list[tuple[tuple[str, ...], str | None]]:
    """Return `n` pairs of words, each with its group, None where no two pairs share a word: words are split into the
    smallest groups that have n pairs, of which none is another one exchanged unless all pairs are needed."""
    words = rng.permutation(sorted({word for pair in pairs for word in pair})).tolist()
    drawn: list[tuple[tuple[str, ...], str | None]] = []
    for size in range(2, len(words) + 1):
        groups = [words[start : start + size] for start in range(0, len(words), size)]
        ways = permutations if size == len(words) else combinations
        drawn = [
            (both, None if size == 2 else ", ".join(group))
            for group in groups for both in ways(group, 2) if both in pairs
        ]  # fmt: skip
        if len(drawn) >= n:
            break
    return [drawn[place] for place in rng.permutation(len(drawn))[:n]]
