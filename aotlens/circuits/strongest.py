"""What a circuit is sharpest about: the rows whose largest entries stand out most, and these entries."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.circuit import Circuit
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.rows import above_row_level
from aotlens.circuits.topk import top_per_row
from aotlens.results import describe


class StrongestRows(NamedTuple):
    """Rows, the sharpest first, and the largest entries of each, the largest first."""

    rows: Int64[Tensor, " row"]
    columns: Int64[Tensor, "row k"]
    values: Float64[Tensor, "row k"]
    """The entries."""
    relative: Float64[Tensor, "row k"]
    """The same above the row's level: log-mean-exp of the row (QK, nats), mean of the row (OV, logits)."""

    def __repr__(self) -> str:
        return describe(self)


def strongest_rows(circuit: Circuit, among: Int64[Tensor, " candidate"], *, n: int = 8, k: int = 3) -> StrongestRows:
    """Of the rows `among` a circuit's, the `n` whose largest entry is furthest above its row's level.

    A QK row says what one destination looks for, an OV row what one source makes likelier; a softmax sees a QK row up
    to a constant, so rows are compared above their own levels (`above_row_level`). Over all rows of a vocabulary,
    tokens that hardly occur would come first: give those that do. Cost as `top_per_row` of these rows, and no more of
    the circuit is formed. Raises `ValueError` for no rows, and as `top_per_row`.
    """
    if not len(among):
        raise ValueError("expected some rows to choose among, got none.")
    device = circuit.A.device
    top = top_per_row(FactoredMatrix(circuit.A[among.to(device)], circuit.B), min(k, circuit.shape[1]))
    repeated = among.repeat_interleave(top.values.shape[1])
    relative = above_row_level(circuit, repeated, top.values.flatten()).view_as(top.values)
    order = relative[:, 0].argsort(descending=True, stable=True)[:n]
    return StrongestRows(among[order], top.indices[order], top.values[order], relative[order])
