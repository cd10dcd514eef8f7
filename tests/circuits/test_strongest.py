"""The rows that a circuit is sharpest about, against all of it at once."""

from __future__ import annotations

import pytest
import torch

from aotlens.circuits import ov_circuit, qk_circuit, strongest_rows
from tests.small_models import SMALL, maker

make = maker({**SMALL, "norm": "layernorm"})


@pytest.mark.parametrize("kind", ["qk", "ov"])
def test_rows_that_stand_out_most_of_the_whole_matrix(kind: str) -> None:
    circuit = (qk_circuit if kind == "qk" else ov_circuit)(make().double(), "1.0")
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
