"""Random masked sequences."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_sequences(
    n: int, *, length: int = 6, d: int = 5, vocabulary: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X [n, pos, d] with one token of each sequence masked, the ids of what was there, where, and [MASK]."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = vocabulary or 3 * length
    tokens = torch.randn(vocabulary, d, generator=generator, dtype=torch.float64)
    mask = torch.randn(d, generator=generator, dtype=torch.float64)
    seen: set[frozenset[int]] = set()
    rows = []
    while len(rows) < n:
        row = torch.randperm(vocabulary, generator=generator)[:length]
        position = int(torch.randint(length, (1,), generator=generator))
        rest = frozenset(row.tolist()) - {int(row[position])}
        if rest not in seen:  # or two would be equal up to order once masked
            seen.add(rest)
            rows.append((row, position))
    ids = torch.stack([row for row, _ in rows])
    positions = torch.tensor([position for _, position in rows])
    at = torch.arange(n)
    X, y = tokens[ids], ids[at, positions]
    X[at, positions] = mask
    return X, y, positions, mask
