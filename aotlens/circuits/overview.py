"""A whole circuit in one small picture, and exact pieces of it.

A full circuit at V = 48,262 has 2.3 billion entries. `block_overview` divides it into at most n × n blocks and keeps
one number of each; `exact_block` gives every entry of a few rows and columns, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int
from torch import Tensor

from aotlens.circuits.circuit import Circuit
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.factors import check
from aotlens.circuits.labelled import Lines
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

Statistic = Literal["extreme", "mean"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Overview(Result):
    """One number of each block of a matrix, `values[row block, column block]`.

    Row block i holds the rows from i · row_size up to, not including, (i + 1) · row_size; the last one may be smaller.
    """

    statistic: Statistic
    """`"extreme"`: the entry of the block that is largest in magnitude, with its sign. `"mean"`: the block's mean."""
    values: Float32[np.ndarray, "row_block column_block"]
    row_size: int
    column_size: int
    n_rows: int
    n_columns: int
    unit: str = ""
    """The unit of a circuit's entries."""
    first_rows: Lines | None = None
    """The first row of each row block of a circuit."""
    first_columns: Lines | None = None

    @property
    def headline(self) -> str:
        block = self.extreme_block()
        return f"{self.n_rows:,} × {self.n_columns:,}, largest in block {block}: {self.values[block]:.3g}"

    def sentences(self) -> str:
        """Return what a number of the overview is."""
        entries = f"{self.n_rows:,} × {self.n_columns:,} entries"
        if self.row_size == self.column_size == 1:
            return f"Every one of the {entries}."
        statistic = "its entry largest in size, with its sign" if self.statistic == "extreme" else "its mean"
        return f"A pixel is a block of {self.row_size} × {self.column_size} of the {entries}, shown by {statistic}."

    def rows(self, block: int) -> range:
        """Return the matrix's rows in a row block."""
        return range(block * self.row_size, min((block + 1) * self.row_size, self.n_rows))

    def columns(self, block: int) -> range:
        """Return the matrix's columns in a column block."""
        return range(block * self.column_size, min((block + 1) * self.column_size, self.n_columns))

    def extreme_block(self) -> tuple[int, int]:
        """Return the block whose number is largest in magnitude, the first of equals."""
        row, column = np.unravel_index(np.abs(self.values).argmax(), self.values.shape)
        return int(row), int(column)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a block: its first and last row and column, and its number by the name of the statistic."""
        import pandas as pd

        i, j = np.indices(self.values.shape).reshape(2, -1)
        columns: dict[str, np.ndarray] = {}
        rows, columns_of = (i, self.row_size, self.n_rows), (j, self.column_size, self.n_columns)
        for name, (number, size, n) in {"row": rows, "column": columns_of}.items():
            columns |= {f"first_{name}": number * size, f"last_{name}": np.minimum((number + 1) * size, n) - 1}
        return pd.DataFrame({**columns, self.statistic: self.values.ravel().astype(np.float64)})


@torch.no_grad()
def block_overview(
    circuit: FactoredMatrix, n_blocks: int = 256, statistic: str = "extreme", *, max_bytes: int = 128 * 10**6
) -> Overview:
    """Reduce A @ B, which is never formed, to at most `n_blocks` × `n_blocks` numbers that stand for all of it.

    `"extreme"` keeps, of each block, the entry largest in magnitude: a single large entry among millions stays
    visible, where a mean would fade it. `"mean"` is mean(A's rows) · mean(B's columns), a product of the factors alone.

    Time: "extreme" rows · columns · inner multiplications in float32, with one pass over the products; "mean" one pass
    over the factors. Memory: strips of rows of at most `max_bytes`.

    Raises `ValueError` for a batch of matrices, an empty one, factors or products that are not finite, `n_blocks` below
    1, or another statistic.
    """
    check(circuit)
    if n_blocks < 1:
        raise ValueError(f"n_blocks={n_blocks}: expected at least 1.")
    n_rows, n_columns = circuit.A.shape[0], circuit.B.shape[1]
    row_size, column_size = -(-n_rows // n_blocks), -(-n_columns // n_blocks)
    if statistic == "extreme":
        dtype = torch.promote_types(torch.promote_types(circuit.A.dtype, circuit.B.dtype), torch.float32)
        values = _extremes(circuit.A.to(dtype), circuit.B.to(dtype), row_size, column_size, max_bytes)
    elif statistic == "mean":
        values = _block_means(circuit.A, row_size) @ _block_means(circuit.B.T, column_size).T
    else:
        raise ValueError(f"statistic={statistic!r}: expected 'extreme' or 'mean'.")
    values = values.cpu().float()
    if not bool(values.isfinite().all()):
        raise ValueError("block_overview: entries are too large for float32; scale the factors down.")
    named: dict[str, Any] = {}
    if isinstance(circuit, Circuit):
        first_rows, first_columns = range(0, n_rows, row_size), range(0, n_columns, column_size)
        named = {"unit": circuit.quantity, "first_rows": circuit.lines("left", first_rows),
                 "first_columns": circuit.lines("right", first_columns)}  # fmt: skip
    return Overview(
        statistic="extreme" if statistic == "extreme" else "mean",
        values=values.numpy(),
        row_size=row_size,
        column_size=column_size,
        n_rows=n_rows,
        n_columns=n_columns,
        **named,
    )


@torch.no_grad()
def exact_block(
    circuit: FactoredMatrix, rows: Int[Tensor, " row"], columns: Int[Tensor, " column"]
) -> Float64[np.ndarray, "row column"]:
    """Return the entries of the given rows and columns, each a float64 dot product, on the CPU."""
    A = circuit.A.detach()[rows.to(circuit.A.device)].cpu().double()
    B = circuit.B.detach()[:, columns.to(circuit.B.device)].cpu().double()
    return (A @ B).numpy()


def _extremes(A: Tensor, B: Tensor, row_size: int, column_size: int, max_bytes: int) -> Tensor:
    # Zeros at the end make whole blocks, and are never larger in magnitude than what is there.
    B = torch.nn.functional.pad(B, (0, -B.shape[1] % column_size))
    at_once = max(1, max_bytes // (2 * B.shape[1] * B.element_size()))  # rows: a product, and room for its extremes
    whole_blocks = at_once // row_size * row_size
    extremes = []
    for part in A.split(whole_blocks or row_size):
        most, least = None, None
        for rows in part.split(whole_blocks or at_once):
            high, low = _row_block_extremes(rows, B, min(row_size, whole_blocks or len(rows)), column_size)
            most = high if most is None else torch.maximum(most, high)
            least = low if least is None else torch.minimum(least, low)
        assert most is not None and least is not None
        extremes.append(torch.where(most >= -least, most, least))
    return torch.cat(extremes)


def _row_block_extremes(rows: Tensor, B: Tensor, row_size: int, column_size: int) -> tuple[Tensor, Tensor]:
    rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % row_size))
    blocks = (rows @ B).unflatten(1, (-1, column_size)).unflatten(0, (-1, row_size))
    return blocks.amax((1, 3)), blocks.amin((1, 3))


def _block_means(rows: Tensor, size: int) -> Tensor:
    """The mean of every `size` rows, in float64, `[block, inner]`."""
    return torch.stack([part.cpu().double().mean(0) for part in rows.split(size)])
