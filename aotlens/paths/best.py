"""The largest of many contributions that a search comes by, whatever they are the contributions of."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from aotlens.paths.target import whole_number

Named = TypeVar("Named")
_SIGNS: dict[str, float] = {"pos": 1.0, "neg": -1.0}


class Best(Generic[Named]):
    """The k + 1 largest seen; the last is there to bound what was evaluated and is not returned."""

    def __init__(self, k: int, by: str) -> None:
        self.k, self.by = k, by
        self.heap: list[tuple[float, int, float, Named]] = []
        self.tie = count(0, -1)  # of two equal paths the first found stays
        self.n_seen = 0

    def keys(self, values: Tensor) -> Tensor:
        """Return the numbers that values are ranked by."""
        return values.abs() if self.by == "abs" else values * _SIGNS[self.by]

    def offer(self, values: Tensor, name: Callable[[int], Named]) -> None:
        """Consider all entries of a tensor; `name(index)` says which one is."""
        flat = values.flatten()
        self.n_seen += flat.numel()
        keys, indices = self.keys(flat).topk(min(self.k + 1, flat.numel()))
        if not bool(keys[0].isfinite()):  # NaN counts as the largest
            raise ValueError(
                f"top: a contribution is {float(flat[indices[0]])} in {flat.dtype}; use model.double(), or "
                "by_order, which sums over paths."
            )
        for key, index in zip(keys.tolist(), indices.tolist(), strict=True):
            full = len(self.heap) > self.k
            if full and key <= self.heap[0][0]:
                break
            entry = (key, next(self.tie), float(flat[index]), name(index))
            if full:
                heapq.heapreplace(self.heap, entry)
            else:
                heapq.heappush(self.heap, entry)

    def sorted(self) -> list[tuple[float, int, float, Named]]:
        """Return (key, tie, value, name), the largest key first."""
        return sorted(self.heap, key=lambda entry: entry[:2], reverse=True)

    def threshold(self) -> float:
        """Return the k-th best key, −∞ while there are fewer."""
        if len(self.heap) < self.k:
            return float("-inf")
        return self.heap[0][0] if len(self.heap) == self.k else heapq.nsmallest(2, self.heap)[1][0]

    def floor(self) -> float:
        """Return the k + 1-th best key, −∞ while there are fewer: what is not above it changes nothing that is
        returned."""
        return self.heap[0][0] if len(self.heap) > self.k else float("-inf")


def checked_search(k: Any, by: str, budget: Any) -> tuple[int, int]:
    """Return k and budget as numbers. Raises `ValueError` for either below 1, and for another `by`."""
    k, budget = whole_number("k", k), whole_number("budget", budget)
    if k < 1 or budget < 1:
        raise ValueError(f"top: expected k ≥ 1 and budget ≥ 1, got k={k} and budget={budget}.")
    if by not in ("abs", "pos", "neg"):
        raise ValueError(f"by={by!r}: expected 'abs', 'pos' or 'neg'.")
    return k, budget


def slack_of(weights: Tensor) -> float:
    """Return the factor of bounds: they are computed in floating point as well, and may have lost to rounding."""
    exact = not weights.is_cuda or torch.get_float32_matmul_precision() == "highest"
    return 1 + (1e-9 if weights.dtype == torch.float64 else 1e-4 if exact else 1e-2)
