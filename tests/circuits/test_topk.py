"""The streamed searches against a dense float64 product that is sorted as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from aotlens.circuits import (
    FactoredMatrix,
    diagonal_rank,
    per_row,
    search_entries,
    tiles,
    top_entries,
    top_per_column,
    top_per_row,
)
from aotlens.circuits import (
    factors as factors_module,
)
from aotlens.circuits.factors import dot_products
from aotlens.circuits.tiles import Tiles

KINDS = ("normal", "integers", "low_rank", "rank_one", "zeros", "some_zeros", "range", "negative", "near_ties", "tiny")


def factors(kind: str, shape: tuple[int, int, int], seed: int, dtype: torch.dtype = torch.float32) -> FactoredMatrix:
    n_rows, n_columns, inner = shape
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(n_rows, inner, generator=g), torch.randn(inner, n_columns, generator=g)
    if kind == "integers":  # many exact ties
        a, b = a.round(), b.round()
    elif kind == "low_rank":
        a[:, 1:] = a[:, :1]
    elif kind == "rank_one":
        a[:, 1:], b = 0.0, b.round()
    elif kind == "zeros":
        a.zero_()
    elif kind == "some_zeros":
        a[::3], b[:, ::2] = 0.0, 0.0
    elif kind == "range":
        a *= 10.0 ** torch.empty(n_rows, 1).uniform_(-20, 20, generator=g)
        b *= 10.0 ** torch.empty(1, n_columns).uniform_(-5, 5, generator=g)
    elif kind == "negative":  # no entry is above zero
        a, b = a.abs() + 0.1, -b.abs() - 0.1
    elif kind == "near_ties":  # entries of a row differ by less than float32 resolves
        b = b[:, :1] + 1e-7 * b.abs().amax() * torch.randn(inner, n_columns, generator=g).round()
    elif kind == "tiny":  # products underflow in float32
        a, b = a * 1e-30, b * 1e-25
    return FactoredMatrix(a.to(dtype), b.to(dtype))


def dense(circuit: FactoredMatrix) -> Tensor:
    """The documented values of every entry. `test_values` checks these against rational arithmetic."""
    n_rows, n_columns = circuit.shape
    i, j = torch.arange(n_rows).repeat_interleave(n_columns), torch.arange(n_columns).repeat(n_rows)
    return dot_products(circuit.A, circuit.B.T.contiguous(), i, j).view(n_rows, n_columns)


@pytest.fixture(autouse=True, scope="module")
def tiled() -> Iterator[None]:
    """Rows of small matrices have a road of their own, which is held against the tiled one below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(per_row, "MOST_ENTRIES", 0)
        yield


def check_everything(circuit: FactoredMatrix, k: int, largest: bool, max_bytes: int) -> None:
    """All searches, against stable sorts of the whole: equal values in the order of their indices."""
    matrix = dense(circuit)
    n_rows, n_columns = matrix.shape
    for found, lines in (
        (top_per_row(circuit, min(k, n_columns), largest, max_bytes=max_bytes), matrix),
        (top_per_column(circuit, min(k, n_rows), largest, max_bytes=max_bytes), matrix.T),
    ):
        expected = lines.sort(dim=1, descending=largest, stable=True)
        assert torch.equal(found.indices, expected.indices[:, : found.indices.shape[1]])
        assert torch.equal(found.values, expected.values[:, : found.indices.shape[1]])
    values, rows, columns = top_entries(circuit, k, largest, max_bytes=max_bytes)
    expected = matrix.flatten().sort(descending=largest, stable=True)
    assert torch.equal(rows * n_columns + columns, expected.indices[:k])
    assert torch.equal(values, expected.values[:k])


