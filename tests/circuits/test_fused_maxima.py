"""The CUDA kernel against PyTorch's product, and searches on a GPU against the CPU's."""

from __future__ import annotations

import pytest
import torch
from transformer_lens import FactoredMatrix

from aotlens.circuits import diagonal_rank, top_entries, top_per_row
from aotlens.circuits.tiles import block_maxima


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1, 1), (64, 128, 32), (300, 1000, 64), (130, 259, 65)])
@pytest.mark.parametrize("block", [1, 8, 128, 512, 2048])
def test_maxima(shape: tuple[int, int, int], block: int) -> None:
    fused_maxima = pytest.importorskip("aotlens.circuits.fused_maxima", reason="needs Triton")
    n_rows, n_columns, inner = shape
    g = torch.Generator().manual_seed(0)
    left, right = torch.randn(n_rows, inner, generator=g), torch.randn(n_columns, inner, generator=g)
    found = fused_maxima.fused_block_maxima(left.cuda(), right.cuda(), block).cpu()
    expected = block_maxima(left.double() @ right.double().T, block)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits() -> None:
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(3000, 64, generator=g), torch.randn(64, 3000, generator=g)
    here, there = FactoredMatrix(a, b), FactoredMatrix(a.cuda(), b.cuda())
    for search in (lambda c: top_per_row(c, 10), lambda c: top_entries(c, 500), lambda c: (diagonal_rank(c),)):
        assert all(torch.equal(x, y) for x, y in zip(search(here), search(there), strict=True))
