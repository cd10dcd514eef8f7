"""Operators A ⊗ W on a residual stream: mix positions with A, transform features with W, form neither product.

With rows as positions, `Kronecker(A, W)(x) = A @ x @ W`. *structures* writes tokens as columns, X = xᵀ, and
(A ⊗ Q) X = Q X Aᵀ (Remark 14), so its A ⊗ W_O W_V (Claim 18) is `Kronecker(A, W_V @ W_O)` here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_shape, require_whole

_MAX_DENSE_BYTES = 256 * 10**6


@dataclass(frozen=True, eq=False)
class Kronecker:
    """The operator `x [n, p] ↦ pattern @ x @ weight [m, q]`, that is pattern ⊗ weightᵀ, kept as its two factors.

    `pattern [m, n]` moves between positions (a frozen norm's 1/scale multiplies it), `weight [p, q]` works within one.
    Applying it costs O(m·n·p + m·p·q); as a matrix it would be [m·q, n·p].
    """

    pattern: Float[Tensor, "m n"]
    weight: Float[Tensor, "p q"]

    def __post_init__(self) -> None:
        shapes = [list(self.pattern.shape), list(self.weight.shape)]
        _require([len(shape) for shape in shapes] == [2, 2], f"expected two matrices, got {shapes[0]} and {shapes[1]}.")

    def __call__(self, x: Float[Tensor, "n p"]) -> Float[Tensor, "m q"]:
        """pattern @ x @ weight. Raises `ValueError` where `x` is not `[n, p]`."""
        return self.pattern @ require_shape("Kronecker: x", x, self.in_shape) @ self.weight

    @property
    def in_shape(self) -> tuple[int, int]:
        """[positions, features] that it takes."""
        return self.pattern.shape[1], self.weight.shape[0]

    @property
    def out_shape(self) -> tuple[int, int]:
        """[positions, features] that it gives."""
        return self.pattern.shape[0], self.weight.shape[1]

    @property
    def terms(self) -> tuple[Kronecker, ...]:
        """Itself, so that sums and single operators read alike."""
        return (self,)

    def __matmul__(self, first: Kronecker | KroneckerSum) -> Kronecker | KroneckerSum:
        """`first`, then this: (A₂ ⊗ W₂)(A₁ ⊗ W₁) = A₂A₁ ⊗ W₁W₂, the mixed product (*structures*, Lemma 16, in rows).

        Raises `ValueError` where the shapes do not chain.
        """
        if isinstance(first, Tensor):
            raise TypeError("@ chains operators; apply one to x by calling it: operator(x).")
        if isinstance(first, KroneckerSum):
            return KroneckerSum((self,)) @ first
        _require(
            first.out_shape == self.in_shape,
            f"expected to follow an operator onto {list(self.in_shape)}, got one onto {list(first.out_shape)}.",
        )
        return Kronecker(self.pattern @ first.pattern, first.weight @ self.weight)

    def __add__(self, other: Kronecker | KroneckerSum) -> KroneckerSum:
        return KroneckerSum((self, *other.terms))

    def __radd__(self, other: int) -> Kronecker:
        """0 + K = K, for `sum`."""
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Kronecker | KroneckerSum) -> KroneckerSum:
        return self + other * -1

    def __mul__(self, factor: float | int) -> Kronecker:
        return Kronecker(self.pattern, self.weight * factor)

    __rmul__ = __mul__

    def adjoint(self) -> Kronecker:
        """Return the operator with ⟨K x, y⟩ = ⟨x, K* y⟩: both factors transposed."""
        return Kronecker(self.pattern.mT, self.weight.mT)

    def dense(self, max_bytes: int = _MAX_DENSE_BYTES) -> Float[Tensor, "out in"]:
        """Return pattern ⊗ weightᵀ, which acts on `x.reshape(-1)`.

        Memory: m·q·n·p numbers. Raises `ValueError` above `max_bytes`.
        """
        out, inside = (a * b for a, b in (self.out_shape, self.in_shape))
        n_bytes = out * inside * self.pattern.element_size()
        _require(
            n_bytes <= max_bytes,
            f"a dense [{out}, {inside}] matrix takes {n_bytes:,} bytes, above max_bytes={max_bytes:,}; apply the "
            "operator to x instead, or raise max_bytes.",
        )
        # torch.kron of 2.13 views its product and cannot where a dimension of 1 has another stride than it expects.
        return torch.einsum("mn,pq->mqnp", self.pattern, self.weight).reshape(out, inside)

    def norm(self) -> float:
        """Return the Frobenius norm of the dense matrix: ‖pattern‖·‖weight‖."""
        return float(self.pattern.norm() * self.weight.norm())

    def move(self) -> Kronecker:
        """Return pattern ⊗ I: what it moves between positions (*structures*, Remark 20)."""
        return Kronecker(self.pattern, _identity(self.weight.shape[1], self.weight))

    def process(self) -> Kronecker:
        """Return I ⊗ weight: what it does within each position (*structures*, Remark 20)."""
        return Kronecker(_identity(self.pattern.shape[1], self.pattern), self.weight)


@dataclass(frozen=True, eq=False)
class KroneckerSum:
    """Σᵢ Aᵢ ⊗ Wᵢ over operators of one shape. Raises `ValueError` for none, and for shapes that differ."""

    terms: tuple[Kronecker, ...]

    def __post_init__(self) -> None:
        _require(bool(self.terms), "expected at least one operator, got none.")
        shapes = {(term.in_shape, term.out_shape) for term in self.terms}
        _require(len(shapes) == 1, f"expected operators of one shape, got {sorted(shapes)}.")

    def __call__(self, x: Float[Tensor, "n p"]) -> Float[Tensor, "m q"]:
        return reduce(torch.add, (term(x) for term in self.terms))

    @property
    def in_shape(self) -> tuple[int, int]:
        return self.terms[0].in_shape

    @property
    def out_shape(self) -> tuple[int, int]:
        return self.terms[0].out_shape

    def __matmul__(self, first: Kronecker | KroneckerSum) -> KroneckerSum:
        """Every term after every term of `first`."""
        products: list[Kronecker] = []
        for later in self.terms:
            for earlier in first.terms:
                products.extend((later @ earlier).terms)
        return KroneckerSum(tuple(products))

    def __add__(self, other: Kronecker | KroneckerSum) -> KroneckerSum:
        return KroneckerSum((*self.terms, *other.terms))

    def __radd__(self, other: int) -> KroneckerSum:
        """0 + K = K, for `sum`."""
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Kronecker | KroneckerSum) -> KroneckerSum:
        return self + other * -1

    def __mul__(self, factor: float | int) -> KroneckerSum:
        return KroneckerSum(tuple(term * factor for term in self.terms))

    __rmul__ = __mul__

    def adjoint(self) -> KroneckerSum:
        return KroneckerSum(tuple(term.adjoint() for term in self.terms))

    def dense(self, max_bytes: int = _MAX_DENSE_BYTES) -> Float[Tensor, "out in"]:
        """Return the sum of the terms' dense matrices, with the same guard."""
        return reduce(torch.add, (term.dense(max_bytes) for term in self.terms))

    def norm(self) -> float:
        """Return √(Σᵢⱼ ⟨Aᵢ, Aⱼ⟩⟨Wᵢ, Wⱼ⟩), the Frobenius norm of the dense matrix, from the factors alone.

        Summed as it stands, terms that cancel would leave √ε of their size. With the patterns as columns,
        [vec A₁ …] = Q R, the same is ‖R [vec W₁ …]ᵀ‖, which leaves ε. O(terms²·(m·n + p·q)) time, and a copy of the
        factors.
        """
        patterns = torch.stack([term.pattern.reshape(-1) for term in self.terms], dim=1)
        weights = torch.stack([term.weight.reshape(-1) for term in self.terms])
        # On the CPU, since not every accelerator decomposes.
        factor = torch.linalg.qr(patterns.cpu(), mode="r").R.to(weights.device)
        return float((factor @ weights).norm())


def kronecker_sum(terms: Sequence[Kronecker]) -> Kronecker | KroneckerSum:
    """Return one operator as it is, several as their sum."""
    return terms[0] if len(terms) == 1 else KroneckerSum(tuple(terms))


def _identity(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(f"Kronecker: {message}")


def virtual_weight(W: Float[Tensor, "p q"], n: int) -> Kronecker:
    """Return W̃ = I_n ⊗ W: the same transformation at each of `n` positions (*structures*, Definition 19).

    Its column form I_n ⊗ Wᵀ is the block-diagonal matrix of the paper. Raises `ValueError` for n < 1.
    """
    require_whole("n", n, 1)
    return Kronecker(torch.eye(n, dtype=W.dtype, device=W.device), W)
