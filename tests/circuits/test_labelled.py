"""Rows, columns and parts of a circuit keep their names, unit and exactness; oracles are the dense product."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.circuits import Circuit, ov_circuit, qk_circuit, spectrum, sum_of_circuits
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
