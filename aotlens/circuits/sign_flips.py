"""Two matrices of one stream, whose directions know nothing of each other but what the stream has: mean and variance.

**Claim.** Let A `[m, D]` be what an earlier head writes with, B `[D, n]` what a later one reads with, and Σ the
covariance of the stream that the later one reads. In an orthonormal eigenbasis of Σ let G = AᵀA and H = BBᵀ. For
S = diag(s), the s_f = ±1 independent and fair, T = ‖A S B‖² = Σ_fg s_f s_g G_fg H_fg has

    E T   = Σ_f G_ff H_ff
    Var T = 2 Σ_{f ≠ g} (G_fg H_fg)²

since s_f² = 1, and of the products s_f s_g, f < g, which are uncorrelated and have variance 1, each stands twice.

**Why signs.** Heads of one model write into the stream's large directions and read from them, whatever each of them
does: turned freely (`random_rotation`), a trained pair is far from chance even if the two were drawn independently.
S commutes with Σ, so that A S writes with the same variance along every direction of the stream, and B reads with the
same: what changes is only which of the directions go together. Eigenvalues that are equal (a stream that fewer
directions than D fill has zeros) leave the basis open: then one is drawn, always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

#: Rows of G and H that are formed at once.
_ROWS = 64
#: A variance below this share of the mean's square is rounding.
_TIED = 1e-20


def eigenbasis(covariance: Float64[Tensor, "D D"]) -> Float64[Tensor, "D D"]:
    """Return orthonormal eigenvectors, as columns; those of equal eigenvalues are randomly rotated, from a
    fixed seed."""
    values, vectors = torch.linalg.eigh(covariance)
    new = torch.ones(len(values), dtype=torch.bool)
    new[1:] = values.diff() > 1e-10 * values.abs().max()
    generator = torch.Generator().manual_seed(0)
    parts = []
    for group in vectors.split(torch.diff(torch.cat([new.nonzero()[:, 0], torch.tensor([len(values)])])).tolist(), 1):
        size = group.shape[1]
        turn = torch.randn(size, size, generator=generator, dtype=torch.float64) if size > 1 else None
        parts.append(group if turn is None else group @ torch.linalg.qr(turn).Q)
    return torch.cat(parts, 1)


class Heads(NamedTuple):
    """Heads' Gram matrices Yᵀ K Y by their factors, in an eigenbasis of Σ."""

    Y: Float64[Tensor, "head k D"]
    KY: Float64[Tensor, "head k D"]

    @classmethod
    def of(cls, Y: Float64[Tensor, "*heads k D"], K: Float64[Tensor, "*heads k k"]) -> Heads:
        """Return the factors of every head, with the heads in one dimension."""
        return cls(Y.flatten(0, -3), (K @ Y).flatten(0, -3))

    def rows(self, start: int) -> Float64[Tensor, "head rows D"]:
        """Return `_ROWS` rows of every Gram matrix."""
        return self.Y[..., start : start + _ROWS].mT @ self.KY


def sign_moments(
    earlier: Heads, later: Sequence[tuple[int, Heads]]
) -> list[tuple[Float64[Tensor, "earlier later"], Float64[Tensor, "earlier later"]]]:
    """Return E T and the standard deviation of T of each pair, for every set of later heads with the first so many of
    the earlier ones; the deviation is NaN where T is constant.

    Time: O(heads · k D²) to form the Gram matrices of either side once, and O(pairs · D²). Memory: 64 of their rows.
    """
    sums = [torch.zeros(3, n, len(heads.Y), dtype=torch.float64) for n, heads in later]
    for start in range(0, earlier.Y.shape[-1], _ROWS):
        G = earlier.rows(start)
        diagonal = torch.arange(G.shape[1])
        g, G2 = G[:, diagonal, start + diagonal], G.square().flatten(1)
        for (n, heads), (mean, squares, of_diagonals) in zip(later, sums, strict=True):
            H = heads.rows(start)
            h = H[:, diagonal, start + diagonal]
            mean += g[:n] @ h.T
            squares += G2[:n] @ H.square().flatten(1).T
            of_diagonals += g[:n].square() @ h.square().T
    results = []
    for mean, squares, of_diagonals in sums:
        variance = 2 * (squares - of_diagonals)
        std = variance.clamp(min=0).sqrt()
        results.append((mean, torch.where(variance > _TIED * mean.square(), std, torch.nan)))
    return results
