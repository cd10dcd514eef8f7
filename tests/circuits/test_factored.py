"""`FactoredMatrix` against TransformerLens's, on matrices of every shape: wide, tall, of low rank, in half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformer_lens

from aotlens.circuits import FactoredMatrix
from tests.messages import refused

#: rows, inner, columns: thin as circuits are, wide inside, a vocabulary on one side only, square.
SHAPES = [(9, 2, 7), (4, 6, 5), (3, 2, 11), (6, 6, 6), (5, 1, 1)]


def pair(
    rows: int, inner: int, columns: int, *leading: int, dtype: torch.dtype = torch.float64
) -> tuple[FactoredMatrix, Any]:
    """The same random factors as ours and as TransformerLens's."""
    A, B = torch.randn(*leading, rows, inner, dtype=dtype), torch.randn(*leading, inner, columns, dtype=dtype)
    return FactoredMatrix(A, B), transformer_lens.FactoredMatrix(A, B)


def dense(value: Any) -> torch.Tensor:
    return value.AB if hasattr(value, "AB") else value


@pytest.mark.parametrize("leading", [(), (2, 3)])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_both_have_is_the_same(shape: tuple[int, int, int], leading: tuple[int, ...]) -> None:
    ours, theirs = pair(*shape, *leading)
    rows, _, columns = shape
    left, right = torch.randn(4, rows).double(), torch.randn(columns, 3).double()
    other, their_other = pair(columns, 2, 4)
    operations: list[Callable[[Any, Any], Any]] = [
        lambda m, _: m.T,
        lambda m, _: m @ right,
        lambda m, _: left @ m,
        lambda m, _: m @ right[:, 0],
        lambda m, _: left[0] @ m,
        lambda m, o: m @ o,
        lambda m, _: m * 2.5,
        lambda m, _: torch.tensor(0.5) * m,
        lambda m, _: m[..., 1:, :1],
        lambda m, _: m[..., 0, :],
        lambda m, _: m[..., -1],
        lambda m, _: m.norm(),
        lambda m, _: m.S[..., : min(shape)],
    ]
    if leading:
        operations += [lambda m, _: m[1], lambda m, _: m[0, 2], lambda m, _: m[1, :, 1:], lambda m, _: m[0, 1, -1, 0]]
    else:
        operations += [lambda m, _: m[1], lambda m, _: m[[2, 0]], lambda m, _: m[torch.arange(rows) > 1]]
    for operation in operations:
        mine, expected = dense(operation(ours, other)), dense(operation(theirs, their_other))
        assert mine.shape == expected.shape
        torch.testing.assert_close(mine, expected)
    assert (ours.shape, ours.ndim) == (theirs.shape, theirs.ndim)
    torch.testing.assert_close(ours.to_transformer_lens().AB, theirs.AB)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_vectors_give_the_matrix_and_are_orthonormal(shape: tuple[int, int, int]) -> None:
    ours, _ = pair(*shape, 2)
    U, S, V = ours.svd()
    torch.testing.assert_close(U * S[:, None] @ V.mT, ours.AB)
    for vectors in (U, V):
        torch.testing.assert_close(vectors.mT @ vectors, torch.eye(S.shape[-1]).double().expand(2, -1, -1))
    assert (S.diff() <= 0).all()
    assert all(torch.equal(mine, ours.svd()[i]) for i, mine in enumerate((ours.U, ours.S, ours.V)))


@pytest.mark.parametrize("inner", [2, 9])
def test_eigenvalues_are_those_of_the_product(inner: int) -> None:
    ours, _ = pair(6, inner, 6)
    expected = torch.linalg.eigvals(ours.AB)
    expected = expected[expected.abs() > 1e-9]
    mine = ours.eigenvalues
    assert len(mine) == len(expected)
    torch.testing.assert_close(*(values[values.real.sort().indices] for values in (mine, expected)))
    torch.testing.assert_close(ours.BA, ours.B @ ours.A)


def test_factors_broadcast_and_half_precision_is_decomposed_in_single() -> None:
    A, B = torch.randn(3, 1, 4, 2), torch.randn(5, 2, 6)
    ours = FactoredMatrix(A, B)
    assert ours.shape == (3, 5, 4, 6) and ours.A.shape == (3, 5, 4, 2)
    torch.testing.assert_close(ours.AB, A @ B)
    half = FactoredMatrix(A.bfloat16(), B.bfloat16())
    assert half.S.dtype == half.norm().dtype == torch.float32
    torch.testing.assert_close(half.norm(), torch.linalg.matrix_norm(half.A.float() @ half.B.float()))


def test_what_does_not_fit_is_refused_with_both_shapes() -> None:
    ours, _ = pair(4, 2, 5)
    with refused("[4, 2]", "[3, 5]"):
        FactoredMatrix(torch.zeros(4, 2), torch.zeros(3, 5))
    with refused("[2, 4, 2]", "[3, 2, 5]"):
        FactoredMatrix(torch.zeros(2, 4, 2), torch.zeros(3, 2, 5))
    with refused("[4, 5]", "[4, 3]"):
        ours @ torch.zeros(4, 3, dtype=torch.float64)
    with refused("[3, 5]", "[4, 5]"):
        torch.zeros(3, 5, dtype=torch.float64) @ ours
    with refused("[4, 5]", "[]"):
        ours @ torch.tensor(2.0)
    with pytest.raises(TypeError):
        ours @ 3
    with refused("new axes", "True", error=IndexError):
        ours[True]
    with refused("number", "[2]"):
        ours * torch.ones(2)
    with refused("as many rows as columns", "[4, 5]"):
        ours.eigenvalues  # noqa: B018
    with refused("-4 to 3", "4", error=IndexError):
        ours[4]
    with refused("at most 2", error=IndexError):
        ours[0, 0, 0]
