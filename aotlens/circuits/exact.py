"""Dot products whose bits do not depend on the machine: what candidates are ordered by."""

from __future__ import annotations

import torch
from torch import Tensor

#: Bytes of float64 terms at once: they stay in a core's cache.
CHUNK_BYTES = 2**20


def dot_products(left: Tensor, right: Tensor, i: Tensor, j: Tensor, *, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
    """`left[i] · right[j]` in float64 for each pair of `i` and `j`, summed in an order that is written here.

    `left` `[rows, inner]` and `right` `[columns, inner]` are real and of any dtype; `i` and `j` are int64 `[pairs]`.
    Terms are multiplied in float64, where products of float32 numbers are exact. Then the second half of the terms
    is added to the first (the middle one of an odd number waits) until one is left. Each step is an elementwise
    operation, rounded as IEEE 754 says, so no library's kernel, thread count or device decides about a bit. The error
    is at most (⌈log₂ inner⌉ + 1) 2⁻⁵³ Σ|terms| to first order. Never −0. Memory: thrice `chunk_bytes`, or one pair's.
    """
    result = torch.empty(len(i), dtype=torch.float64, device=left.device)
    chunk = max(1, chunk_bytes // (8 * left.shape[1]))
    for start in range(0, len(i), chunk):
        pairs = slice(start, start + chunk)
        terms = left.index_select(0, i[pairs]).double()
        result[pairs] = sum_of_terms(terms.mul_(right.index_select(0, j[pairs]).double()))
    return result


def sum_of_terms(terms: Tensor) -> Tensor:
    """Σ over the last dimension of float64 `[..., inner]`, in the order of `dot_products`; overwrites `terms`."""
    width = terms.shape[-1]
    while width > 1:
        half = (width + 1) // 2
        terms[..., : width - half].add_(terms[..., half:width])
        width = half
    return terms[..., 0] + 0.0  # −0 + 0 = 0
