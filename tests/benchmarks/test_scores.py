"""The measurement of scores runs, and says what it measured."""

from __future__ import annotations

import torch

from benchmarks import scores
from tests.small_models import maker


def test_the_largest_pairs_are_measured() -> None:
    model = maker()(n_layers=3).requires_grad_(False)
    row = scores.measure("small", model, torch.arange(8), n_cells=3, pairs=1)
    assert row["cells"] == 3 and row["all 20 proven, share of cells"] == 1
    assert 0 < row["nodes expanded (median)"] <= row["nodes expanded (most)"] and row["forward passes (median)"] > 0
