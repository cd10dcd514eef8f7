"""Rows, columns and parts of a circuit keep their names, unit and exactness; oracles are the dense product.

`FactoredMatrix` against TransformerLens's, on matrices of every shape: wide, tall, of low rank, in half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformer_lens

from aotlens.circuits import Circuit, FactoredMatrix, ov_circuit, qk_circuit, spectrum, sum_of_circuits
from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

TEXT = "the cat sat on the mat and the dog sat on the cat " * 4


@pytest.fixture(scope="module")
def model() -> AttentionOnlyTransformer:
    cfg = ModelConfig(n_layers=1, d_model=12, n_heads=2, d_head=4, n_ctx=8, d_vocab=262, norm=None)
    return AttentionOnlyTransformer(cfg, Tokenizer.train([TEXT], 262)).double().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def circuit(model: AttentionOnlyTransformer) -> Circuit:
    return ov_circuit(model, "0.1")


def test_a_row_and_a_column_are_those_of_the_product(model: AttentionOnlyTransformer, circuit: Circuit) -> None:
    token = model.to_single_token(" the")
    for table, dense, labels, same in (
        (circuit.row(" the", None), circuit.AB[token], "column_labels", "row_labels"),
        (circuit.column(token, None), circuit.AB[:, token], "row_labels", "column_labels"),
    ):
        order = np.argsort(-dense.numpy(), kind="stable")
        np.testing.assert_allclose(table.values, dense.numpy()[order], rtol=1e-12)
        assert getattr(table, labels) == tuple(model.tokenizer.str_tokens(order.tolist()))  # type: ignore[union-attr]
        assert set(getattr(table, same)) == {" the"} and (table.unit, table.exact) == ("logits", circuit.exact)
    least = circuit.row(" the", 3, largest=False)
    np.testing.assert_allclose(least.values, circuit.AB[token].sort().values[:3].numpy(), rtol=1e-12)
    assert list(least.to_frame().columns) == ["row", "column", "row_id", "column_id", "logits"]


def test_the_top_entries_are_named(model: AttentionOnlyTransformer, circuit: Circuit) -> None:
    table = circuit.top(5)
    dense = circuit.AB
    np.testing.assert_allclose(table.values, dense.flatten().sort(descending=True).values[:5].numpy(), rtol=1e-12)
    for row, column, value in zip(table.rows, table.columns, table.values, strict=True):
        assert float(dense[row, column]) == pytest.approx(value, rel=1e-12)
    names = model.tokenizer.str_tokens(table.rows.tolist())  # type: ignore[union-attr]
    assert table.row_labels == tuple(names) and "first" in repr(table)


@pytest.mark.parametrize(
    "index", [slice(5, 9), (slice(2, 40, 3), slice(None, None, 2)), ([4, 9, 2], slice(7, 9)), (3, -1), 261, -1]
)
def test_a_part_knows_what_its_rows_are(circuit: Circuit, index: object) -> None:
    part = circuit[index]
    rows, columns = index if isinstance(index, tuple) else (index, slice(None))
    expected = np.ix_(np.atleast_1d(np.arange(262)[rows]), np.atleast_1d(np.arange(262)[columns]))
    np.testing.assert_allclose(part.AB.numpy(), circuit.AB.numpy()[expected], rtol=1e-12)
    assert (part.unit, part.exact, part.kind, part.heads) == (circuit.unit, circuit.exact, "ov", ((0, 1),))
    table = part.top(1)
    assert float(circuit.AB[table.rows[0], table.columns[0]]) == pytest.approx(table.values[0], rel=1e-12)
    assert table.rows[0] in expected[0] and table.columns[0] in expected[1]
    again = part.T[:, 0] if part.shape[0] > 1 else part.T
    assert again.top(1).columns[0] == expected[0].flat[0]


def test_a_mask_of_a_part_of_a_part(circuit: Circuit) -> None:
    part = circuit[10:20][torch.arange(10) % 2 == 1]
    assert part.left.ids == (11, 13, 15, 17, 19) and part.right.ids is None
    np.testing.assert_allclose(part.row(13, None).values.max(), circuit.AB[13].max().item(), rtol=1e-12)
    with refused(12, "token", "(5 of them)"):
        part.row(12)


def test_what_is_no_row_is_refused(model: AttentionOnlyTransformer, circuit: Circuit) -> None:
    with pytest.raises(ValueError, match="expected one token, got 2"):
        circuit.row(" thecat")
    with refused("k=0", "at least one"):
        circuit.row(" the", 0)
    positions = qk_circuit(model, "0.0", "positions", "positions")
    with refused("position", "number"):
        positions.row(" the")
    assert positions.row(2, 1).row_labels == ("position 2",) and positions.row(2).unit == "nats"
    assert len(positions.row(2)) == 8 and len(positions.top(100)) == 64


def test_parts_of_other_rows_and_columns_have_no_eigenvalues_and_no_sum(circuit: Circuit) -> None:
    assert spectrum(circuit[:10, :10]).eigenvalues is not None
    assert spectrum(circuit[:10, 10:20]).eigenvalues is None
    with pytest.raises(ValueError, match="same kind and sides"):
        sum_of_circuits([circuit[:10], circuit[10:20]])
    assert sum_of_circuits([circuit, circuit]).top(1).row_labels == circuit.top(1).row_labels


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
