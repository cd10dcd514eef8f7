"""The SNR (*aot*, Eq. 6) of groups of tokens in the subspaces of heads, and in principal directions fitted elsewhere.

Streams are rows in a frame of `width` dimensions, `[moment, token, width]`; heads are orthonormal columns in it,
`[head, width, rank]`, zeros beyond a head's rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

#: The share of the largest eigenvalue below which a direction is rounding, of streams in float32 (squared).
_NEGLIGIBLE = 1e-12


def token_groups(
    stream: Float64[Tensor, "token width"],
    heads: Float64[Tensor, "head width rank"],
    by_pattern: Int64[Tensor, " token"],
) -> Float64[Tensor, "grouping token head"]:
    """Return each head's tokens that count, as 0 and 1: all; those that it holds most of; those of `by_pattern`."""
    held = _energies(stream[None], heads)[0]
    one_hot = [torch.nn.functional.one_hot(labels, len(heads)) for labels in (held.argmax(-1), by_pattern)]
    return torch.stack([torch.ones_like(held), *(rows.double() for rows in one_hot)])


def group_snr(
    moments: Float64[Tensor, "moment token width"],
    heads: Float64[Tensor, "head width rank"],
    groups: Float64[Tensor, "grouping token head"],
) -> Float64[Tensor, "moment grouping head"]:
    """Return the SNR of Eq. 6 over each head's tokens, ‖Z U Uᵀ‖ ÷ ‖Z (I − U Uᵀ)‖; NaN where it has none."""
    signal = torch.einsum("gth,mth->mgh", groups, _energies(moments, heads))
    total = torch.einsum("gth,mt->mgh", groups, moments.square().sum(-1))
    return (signal / (total - signal)).sqrt()


def mean_ratio(
    after: Float[Tensor, "... grouping layer head"], before: Float[Tensor, "... grouping layer head"]
) -> Float[Tensor, "... grouping layer"]:
    """Return after ÷ before, the geometric mean over heads; a head without tokens is left out."""
    return (after / before).log().nanmean(-1).exp()


@dataclass(frozen=True, eq=False)
class Principal:
    """The leading directions (uncentred) of each head's tokens in the first half, and its tokens in the second."""

    directions: list[Float64[Tensor, "width rank"] | None]
    """The leading directions, as columns; None for a head whose tokens in the first half span no more dimensions than
    these (a few different tokens again and again), so that none of them lead, or with no more tokens than these in the
    second."""
    measured: list[Bool[Tensor, " token"]]

    @classmethod
    def fit(
        cls,
        stream: Float64[Tensor, "token width"],
        members: Float64[Tensor, "token head"],
        half: Bool[Tensor, " token"],
        ranks: list[int],
    ) -> Principal:
        """Fit as many directions as each head has ranks on its tokens outside `half`, to be measured on those in it."""
        directions: list[Tensor | None] = []
        measured = []
        for head, rank in enumerate(ranks):
            fitted, others = (members[:, head].bool() & side for side in (~half, half))
            measured.append(others)
            values, vectors = torch.linalg.eigh(stream[fitted].mT @ stream[fitted])
            spanned = int((values > values[-1] * _NEGLIGIBLE).sum())
            determined = rank and spanned > rank and int(others.sum()) > rank
            directions.append(vectors[:, -rank:] if determined else None)
        return cls(directions, measured)

    def snr(self, moments: Float64[Tensor, "moment token width"]) -> Float64[Tensor, "moment head"]:
        """Return the SNR of each head's tokens in the second half; NaN for a head without directions."""
        result = torch.full((len(moments), len(self.directions)), math.nan, dtype=torch.float64)
        for head, (directions, measured) in enumerate(zip(self.directions, self.measured, strict=True)):
            if directions is not None:
                everything = torch.ones(1, int(measured.sum()), 1, dtype=torch.float64)
                result[:, head] = group_snr(moments[:, measured], directions[None], everything)[:, 0, 0]
        return result


def within_halves(half: Bool[Tensor, " token"], generator: torch.Generator) -> Int64[Tensor, " token"]:
    """Return a random order of the tokens that leaves each in its half, so that groups keep their sizes in both."""
    order = torch.arange(len(half))
    for side in (half, ~half):
        places = side.nonzero().flatten()
        order[places] = places[torch.randperm(len(places), generator=generator)]
    return order


def _energies(moments: Tensor, heads: Tensor) -> Float64[Tensor, "moment token head"]:
    """‖U_kᵀ z‖² of every token and head."""
    n_heads, width, rank = heads.shape
    columns = heads.transpose(0, 1).reshape(width, n_heads * rank)
    return (moments @ columns).square().unflatten(-1, (n_heads, rank)).sum(-1)
