"""Two nulls of composition: ‖A B‖² where the directions of two matrices know nothing of each other.

**Flipped signs.** Claim: Let A `[m, D]` be what an earlier head writes with, B `[D, n]` what a later one reads with,
and Σ the covariance of the stream that the later one reads. In an orthonormal eigenbasis of Σ let G = AᵀA and H = BBᵀ.
For S = diag(s), the s_f = ±1 independent and fair, T = ‖A S B‖² = Σ_fg s_f s_g G_fg H_fg has

    E T   = Σ_f G_ff H_ff
    Var T = 2 Σ_{f ≠ g} (G_fg H_fg)²

since s_f² = 1, and of the products s_f s_g, f < g, which are uncorrelated and have variance 1, each stands twice.

Why signs: Heads of one model write into the stream's large directions and read from them, whatever each of them
does: turned freely (below), a trained pair is far from chance even if the two were drawn independently.
S commutes with Σ, so that A S writes with the same variance along every direction of the stream, and B reads with the
same: what changes is only which of the directions go together. Eigenvalues that are equal (a stream that fewer
directions than D fill has zeros) leave the basis open: then one is drawn, always the same.

**Random rotations.** Claim: Let A `[m, D]` and B `[D, n]` be fixed, R a random rotation (uniform, that is Haar, on the
orthogonal group O(D)), M = AᵀA, N = BBᵀ, and T = ‖A R B‖² (Frobenius). Then

    E T   = tr M · tr N / D
    Var T = 2 ‖M − (tr M / D) I‖² · ‖N − (tr N / D) I‖² ÷ ((D − 1)(D + 2))

With the singular values s of A and t of B, tr M = Σ s², ‖M − (tr M / D) I‖² = ‖M‖² − (tr M)² / D, ‖M‖² = Σ s⁴.

Derivation: T = tr(BᵀRᵀAᵀA R B) = tr(M R N Rᵀ). Write M = (tr M / D) I + M₀ with traceless M₀, and N likewise with
N₀. Products of a trace with a traceless part vanish, so T = tr M · tr N / D + ⟨M₀, X⟩ with X = R N₀ Rᵀ. X is a random
symmetric traceless matrix whose distribution no rotation changes. Rotations act irreducibly on the symmetric traceless
matrices, a space of (D − 1)(D + 2) / 2 dimensions, so by Schur's lemma E X = 0 and the covariance of X is a multiple of
the identity there, its trace being E ‖X‖² = ‖N₀‖². Hence Var T = ‖M₀‖² ‖N₀‖² ÷ ((D − 1)(D + 2) / 2). In one dimension
there is nothing to turn: R = ±1 and T is constant.

Tails: T is skewed, so its tails are counted, not read off the standard deviation. With A = U diag(s) Vᵀ and
B = Y diag(t) Zᵀ, VᵀR Y has the distribution of R, hence T = Σ_ij s_i² C_ij² t_j², where C is the upper-left k × k block
of a random rotation, k ≥ rank of either. C is drawn as the first k rows of a Gaussian D × k matrix made orthonormal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import require_seed

#: Rows of G and H that are formed at once.
_ROWS = 64
#: A variance below this share of the mean's square is rounding.
_TIED = 1e-20


def eigenbasis(covariance: Float64[Tensor, "D D"]) -> Float64[Tensor, "D D"]:
    """Return orthonormal eigenvectors, as columns; those of equal eigenvalues are rotated at random, from a fixed
    seed."""
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


#: Bytes of one batch of corners and of what is made of them.
BATCH_BYTES = 64 * 10**6
#: T within this share of its mean counts as equal: corners are float32 numbers.
TIED = 1e-5


def rotation_mean(s: Float[Tensor, "*left k"], t: Float[Tensor, "*right k"], width: int) -> Float[Tensor, ...]:
    """Return E T for every A (singular values `s`) and every B (`t`) in `width` dimensions: `[*left, *right]`."""
    return torch.tensordot(s.square().sum(-1), t.square().sum(-1), dims=0) / width


def rotation_std(s: Float[Tensor, "*left k"], t: Float[Tensor, "*right k"], width: int) -> Float[Tensor, ...]:
    """Return the standard deviation of T, `[*left, *right]`; NaN if T is constant: in one dimension, or if A or B is 0
    or a multiple of a rotation."""
    if width == 1:
        return torch.full_like(rotation_mean(s, t, width), torch.nan)
    std = torch.tensordot(_traceless(s, width), _traceless(t, width), dims=0)
    std *= (2 / ((width - 1) * (width + 2))) ** 0.5
    return torch.where(std > 1e-12 * rotation_mean(s, t, width), std, torch.nan)


def corners(width: int, size: int, n: int, seed: int) -> Iterator[Float[Tensor, "batch size size"]]:
    """Yield the upper-left `size` × `size` blocks of `n` random rotations, up to the signs of columns, float32, in
    batches.

    The singular values of such a block, or of its first p rows and q columns, are the cosines between two random
    subspaces of p and q dimensions in `width` dimensions.

    With a Gaussian `[width, size]` matrix G = [G₁; G₂], the first rows of its orthonormal factor are G₁ L⁻ᵀ,
    L Lᵀ = G₁ᵀG₁ + G₂ᵀG₂. G₂ enters through a triangular factor of the second term alone, whose distribution is known
    (Bartlett 1933: Gaussian above the diagonal, χ with width − size − i degrees of freedom on it), so that time and
    memory do not depend on `width`: O(size³) a rotation.
    """
    require_seed(seed)
    generator, chi_squares = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    batch = max(1, BATCH_BYTES // (16 * size * max(size, min(width, 2 * size))))
    for start in range(0, n, batch):
        count = min(batch, n - start)
        if width < 2 * size:  # few rows beyond the corner: ill-conditioned, and cheap as it is
            G = torch.randn(count, width, size, generator=generator, dtype=torch.float64)
            yield torch.linalg.qr(G).Q[:, :size].float()
            continue
        G = torch.randn(count, size, size, generator=generator)
        triangle = torch.randn(count, size, size, generator=generator).triu_(1)
        squared_chi = chi_squares.chisquare(width - size - np.arange(size), (count, size))
        triangle.diagonal(dim1=-2, dim2=-1).copy_(torch.from_numpy(squared_chi).sqrt())
        L = torch.linalg.cholesky(G.mT @ G + triangle.mT @ triangle)
        yield torch.linalg.solve_triangular(L.mT, G, upper=True, left=False)


def squared_corners(width: int, size: int, n: int, seed: int) -> Iterator[Float[Tensor, "batch size size"]]:
    """Yield the squared entries of `corners`."""
    for batch in corners(width, size, n, seed):
        yield batch.square()


def _traceless(s: Tensor, width: int) -> Tensor:
    """‖M − (tr M / D) I‖ from the singular values of A, without the cancellation of ‖M‖² − (tr M)² / D."""
    squares = s.square()
    level = squares.sum(-1, keepdim=True) / width
    missing = (width - s.shape[-1]) * level.squeeze(-1).square()
    return ((squares - level).square().sum(-1) + missing).sqrt()
