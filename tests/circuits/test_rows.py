"""Statistics of rows against a dense float64 product."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from aotlens.circuits import (
    Circuit,
    FactoredMatrix,
    Side,
    above_row_level,
    diagonal_rank,
    row_statistics,
    top_entries,
    top_per_row,
)


def _factors(n_rows: int, n_columns: int, inner: int, seed: int = 0, scale: float = 1.0) -> FactoredMatrix:
    g = torch.Generator().manual_seed(seed)
    return FactoredMatrix(scale * torch.randn(n_rows, inner, generator=g), torch.randn(inner, n_columns, generator=g))


@given(
    shape=st.tuples(st.integers(1, 200), st.integers(1, 200), st.integers(1, 40)),
    scale=st.sampled_from([1e-6, 1.0, 1e3]),
    weighted=st.booleans(),
    max_bytes=st.sampled_from([10**9, 2 * 10**6]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_statistics(shape, scale, weighted, max_bytes, seed) -> None:
    circuit = _factors(*shape, seed=seed, scale=scale)
    n_columns = shape[1]
    weights = torch.full((n_columns,), 1 / n_columns, dtype=torch.float64)
    if weighted:
        weights = torch.rand(n_columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        weights[1::3] = 0
        weights /= weights.sum()
    found = row_statistics(circuit, weights=weights if weighted else None, max_bytes=max_bytes)
    matrix = circuit.A.double() @ circuit.B.double()
    mean = matrix @ weights
    torch.testing.assert_close(found.mean, mean, rtol=1e-9, atol=1e-12 * scale)
    torch.testing.assert_close(
        found.log_mean_exp, (matrix + weights.log()).logsumexp(1), rtol=1e-9, atol=1e-12 * max(1, scale)
    )
    std = ((matrix - mean[:, None]) ** 2 @ weights).sqrt()
    torch.testing.assert_close(found.std, std, rtol=1e-9, atol=1e-12 * scale)


def test_a_small_spread_about_a_large_mean_keeps_its_digits() -> None:
    g = torch.Generator().manual_seed(1)
    b = torch.cat([torch.full((1, 300), 1e6, dtype=torch.float64), torch.randn(3, 300, generator=g).double()])
    circuit = FactoredMatrix(torch.ones(5, 4, dtype=torch.float64), b)
    found = row_statistics(circuit)
    torch.testing.assert_close(found.std, b[1:].sum(0).std(correction=0).expand(5), rtol=1e-9, atol=0)


def test_no_overflow() -> None:
    found = row_statistics(_factors(4, 50, 3, scale=1e6))
    assert torch.isfinite(found.log_mean_exp).all()
    assert (found.log_mean_exp > 1e5).all()  # exp of which no float64 holds


def test_a_frame() -> None:
    frame = row_statistics(_factors(4, 5, 3)).to_frame()
    assert list(frame) == ["mean", "log_mean_exp", "std"] and len(frame) == 4


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        (torch.full((4,), 0.25), r"expected \[5\], got \[4\]"),
        (torch.full((5,), 1.0), "sum of 5"),
        (torch.tensor([1.5, -0.5, 0, 0, 0]), "smallest of -0.5"),
        (torch.tensor([1.0, torch.nan, 0, 0, 0]), "finite"),
    ],
)
def test_weights_that_are_no_distribution(weights, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        row_statistics(_factors(3, 5, 2), weights=weights.double())


@given(
    n=st.integers(1, 200),
    inner=st.integers(1, 20),
    integers=st.booleans(),
    max_bytes=st.sampled_from([10**9, 200_000]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_diagonal_rank(n, inner, integers, max_bytes, seed) -> None:
    circuit = _factors(n, n, inner, seed=seed)
    if integers:  # ties, before and after the diagonal
        circuit = FactoredMatrix(circuit.A.round(), circuit.B.round())
    order = (circuit.A.double() @ circuit.B.double()).sort(dim=1, descending=True, stable=True).indices
    expected = (order == torch.arange(n)[:, None]).nonzero()[:, 1]
    found = diagonal_rank(circuit, max_bytes=max_bytes)
    if integers:
        assert torch.equal(found, expected)
    assert torch.equal(found == 0, top_per_row(circuit, 1).indices[:, 0] == torch.arange(n))
    assert (found - expected).abs().amax() == 0 or inner > 1


def test_copying_and_its_opposite() -> None:
    eye = torch.eye(30)
    assert torch.equal(diagonal_rank(FactoredMatrix(eye, eye)), torch.zeros(30, dtype=torch.int64))
    assert torch.equal(diagonal_rank(FactoredMatrix(eye, -eye)), torch.full((30,), 29))
    assert torch.equal(diagonal_rank(FactoredMatrix(0 * eye, eye)), torch.arange(30))


def test_a_rank_needs_a_square() -> None:
    with pytest.raises(ValueError, match=r"square.*4 × 5"):
        diagonal_rank(_factors(4, 5, 3))


SEARCHES = [
    lambda circuit, **limit: top_entries(circuit, 1, **limit),
    lambda circuit, **limit: top_per_row(circuit, 1, **limit),
]


@pytest.mark.parametrize("search", [row_statistics, diagonal_rank, *SEARCHES])
def test_too_little_memory(search) -> None:
    with pytest.raises(ValueError, match=r"max_bytes=1000 is too small"):
        search(_factors(40, 40, 3), max_bytes=1000)


def test_weights_that_sum_to_one_only_nearly_cost_no_digits() -> None:
    circuit = FactoredMatrix(torch.full((2, 1), 1e4, dtype=torch.float64), torch.ones(1, 1000, dtype=torch.float64))
    weights = torch.full((1000,), (1 + 9e-7) / 1000, dtype=torch.float64)
    statistics = row_statistics(circuit, weights=weights)
    assert statistics.std.max() < 1e-9
    torch.testing.assert_close(statistics.mean, torch.full((2,), 1e4, dtype=torch.float64), rtol=1e-14, atol=0)


def test_wide_factors_fit_little_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    circuit = FactoredMatrix(torch.randn(300, 256, generator=generator), torch.randn(256, 300, generator=generator))
    little, much = row_statistics(circuit, max_bytes=6_000_000), row_statistics(circuit)
    torch.testing.assert_close(little.log_mean_exp, much.log_mean_exp, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("number", "shown"), [(1e200, r"1e\+200"), (1e-200, "1e-200")])
def test_numbers_that_float64_cannot_multiply_are_refused(number: float, shown: str) -> None:
    ones = torch.ones(2, 2, dtype=torch.float64)
    extreme = torch.tensor([[number, 0.0], [1.0, 1.0]], dtype=torch.float64)
    for search in (row_statistics, diagonal_rank, *SEARCHES):
        with pytest.raises(ValueError, match=f"rows of the left .*got one with {shown}"):
            search(FactoredMatrix(extreme, ones))
        with pytest.raises(ValueError, match="columns of the right"):
            search(FactoredMatrix(ones, extreme.T))


@pytest.mark.parametrize("kind", ["qk", "ov"])
def test_entries_above_their_rows_level(kind) -> None:
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(6, 3, generator=generator).double(), torch.randn(3, 9, generator=generator).double()
    side = Side(name="tokens", index="token")
    rows, columns = torch.tensor([4, 1, 4, 0]), torch.tensor([8, 2, 0, 0])
    dense = A @ B
    level = dense.logsumexp(1) - torch.tensor(9.0).log() if kind == "qk" else dense.mean(1)
    found = above_row_level(Circuit(A, B, kind=kind, heads=[(0, 0)], left=side, right=side), rows, dense[rows, columns])
    torch.testing.assert_close(found, dense[rows, columns] - level[rows], rtol=1e-6, atol=1e-7)