@given(
    kind=st.sampled_from(KINDS),
    shape=st.tuples(st.integers(1, 150), st.integers(1, 150), st.integers(1, 40)),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    share=st.floats(0, 1),
    largest=st.booleans(),
    max_bytes=st.sampled_from([10**9, 3 * 10**6]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=30)
def test_dense_brute_force(kind, shape, dtype, share, largest, max_bytes, seed) -> None:
    if dtype == torch.float16 and kind in ("range", "tiny"):
        dtype = torch.float32
    k = max(1, round(share**4 * shape[0] * shape[1]))  # mostly few, sometimes all
    if max_bytes < 10**9:
        k = min(k, 500)
    check_everything(factors(kind, shape, seed, dtype), k, largest, max_bytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [True, False])
def test_every_kind_at_a_size_with_several_tiles(kind: str, largest: bool) -> None:
    check_everything(factors(kind, (300, 500, 16), 1), 10, largest, 1_000_000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_small_matrices_have_the_same_rows_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
) -> None:
    """Ties within the candidates and beyond them, rows of zeros, one row, one column, as many entries as there are."""
    roads: list[list[Tensor]] = []
    for most in (0, 2**25):
        monkeypatch.setattr(per_row, "MOST_ENTRIES", most)
        roads.append([])
        for shape, k in (((300, 500, 16), 10), ((70, 40, 3), 38), ((1, 13, 1), 7), ((150, 1, 4), 1)):
            for largest in (True, False):
                roads[-1] += top_per_row(factors(kind, shape, 1, dtype), k, largest)
    for ours, theirs in zip(*roads, strict=True):
        assert torch.equal(ours.view(torch.int64), theirs.view(torch.int64))


def test_small_matrices_are_exact_whatever_rounding_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products moved by almost the bound change no bit of the answer."""
    product = Tiles.product
    circuit = factors("near_ties", (200, 300, 24), 3)
    expected = top_per_row(circuit, 10)
    monkeypatch.setattr(per_row, "MOST_ENTRIES", 2**25)
    calls: list[int] = []

    def noisy(tiles: Tiles, left: Tensor, right: Tensor) -> Tensor:
        exact = product(tiles, left, right)
        bound = factors_module.coefficient(left.shape[1]) * torch.outer(left.norm(dim=1), right.norm(dim=1))
        calls.append(len(left))
        return exact + 0.4 * bound * torch.randn(exact.shape, generator=torch.Generator().manual_seed(1)).sign()

    monkeypatch.setattr(Tiles, "product", noisy)
    assert all(torch.equal(a, b) for a, b in zip(top_per_row(circuit, 10), expected, strict=True)) and calls


def test_every_entry_in_order() -> None:
    circuit = factors("integers", (40, 60, 5), 2)
    check_everything(circuit, 2400, True, 10**8)


@pytest.mark.parametrize("kind", ["normal", "integers", "near_ties"])
def test_the_answer_does_not_depend_on_tiles(kind: str) -> None:
    circuit = factors(kind, (200, 330, 24), 3)
    budgets = [10**9, 3_000_000, 700_000, 400_000]
    for search in (top_per_row, top_per_column, top_entries):
        first, *others = (search(circuit, 7, max_bytes=budget) for budget in budgets)
        for other in others:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_the_answer_does_not_depend_on_the_precision_of_products(precision: str) -> None:
    """Where the processor can, "medium" multiplies in bf16: an error some 10,000 times as large."""
    circuit = factors("normal", (400, 700, 64), 4)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        check_everything(circuit, 20, True, 10**9)
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_answer_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "LEAST_ENTRIES", 0)  # however small: as many workers as threads
    circuit = factors("near_ties", (700, 900, 64), 5)
    before = torch.get_num_threads()
    found = []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            assert tiles.n_workers(circuit.A.device, 1) == n
            for max_bytes in (512 * 10**6, 12 * 10**6):
                rows, entries = (
                    top_per_row(circuit, 5, max_bytes=max_bytes),
                    top_entries(circuit, 50, max_bytes=max_bytes),
                )
                found.append((*rows, *entries))
            assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_workers_are_in_inference_mode_if_their_caller_is(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = factors("normal", (300, 400, 8), 6)
    alone = top_per_row(circuit, 5)
    monkeypatch.setattr(tiles, "LEAST_ENTRIES", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with torch.inference_mode():
        shared, entries = top_per_row(circuit, 5), top_entries(circuit, 20)
    assert torch.equal(alone.indices, shared.indices) and torch.equal(entries.values, top_entries(circuit, 20).values)


def test_an_error_in_a_worker_is_raised() -> None:
    def work(worker: int) -> None:
        if worker == 1:
            raise ValueError("worker 1")

    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="worker 1"):
        tiles.share(work, 2)
    assert torch.get_num_threads() == before


def test_values() -> None:
    """Of float32 factors, within 8 roundings of float64 of the rational dot product."""
    circuit = factors("normal", (6, 7, 33), 6)
    values, rows, columns = top_entries(circuit, 42)
    for value, i, j in zip(values.tolist(), rows.tolist(), columns.tolist(), strict=True):
        terms = [
            Fraction(a) * Fraction(b) for a, b in zip(circuit.A[i].tolist(), circuit.B[:, j].tolist(), strict=True)
        ]
        assert abs(Fraction(value) - sum(terms)) <= 8 * Fraction(2) ** -53 * sum(map(abs, terms))


def test_norms_that_vary_leave_tiles_out() -> None:
    g = torch.Generator().manual_seed(7)
    a = torch.randn(600, 16, generator=g) * torch.logspace(0, -3, 600)[torch.randperm(600, generator=g), None]
    b = torch.randn(16, 800, generator=g)
    search = search_entries(FactoredMatrix(a, b), 30, max_bytes=1_200_000)
    expected = (a.double() @ b.double()).flatten().sort(descending=True)  # no ties here
    assert torch.equal(search.entries.rows * 800 + search.entries.columns, expected.indices[:30])
    assert 0.5 < search.share_skipped < 1
    assert 30 <= search.n_candidates < 3000
    assert search_entries(FactoredMatrix(0 * a, b), 30).share_skipped == 1


def test_gradients_and_views_are_no_matter() -> None:
    circuit = factors("normal", (50, 60, 8), 8)
    view = FactoredMatrix(circuit.A.T.contiguous().T.requires_grad_(), circuit.B.T.contiguous().T)
    assert not top_per_row(view, 3).values.requires_grad
    check_everything(FactoredMatrix(view.A.detach(), view.B), 5, True, 10**9)


HUGE = torch.full((4, 4), 1e200, dtype=torch.float64)
NOT_FINITE = FactoredMatrix(torch.ones(5, 3), torch.tensor([[torch.inf, 1, 1], [1, 1, torch.nan], [1, 1, 1]]))


@pytest.mark.parametrize("search", [top_entries, top_per_row, top_per_column])
@pytest.mark.parametrize(
    ("circuit", "k", "message"),
    [
        (factors("normal", (5, 4, 3), 0), 0, r"expected k between 1 and \d+.*got 0"),
        (factors("normal", (5, 4, 3), 0), 21, r"expected k between 1 and \d+.*got 21"),
        (factors("normal", (5, 4, 3), 0), True, r"expected k between 1 and \d+.*got True"),
        (NOT_FINITE, 1, r"finite.*right.*2 entries.*of 9"),
        (FactoredMatrix(HUGE, HUGE), 1, "stay within float64"),
        (FactoredMatrix(torch.ones(2, 5, 3), torch.ones(2, 3, 4)), 1, r"one matrix.*\[2, 5, 4\]"),
        (FactoredMatrix(torch.ones(5, 3), torch.ones(3, 0)), 1, "with entries"),
        (FactoredMatrix(torch.ones(5, 3).long(), torch.ones(3, 4).long()), 1, r"real floating-point.*int64"),
    ],
)
def test_what_cannot_be_searched_is_refused(search, circuit: FactoredMatrix, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(circuit, k)


@pytest.mark.parametrize("unit", [0.0, 2.0**-10, 2.0**-8])
@pytest.mark.parametrize("kind", KINDS)
def test_products_as_wrong_as_the_bound_allows_change_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: str, unit: float
) -> None:
    """Whatever a machine's float32, TF32 or bf16 product may be off by, with either sign and anew at each call."""
    generator = torch.Generator().manual_seed(3)

    def noisy(tiles: Tiles, left: Tensor, right: Tensor) -> Tensor:
        a, b = left.double(), right.double()
        u = (factors_module.TENSOR_CORE_UNIT if unit else factors_module.UNIT) * left.shape[1]
        error = ((1 + unit) ** 2 * (1 + u / (1 - u)) - 1) * a.norm(dim=1)[:, None] * b.norm(dim=1)
        result = (a @ b.T + error * torch.randint(-1, 2, error.shape, generator=generator)).float()
        result[result.abs() < 2.0**-126] = 0
        return result

    monkeypatch.setattr(Tiles, "product", noisy)
    monkeypatch.setattr(factors_module, "input_unit", lambda device: unit)
    for seed, shape in enumerate([(60, 200, 8), (150, 90, 1), (40, 300, 3)]):
        check_everything(factors(kind, shape, seed), 20, largest=bool(seed % 2), max_bytes=3 * 10**6)


def test_how_products_are_shortened_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert factors_module.input_unit(torch.device("cpu")) == 2.0**-8
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert factors_module.input_unit(torch.device("cpu")) == 0.0


def test_no_tile_that_can_win_is_skipped() -> None:
    """With one inner dimension ‖a‖ ‖b‖ is the entry itself, so that the search stops as early as it may."""
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.rand(3000, 1, generator=generator) + 0.5 for _ in range(2))
    found = search_entries(FactoredMatrix(a, b.T), 2000, max_bytes=8 * 10**6)
    expected = (a.double() @ b.T.double()).flatten().sort(descending=True, stable=True)
    assert torch.equal(found.entries.values, expected.values[:2000])
    assert torch.equal(found.entries.rows * 3000 + found.entries.columns, expected.indices[:2000])
    assert found.share_skipped > 0.1


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits() -> None:
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(3000, 64, generator=g), torch.randn(64, 3000, generator=g)
    here, there = FactoredMatrix(a, b), FactoredMatrix(a.cuda(), b.cuda())
    for search in (lambda c: top_per_row(c, 10), lambda c: top_entries(c, 500), lambda c: (diagonal_rank(c),)):
        assert all(torch.equal(x, y) for x, y in zip(search(here), search(there), strict=True))
