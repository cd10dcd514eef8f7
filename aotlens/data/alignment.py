"""The alignment of two prompts: their corresponding positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

#: Positions that correspond, (clean, corrupted), increasing in both.
Alignment: TypeAlias = tuple[tuple[int, int], ...]


def given_positions(positions: Any, n_clean: int, n_corrupted: int) -> Alignment:
    """Check positions given by hand. Raises `ValueError` for what does not increase, or is not there."""
    if not isinstance(positions, list | tuple) or not all(isinstance(each, list | tuple) for each in positions):
        raise ValueError(f"positions: expected pairs (clean, corrupted), got {positions!r:.60}.")
    given = tuple(tuple(each) for each in positions)
    last = (-1, -1)
    for each in given:
        good = (
            len(each) == 2
            and all(type(position) is int for position in each)
            and each[0] < n_clean
            and each[1] < n_corrupted
        )
        if not good or not (each[0] > last[0] and each[1] > last[1]):
            raise ValueError(
                f"positions: expected pairs (clean, corrupted) that increase, within {n_clean} and {n_corrupted} "
                f"positions, got {each} after {last}."
            )
        last = each  # type: ignore[assignment]
    return given  # type: ignore[return-value]


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
