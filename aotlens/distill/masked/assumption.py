"""Assumption 3.1 of *nonlinearity*: the conditions under which the masks of sequences can be distinguished."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.distill.compile.ffn import require_tensors
from aotlens.results import Result

_SHORTEST, _LONGEST = 1e-100, 1e100


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedSequences(Result):
    """n sequences of N token vectors, one of them [MASK], for which Assumption 3.1 holds."""

    X: Float[Tensor, "n pos d_model"]
    """Rows are tokens (the paper's X^(i) transposed), float64."""
    mask: Float[Tensor, " d_model"]
    """The vector of the token [MASK]."""
    positions: Int[Tensor, " n"]
    """m_i: where [MASK] stands in each sequence."""
    tokens: Float[Tensor, "token d_model"]
    """S: the distinct token vectors, [MASK] among them."""
    ids: Int[Tensor, "n pos"]
    """The index of each one among `tokens`."""
    shortest: float
    """r_1, the least length of a token."""
    longest: float
    """r_2, the greatest length of a token."""
    separation: float
    """δ: the least distance of two distinct tokens."""

    @property
    def headline(self) -> str:
        return f"tokens are at least {self.separation:.3g} apart"


def check_assumption(
    X: Float[Tensor, "n pos d_model"], mask: Float[Tensor, " d_mask"] | None = None
) -> MaskedSequences:
    """Return the sequences with what Assumption 3.1 says of them.

    1. Token lengths lie in [r_1, r_2], r_1 > 0.   2. Distinct tokens are at least δ > 0 apart (so it is for any finite
    set: reported).   3. No two sequences are equal up to the order of their tokens.   4. No sequence has a token twice.
    `mask` is [MASK]; without it, the one token that is in every sequence.

    Raises `ValueError` naming the condition and the sequences (from 0) that violate it, and for tokens so short or so
    long (largest coordinate outside 1e-100 … 1e100) that float64 loses their products. Cost: O(nND log nN).
    """
    require_tensors(X=X)
    if X.ndim != 3 or not X.is_floating_point() or 0 in X.shape:
        raise ValueError(f"expected vectors [sequence, position, d_model] of floats, got {list(X.shape)} {X.dtype}.")
    n, length, _ = X.shape
    X = X.detach().to("cpu", torch.float64)
    if not X.isfinite().all():
        raise ValueError(f"sequences {_some(~X.isfinite().flatten(1).all(1))}: expected finite numbers.")
    sizes = X.abs().amax(-1)
    if (sizes == 0).any():
        zero = (sizes == 0).any(1)
        raise ValueError(f"Assumption 3.1, condition 1 (no token has length 0) is violated by sequences {_some(zero)}.")
    beyond = ((sizes < _SHORTEST) | (sizes > _LONGEST)).any(1)
    if beyond.any():
        raise ValueError(
            f"sequences {_some(beyond)}: expected tokens whose largest coordinate is {_SHORTEST:g} … {_LONGEST:g} in "
            "size, or their products are lost in float64. Multiply X by a number."
        )
    lengths = X.norm(dim=-1)
    tokens, ids = torch.unique(X.flatten(0, 1) + 0.0, dim=0, return_inverse=True)  # + 0.0: no −0, which sorts apart
    ids = ids.view(n, length)
    in_order = ids.sort(1).values
    twice = (in_order[:, 1:] == in_order[:, :-1]).any(1)
    if twice.any():
        raise ValueError(
            "Assumption 3.1, condition 4 (no sequence has a token twice) is violated by sequences "
            f"{_some(twice)}. Attention without positions cannot tell equal tokens apart."
        )
    _, group, sizes = torch.unique(in_order, dim=0, return_inverse=True, return_counts=True)
    if (sizes > 1).any():
        same = (group == group[(sizes[group] > 1).nonzero()[0, 0]]).nonzero()[:, 0].tolist()
        raise ValueError(
            "Assumption 3.1, condition 3 (no two sequences are equal up to the order of their tokens) is violated by "
            f"sequences {_list(same)} ({int((sizes > 1).sum())} such groups). Attention without positions cannot tell "
            "them apart."
        )
    mask_id = _mask_id(tokens, ids, mask)
    positions = (ids == mask_id).int().argmax(1)
    return MaskedSequences(
        X=X,
        mask=tokens[mask_id],
        positions=positions,
        tokens=tokens,
        ids=ids,
        shortest=float(lengths.min()),
        longest=float(lengths.max()),
        separation=_least_distance(tokens),
    )


def _mask_id(tokens: Tensor, ids: Tensor, mask: Tensor | None) -> int:
    counts = ids.flatten().bincount()  # of sequences, since no sequence has a token twice
    if mask is None:
        everywhere = (counts == len(ids)).nonzero()[:, 0].tolist()
        if len(everywhere) != 1:
            raise ValueError(
                f"{len(everywhere)} tokens are in every sequence, so it is not clear which is [MASK]; give mask=."
                if everywhere
                else "no token is in every sequence; each must have one [MASK]."
            )
        return int(everywhere[0])
    if mask.shape != tokens.shape[1:]:
        raise ValueError(f"mask: expected [{tokens.shape[1]}], got {list(mask.shape)}.")
    rows = (tokens == mask.to(tokens)).all(1).nonzero()[:, 0].tolist()
    if not rows or counts[rows[0]] < len(ids):
        lacking = (ids != (rows[0] if rows else -1)).all(1)
        raise ValueError(f"sequences {_some(lacking)} do not have [MASK]; each must have it once.")
    return int(rows[0])


def _least_distance(tokens: Tensor) -> float:
    """Return the least distance, found in blocks of rows: never all pairs in memory."""
    if len(tokens) < 2:
        return float("inf")
    least = float("inf")
    for start in range(0, len(tokens), 1024):
        rows = tokens[start : start + 1024]
        distances = torch.cdist(rows, tokens, compute_mode="donot_use_mm_for_euclid_dist")
        distances[torch.arange(len(rows)), start + torch.arange(len(rows))] = float("inf")
        least = min(least, float(distances.min()))
    return least


def _some(rows: Tensor) -> str:
    return _list(rows.nonzero()[:, 0].tolist())


def _list(indices: list[int], most: int = 8) -> str:
    listed = ", ".join(map(str, indices[:most]))
    return listed if len(indices) <= most else f"{listed}, … ({len(indices)} in all)"
