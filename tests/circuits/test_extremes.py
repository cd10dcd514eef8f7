"""Ends, maps and blocks of a circuit, and one head's compositions and copying, against the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.circuits import (
    all_compositions,
    block_overview,
    circuit_block,
    circuit_map,
    copying_scores,
    extreme_entries,
    head_composition,
    ov_circuit,
    qk_circuit,
    strongest_rows,
)
from aotlens.circuits.circuit import Circuit
from tests.small_models import MakeModel


def dense(circuit: Circuit) -> np.ndarray:
    return (circuit.A.detach().double() @ circuit.B.detach().double()).numpy()


@pytest.mark.parametrize("kind", ["qk", "ov"])
def test_both_ends_of_the_whole_of_a_row_and_of_a_column(make: MakeModel, kind: str) -> None:
    circuit = (qk_circuit if kind == "qk" else ov_circuit)(make(), (0, 1))
    matrix = dense(circuit)
    found = extreme_entries(circuit, 5)
    in_order = np.sort(matrix.ravel())
    np.testing.assert_allclose(found.values, [*in_order[::-1][:5], *in_order[:5]], rtol=1e-9)
    np.testing.assert_allclose(found.values, matrix[found.rows.ids, found.columns.ids], rtol=1e-9)
    # Relative to the row: log-mean-exp for scores, mean for logits.
    level = np.log(np.exp(matrix).mean(1)) if kind == "qk" else matrix.mean(1)
    np.testing.assert_allclose(found.above_row, found.values - level[found.rows.ids], rtol=1e-9)
    assert (found.largest_row, found.largest_column) == np.unravel_index(matrix.argmax(), matrix.shape)
    assert found.rows.role == ("destination token" if kind == "qk" else "source token")
    row = extreme_entries(circuit, 4, row=3)
    assert row.columns.ids[:4].tolist() == np.argsort(-matrix[3], kind="stable")[:4].tolist()
    assert row.row_statistics is not None and set(row.rows.ids.tolist()) == {3}
    assert float(row.row_statistics.std[0]) == pytest.approx(matrix[3].std())
    column = extreme_entries(circuit, 4, column=2)
    assert column.rows.ids[4:].tolist() == np.argsort(matrix[:, 2], kind="stable")[:4].tolist()
    assert column.row_statistics is None


def test_entries_at_both_ends_are_listed_once_by_size(make: MakeModel) -> None:
    circuit = qk_circuit(make(), (0, 0), "bias", "positions")
    found = extreme_entries(circuit, 99)
    frame = found.size_frame()
    assert len(frame) == circuit.shape[1] and len(found.to_frame()) == 2 * circuit.shape[1]
    np.testing.assert_allclose(frame.nats, sorted(dense(circuit)[0], key=lambda value: -abs(value)), rtol=1e-9)
    assert frame["rank"].tolist() == [*range(1, len(frame) + 1)]


def test_a_map_has_the_largest_entries_or_the_lines_that_are_given(make: MakeModel) -> None:
    circuit = ov_circuit(make(), (0, 1))
    matrix = dense(circuit)
    first = circuit_map(circuit, n=3)
    assert (first.rows.ids[0], first.columns.ids[0]) == np.unravel_index(np.abs(matrix).argmax(), matrix.shape)
    np.testing.assert_allclose(first.values, matrix[np.ix_(first.rows.ids, first.columns.ids)], rtol=1e-9)
    given = circuit_map(circuit, [2, 4, 2], [1])
    assert (given.rows.ids.tolist(), given.columns.ids.tolist()) == ([2, 4], [1])
    assert given.to_frame().logits.tolist() == pytest.approx([matrix[2, 1], matrix[4, 1]])
    assert circuit_map(circuit, [2]).columns.ids[0] == np.abs(matrix[2]).argmax()
    assert circuit_map(circuit, columns=[1]).rows.ids[0] == np.abs(matrix[:, 1]).argmax()
    # A part of a circuit has its own places, and the whole's ids.
    part = circuit_map(circuit[[4, 2], 1:4], n=9)
    np.testing.assert_allclose(part.values, matrix[np.ix_(part.rows.ids, part.columns.ids)], rtol=1e-9)
    with pytest.raises(ValueError, match=r"expected a token of this circuit"):
        circuit_map(circuit, [10**6])


def test_a_block_is_that_of_the_matrix_or_is_shown_with_what_is_around_it(make: MakeModel) -> None:
    circuit = qk_circuit(make(), (0, 1))
    matrix = dense(circuit)
    overview = block_overview(circuit, 2)
    rows, columns = overview.rows(1), overview.columns(0)
    found = circuit_block(circuit, overview, (1, 0), n=3, k=4)
    part = np.abs(matrix[np.ix_(list(rows), list(columns))])
    assert found.spans == ((rows[0], rows[-1]), (columns[0], columns[-1])) and not found.around
    assert abs(found.entries.values[found.entries.by_size()[0]]) == pytest.approx(part.max())
    largest = circuit_block(circuit, overview)
    assert largest.first and np.abs(largest.entries.values).max() == pytest.approx(np.abs(matrix).max())
    single = circuit_block(circuit, block_overview(circuit, 10**6), (0, 1), n=4)
    assert single.around and single.whole and single.map.values.shape == (4, 4)
    with pytest.raises(ValueError, match=r"block=\(9, 0\): expected one of 2 × 2 blocks"):
        circuit_block(circuit, overview, (9, 0))


@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_the_compositions_of_a_head_are_those_of_all_pairs(make: MakeModel, attention: str) -> None:
    model = make(attention=attention, n_layers=3)
    all_pairs = all_compositions(model, folded=True)
    found = head_composition(model, "1.0", all_pairs)
    n_modes = 2 if attention == "mssa" else 3
    assert len(found.values) == n_modes * 2 * model.cfg.n_heads
    assert found.values.tolist() == sorted(found.values.tolist(), reverse=True)
    for at, mode in enumerate(found.modes):
        of = all_pairs["q" if mode == "qk" else mode]
        pair = (*found.earlier[at], *found.later[at])
        assert (1, 0) in (pair[:2], pair[2:])
        assert (found.values[at], found.z[at], found.z_rotated[at]) == (of.values[pair], of.z_signs[pair], of.z[pair])
        assert (found.norms[at], found.rank[at]) == (of.norms[pair], of.rank[pair])
        assert found.above_null[at] == of.edges[pair]
    assert set(found.strongest(4.0)) == {at for at in range(len(found.z)) if found.z[at] >= 4}
    assert set(found.to_frame().relation) == {"reads", "is read by"}


def test_copying_scores_of_heads_count_their_own_tokens(make: MakeModel) -> None:
    model = make()
    found = copying_scores(model)
    assert len(found.heads) == model.cfg.n_layers * model.cfg.n_heads
    for at, head in enumerate(found.heads):
        matrix = dense(ov_circuit(model, head))
        assert found.top1[at] == pytest.approx((matrix.argmax(1) == np.arange(len(matrix))).mean())
        eigenvalues = np.linalg.eigvals(matrix)
        expected = eigenvalues.real.sum() / np.abs(eigenvalues).sum()
        assert found.scores[at] == pytest.approx(expected, abs=1e-6)
    assert copying_scores(model, ["0.1"]).to_frame()["head"].tolist() == ["0.1"]


@pytest.mark.parametrize("kind", ["qk", "ov"])
def test_rows_that_stand_out_most_of_the_whole_matrix(make: MakeModel, kind: str) -> None:
    circuit = (qk_circuit if kind == "qk" else ov_circuit)(make(norm="layernorm"), "1.0")
    whole = (circuit.A @ circuit.B).double()
    level = whole.exp().mean(1).log() if kind == "qk" else whole.mean(1)
    among = torch.arange(1, whole.shape[0], 2)
    found = strongest_rows(circuit, among, n=4, k=3)
    above = (whole - level[:, None])[among].topk(3, dim=1)
    order = above.values[:, 0].argsort(descending=True)[:4]
    torch.testing.assert_close(found.rows, among[order])
    torch.testing.assert_close(found.columns, above.indices[order])
    torch.testing.assert_close(found.relative, above.values[order])
    torch.testing.assert_close(found.values, whole[found.rows[:, None], found.columns])
    with pytest.raises(ValueError, match="some rows"):
        strongest_rows(circuit, torch.arange(0))
