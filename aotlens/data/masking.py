"""Rows for masked language modelling: some tokens hidden, to be recovered from the rest (Devlin et al. 2019).

Of the chosen positions, 80% show the mask token, 10% a random token and 10% what they were, so that a model cannot
tell from the input alone which tokens it may trust. Masks are a pure function of (seed, step), as batches are.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.conventions import IGNORED
from aotlens.data.sampler import uniform_words

MASK_FRACTION = 0.15
_CHOICE_STREAM, _KIND_STREAM, _TOKEN_STREAM = 3, 4, 5


def mask_tokens(
    tokens: Int64[Tensor, "batch pos"],
    mask_id: int,
    seed: int,
    step: int,
    *,
    fraction: float = MASK_FRACTION,
    shown: float = 0.8,
    random: float = 0.1,
) -> tuple[Int64[Tensor, "batch pos"], Int64[Tensor, "batch pos"]]:
    """Return `tokens` with some hidden, and the hidden tokens as targets (`IGNORED` elsewhere).

    In each row round(`fraction` · (pos − 1)) positions are chosen, at least one, never the first (the start token). Of
    those each shows the mask with probability `shown`, a uniformly random id below `mask_id` with probability
    `random`, and its own token otherwise. Raises `ValueError` for shares outside 0 to 1, rows of fewer than 2 tokens,
    and rows that hold the mask already.
    """
    if not 0 < fraction <= 1 or min(shown, random) < 0 or shown + random > 1 + 1e-12:
        raise ValueError(
            "expected 0 < fraction ≤ 1 and shares of shown and random masks from 0 to 1 together, got "
            f"fraction={fraction}, shown={shown}, random={random}."
        )
    n_rows, n_pos = tokens.shape
    if n_pos < 2:
        raise ValueError(f"expected rows of at least 2 tokens, the first of which is never masked, got {n_pos}.")
    ids = tokens.cpu().numpy()
    if ids.size and ids.max() >= mask_id:
        raise ValueError(f"expected token ids below the mask's, {mask_id}, got {int(ids.max())}; mask plain rows once.")
    shape = (n_rows, n_pos - 1)
    n_chosen = max(1, round(fraction * (n_pos - 1)))
    ranks = uniform_words(seed, _CHOICE_STREAM, step, shape).argsort(axis=1, kind="stable").argsort(axis=1)
    chosen = np.zeros((n_rows, n_pos), dtype=bool)
    chosen[:, 1:] = ranks < n_chosen
    kind = np.ones((n_rows, n_pos))
    kind[:, 1:] = (uniform_words(seed, _KIND_STREAM, step, shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    replaced = np.zeros((n_rows, n_pos), dtype=np.int64)
    replaced[:, 1:] = (uniform_words(seed, _TOKEN_STREAM, step, shape) % np.uint64(mask_id)).astype(np.int64)
    inputs = np.where(chosen & (kind < shown), mask_id, ids)
    inputs = np.where(chosen & (kind >= shown) & (kind < shown + random), replaced, inputs)
    targets = np.where(chosen, ids, IGNORED)
    return torch.from_numpy(inputs).to(tokens.device), torch.from_numpy(targets).to(tokens.device)
