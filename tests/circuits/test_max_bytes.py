"""Every tensor that a search makes, together, stays within `max_bytes`."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aotlens.circuits import (
    FactoredMatrix,
    diagonal_rank,
    per_row,
    row_statistics,
    top_entries,
    top_per_column,
    top_per_row,
)
from tests.cases import mostly_long


class Live(TorchDispatchMode):
    """Bytes of the storages that operations have returned and that are still alive, and their peak."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.known = {t.untyped_storage().data_ptr() for t in known}
        self.bytes = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        where, size = storage.data_ptr(), storage.nbytes()
        if not size or where in self.known:
            return
        self.known.add(where)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._forget, where, size)

    def _forget(self, where: int, size: int) -> None:
        self.known.discard(where)
        self.bytes -= size


def circuit(kind: str, n: int = 1500) -> FactoredMatrix:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(n, 16, generator=g), torch.randn(16, n, generator=g)
    if kind == "ties":  # half of every row is tied with its k-th best
        a, b = a.abs(), torch.cat([b[:, : n // 2], b[:, :1].abs().expand(-1, n // 2) * 10], dim=1)
    return FactoredMatrix(a, b)


SEARCHES = {
    "row": lambda c, m: top_per_row(c, 10, max_bytes=m),
    "column": lambda c, m: top_per_column(c, 10, max_bytes=m),
    "entries": lambda c, m: top_entries(c, 1000, max_bytes=m),
    "statistics": lambda c, m: row_statistics(c, max_bytes=m),
    "diagonal": lambda c, m: diagonal_rank(c, max_bytes=m),
}


def test_the_measure_itself() -> None:
    x = torch.zeros(1000)
    with Live(x) as live:
        y = x + 1
        del y
        z = (x + 1) * 2
    assert live.peak == 8000 and live.bytes == z.nbytes


@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_peak_of_the_road_for_small_matrices(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    searched, search, strips = circuit(kind, 700), per_row.best_by_strips, []
    monkeypatch.setattr(per_row, "best_by_strips", lambda *given: strips.append(given[2]) or search(*given))
    with Live(searched.A, searched.B) as live:
        top_per_row(searched, 10, max_bytes=12_000_000)
    assert live.peak <= 12_000_000 and strips and strips[0] < 700


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("kind", ["normal", "ties"])
@pytest.mark.parametrize("max_bytes", mostly_long([2_000_000, 8_000_000], [8_000_000]))
def test_peak(name: str, kind: str, max_bytes: int) -> None:
    if kind == "ties" and name == "entries":
        pytest.skip("a million exact ties: correct, but minutes")
    searched = circuit(kind)
    with Live(searched.A, searched.B) as live:
        SEARCHES[name](searched, max_bytes)
    assert live.peak <= max_bytes
