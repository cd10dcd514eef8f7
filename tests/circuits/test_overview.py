"""The overview against a loop over the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aotlens.circuits import FactoredMatrix, block_overview, exact_block


def factored(rows: int, columns: int, inner: int = 3, seed: int = 0) -> FactoredMatrix:
    make = torch.Generator().manual_seed(seed)
    return FactoredMatrix(torch.randn(rows, inner, generator=make), torch.randn(inner, columns, generator=make))


@given(
    rows=st.integers(1, 40), columns=st.integers(1, 40), n_blocks=st.integers(1, 50), seed=st.integers(0, 99),
    max_bytes=st.sampled_from([1, 1000, 10**8]), statistic=st.sampled_from(["extreme", "mean"]),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_every_block_has_the_number_that_a_loop_finds(
    rows: int, columns: int, n_blocks: int, seed: int, max_bytes: int, statistic: str
):
    circuit = factored(rows, columns, seed=seed)
    dense = (circuit.A.double() @ circuit.B.double()).numpy()
    found = block_overview(circuit, n_blocks, statistic, max_bytes=max_bytes)
    assert found.values.shape[0] <= n_blocks and found.values.shape[1] <= n_blocks
    seen = np.zeros_like(dense)
    for i, j in np.ndindex(found.values.shape):
        block = dense[np.ix_(list(found.rows(i)), list(found.columns(j)))]
        seen[np.ix_(list(found.rows(i)), list(found.columns(j)))] += 1
        expected = block.mean() if statistic == "mean" else block.flat[np.abs(block).argmax()]
        assert found.values[i, j] == pytest.approx(expected, abs=1e-5)
    assert (seen == 1).all()


def test_one_large_entry_stays_visible_and_is_found():
    A, B = torch.zeros(1000, 1), torch.zeros(1, 700)
    A[917], B[0, 33] = -3.0, 2.0
    found = block_overview(FactoredMatrix(A, B), 16)
    row, column = found.extreme_block()
    assert 917 in found.rows(row) and 33 in found.columns(column)
    assert found.values[row, column] == -6
    assert np.count_nonzero(found.values) == 1


def test_exact_entries_are_float64_dot_products():
    circuit = factored(30, 20)
    rows, columns = torch.tensor([3, 29, 3]), torch.tensor([19, 0])
    expected = circuit.A.double() @ circuit.B.double()
    np.testing.assert_allclose(exact_block(circuit, rows, columns), expected[rows][:, columns], rtol=1e-14)


@pytest.mark.parametrize(
    ("circuit", "arguments", "message"),
    [
        (FactoredMatrix(torch.ones(2, 3, 1), torch.ones(2, 1, 3)), (), "a circuit of one matrix"),
        (factored(3, 3), (0,), "n_blocks=0"),
        (factored(3, 3), (2, "median"), "'extreme', 'mean'"),
        (factored(0, 3), (), "with entries"),
        (FactoredMatrix(torch.tensor([[torch.nan]]), torch.ones(1, 2)), (), "finite factors"),
        (FactoredMatrix(torch.full((2, 1), 1e30), torch.full((1, 2), 1e30)), (), "too large for float32"),
    ],
)
def test_what_it_cannot_show_is_refused(circuit: FactoredMatrix, arguments: tuple, message: str):
    with pytest.raises(ValueError, match=message):
        block_overview(circuit, *arguments)


def test_factors_of_two_kinds_are_one_matrix():
    single = factored(9, 7)
    mixed = FactoredMatrix(single.A.double(), single.B)
    np.testing.assert_allclose(block_overview(mixed, 4).values, block_overview(single, 4).values, atol=1e-5)
