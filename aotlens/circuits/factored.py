"""A matrix kept as a product of two thin ones, A B, so that a vocabulary × vocabulary circuit is never formed.

TransformerLens's `FactoredMatrix` in names and semantics, with what reading circuits needs of it. Leading dimensions
`...` (layers, heads) broadcast as in `torch.matmul`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor


class FactoredMatrix:
    """A B with A `[..., rows, inner]` and B `[..., inner, columns]`, never multiplied unless `AB` asks for it.

    `@` with a matrix, a vector or another factored matrix, on either side, goes through the thinner side; `*` takes a
    number. `matrix[layer, head]` indexes leading dimensions, `matrix[..., rows, columns]` the matrix itself,
    where one row or column stays a matrix of one.

    Raises `ValueError` for factors that do not fit together and for operands that do not fit.
    """

    def __init__(self, A: Tensor, B: Tensor) -> None:
        if A.ndim < 2 or B.ndim < 2 or A.shape[-1] != B.shape[-2]:
            raise ValueError(_mismatch("factors", A.shape, B.shape))
        try:
            leading = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        except RuntimeError as error:
            raise ValueError(_mismatch("factors", A.shape, B.shape)) from error
        self.A, self.B = A.expand(*leading, *A.shape[-2:]), B.expand(*leading, *B.shape[-2:])
        self.ldim, self.mdim, self.rdim = A.shape[-2], A.shape[-1], B.shape[-1]
        self.shape = torch.Size((*leading, self.ldim, self.rdim))

    @property
    def ndim(self) -> int:
        """The number of dimensions, leading ones included."""
        return len(self.shape)

    @property
    def AB(self) -> Float[Tensor, "... rows columns"]:
        """The whole matrix: rows × columns numbers, which for two vocabularies are gigabytes."""
        return self.A @ self.B

    @property
    def BA(self) -> Float[Tensor, "... inner inner"]:
        """The product the other way round, which has the eigenvalues of A B that are not 0. Raises `ValueError` for a
        matrix that is not square."""
        if self.ldim != self.rdim:
            raise ValueError(f"B A: expected as many rows as columns, got {list(self.shape)}.")
        return self.B @ self.A

    @property
    def T(self) -> FactoredMatrix:
        """The transpose."""
        return FactoredMatrix(self.B.mT, self.A.mT)

    def __matmul__(self, other: Tensor | FactoredMatrix) -> Any:
        if isinstance(other, FactoredMatrix):
            return (self @ other.A) @ other.B
        if not isinstance(other, Tensor):
            return NotImplemented
        if other.ndim == 0 or other.shape[-2 if other.ndim > 1 else 0] != self.rdim:
            raise ValueError(_mismatch("@", self.shape, other.shape))
        if other.ndim == 1:
            return (self.A @ (self.B @ other[:, None]))[..., 0]
        return FactoredMatrix(self.A, self.B @ other) if self.rdim > self.mdim else FactoredMatrix(self.AB, other)

    def __rmatmul__(self, other: Tensor) -> Any:
        if other.ndim == 0 or other.shape[-1] != self.ldim:
            raise ValueError(_mismatch("@", other.shape, self.shape))
        if other.ndim == 1:
            return ((other[None] @ self.A) @ self.B)[..., 0, :]
        return FactoredMatrix(other @ self.A, self.B) if self.ldim > self.mdim else FactoredMatrix(other, self.AB)

    def __mul__(self, number: float | Tensor) -> FactoredMatrix:
        if isinstance(number, Tensor) and number.numel() != 1:
            raise ValueError(f"*: expected a number, got {list(number.shape)}; @ multiplies matrices.")
        return FactoredMatrix(self.A * number, self.B)

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> Any:
        items = list(index) if isinstance(index, tuple) else [index]
        if any(each is Ellipsis for each in items):
            ellipsis = next(i for i, each in enumerate(items) if each is Ellipsis)
            items[ellipsis : ellipsis + 1] = [slice(None)] * (self.ndim - len(items) + 1)
        n_leading = self.ndim - 2
        if len(items) > self.ndim or any(each is None or isinstance(each, bool) for each in items):
            raise IndexError(f"expected at most {self.ndim} indices and no new axes, got {index!r}.")
        leading, (rows, columns) = tuple(items[:n_leading]), (*items[n_leading:], slice(None), slice(None))[:2]
        A, B = self.A[leading], self.B[leading]
        return FactoredMatrix(A[..., _kept(rows, self.ldim), :], B[..., _kept(columns, self.rdim)])

    def svd(self) -> tuple[Float[Tensor, "... rows k"], Float[Tensor, "... k"], Float[Tensor, "... columns k"]]:
        """Return U, S and V with A B = U diag(S) Vᵀ, k the smallest of the three sizes, from the triangles of both
        factors.

        Half precision is computed in float32. Time: O((rows + columns) · inner²).
        """
        (Q, R), (P, T) = (torch.linalg.qr(_single(factor)) for factor in (self.A, self.B.mT))
        U, S, Vh = torch.linalg.svd(R @ T.mT, full_matrices=False)
        return Q @ U, S, P @ Vh.mT

    U = property(lambda self: self.svd()[0], doc="Left singular vectors, as columns `[..., rows, k]`.")
    S = property(lambda self: self.svd()[1], doc="Singular values, falling `[..., k]`.")
    V = property(lambda self: self.svd()[2], doc="Right singular vectors, as columns `[..., columns, k]`.")

    @property
    def eigenvalues(self) -> Complex[Tensor, "... k"]:
        """The eigenvalues of a square matrix, k = min(inner, rows) of them: the others are 0. Raises `ValueError` for
        a matrix that is not square."""
        small = self.BA if self.mdim <= self.ldim else self.AB
        return torch.linalg.eigvals(_single(small))

    def norm(self) -> Float[Tensor, ...]:
        """Return the Frobenius norm, from the triangles of both factors."""
        left, right = (torch.linalg.qr(_single(factor), mode="r").R for factor in (self.A, self.B.mT))
        return torch.linalg.matrix_norm(left @ right.mT)

    def to_transformer_lens(self) -> Any:
        """Return the same factors as TransformerLens's class."""
        from transformer_lens import FactoredMatrix as Theirs

        return Theirs(self.A, self.B)


def _kept(item: Any, size: int) -> Any:
    """An index of rows or columns that leaves a matrix: the place of one becomes a slice of length 1."""
    if not hasattr(item, "__index__") or getattr(item, "ndim", None):
        return item
    place = item.__index__()
    if not -size <= place < size:
        raise IndexError(f"expected a place from {-size} to {size - 1}, got {place}.")
    return slice(place % size, place % size + 1)


def _single(matrix: Tensor) -> Tensor:
    """Return the matrix in float32 at least, which linear algebra needs."""
    return matrix.float() if matrix.dtype in (torch.bfloat16, torch.float16) else matrix


def _mismatch(what: str, left: torch.Size, right: torch.Size) -> str:
    return f"{what}: expected [..., n, m] and [..., m, k], alike before that, got {list(left)} and {list(right)}."
