"""Parts of pairs of prompts: templates with the words that fill them, and positions that correspond."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, permutations
from string import Formatter
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

#: Words that a template is tried with, all of them in pairs.
MAX_WORDS = 1000


def template_names(template: Any) -> set[str]:
    """Return the names in a template's braces; nothing else, as a format (`{A:>9999}`) or attribute makes any text."""
    if not isinstance(template, str):
        raise ValueError(f"template: expected a text, got {template!r:.60}.")
    try:
        fields = [field[1:] for field in Formatter().parse(template) if field[1] is not None]
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


#: Positions that correspond, (clean, corrupted), increasing in both.
Alignment: TypeAlias = tuple[tuple[int, int], ...]


def checked_positions(positions: Any, n_clean: int, n_corrupted: int) -> Alignment:
    """Check positions that a user wrote. Raises `ValueError` if they do not increase, or lie outside the prompts."""
    if not isinstance(positions, list | tuple) or not all(isinstance(pair, list | tuple) for pair in positions):
        raise ValueError(f"positions: expected pairs (clean, corrupted), got {positions!r:.60}.")
    pairs = tuple(tuple(pair) for pair in positions)
    last = (-1, -1)
    for pair in pairs:
        good = (
            len(pair) == 2
            and all(type(position) is int for position in pair)
            and pair[0] < n_clean
            and pair[1] < n_corrupted
        )
        if not good or not (pair[0] > last[0] and pair[1] > last[1]):
            raise ValueError(
                f"positions: expected pairs (clean, corrupted) that increase, within {n_clean} and {n_corrupted} "
                f"positions, got {pair} after {last}."
            )
        last = pair  # type: ignore[assignment]
    return pairs  # type: ignore[return-value]


def aligned(clean: Tensor, corrupted: Tensor) -> Alignment:
    """Return the same positions of prompts of one length; of others, a longest common subsequence of their tokens."""
    if len(clean) == len(corrupted):
        return tuple((position, position) for position in range(len(clean)))
    if clean.ndim != 1 or corrupted.ndim != 1:
        raise ValueError(f"expected prompts of one shape, got {list(clean.shape)} and {list(corrupted.shape)}.")
    return common_positions(clean.tolist(), corrupted.tolist())


def common_positions(a: Sequence[Any], b: Sequence[Any]) -> Alignment:
    """Return the positions of a longest common subsequence of two sequences of tokens, (in a, in b)."""
    longest = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)  # of what follows from (i, j) on
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            longest[i, j] = longest[i + 1, j + 1] + 1 if a[i] == b[j] else max(longest[i + 1, j], longest[i, j + 1])
    positions, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            positions.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i + 1, j] >= longest[i, j + 1]:
            i += 1
        else:
            j += 1
    return tuple(positions)
