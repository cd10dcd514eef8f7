"""Entries of a circuit as a table: what its rows and columns are by name, beside the numbers and their unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.circuits.side import Side


@dataclass(frozen=True, kw_only=True, eq=False)
class CircuitTable(Result):
    """Entries of one circuit, in the order asked for."""

    circuit: str
    """The name of the circuit, in a line."""
    unit: str
    exact: bool
    """Whether an entry is a term of the model's own scores or logits, on any input; `relative` says why not."""
    relative: str
    rows: Int64[np.ndarray, " entry"]
    """The identity of each row: a token id, a position, a direction or a class."""
    columns: Int64[np.ndarray, " entry"]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    values: Float64[np.ndarray, " entry"]

    @property
    def headline(self) -> str:
        if not len(self.values):
            return "no entries"
        return f"[{self.row_labels[0]}] × [{self.column_labels[0]}] first, {self.values[0]:+.4g} {self.unit}"

    def __len__(self) -> int:
        return len(self.values)

    def to_frame(self) -> pd.DataFrame:
        """Return one row an entry: row, column, row_id, column_id, and the value under the name of its unit."""
        import pandas as pd

        columns = {"row": self.row_labels, "column": self.column_labels, "row_id": self.rows, "column_id": self.columns}
        return pd.DataFrame({**columns, self.unit: self.values})


@dataclass(frozen=True, kw_only=True, eq=False)
class Lines(Result):
    """Some rows, or some columns, of a circuit."""

    role: str
    """The role of each of them: `destination token`, `source position`, `output token, through 1.2`."""
    of: str
    """`token`, `position`, `bias`, `direction` or `class`."""
    n: int
    """The number of rows (or columns) of the circuit."""
    places: Int64[np.ndarray, " line"]
    """The indices of the lines among the circuit's rows (or columns)."""
    ids: Int64[np.ndarray, " line"]
    """Token ids, positions, directions or classes: the places, unless the circuit is a part of another."""
    labels: tuple[str, ...]
    """Tokens as their strings, other things as `position 3`."""
    are_texts: bool
    """Whether the labels are strings of tokens."""

    @property
    def plural(self) -> str:
        """tokens, positions, biases, directions or classes."""
        return {"bias": "biases", "class": "classes"}.get(self.of, f"{self.of}s")


def labels(side: Side, ids: Sequence[int], tokenizer: Any) -> tuple[str, ...]:
    """Return tokens as their strings, where there is a tokenizer, `<unused 4097>` for ids beyond its vocabulary, with
    which a model's may be padded; other things as `position 3`."""
    if side.index == "token" and tokenizer is not None:
        known = [number for number in ids if number < tokenizer.d_vocab]
        texts = iter(tokenizer.str_tokens(known))
        return tuple(next(texts) if number < tokenizer.d_vocab else f"<unused {number}>" for number in ids)
    return tuple("bias" if side.index == "bias" else f"{side.index} {number}" for number in ids)


def place_of(side: Side, which: int | str, n: int, tokenizer: Any) -> int:
    """Return the index of a token's, position's, direction's or class's row or column; `ValueError` if it has none."""
    number = which
    if isinstance(which, str):
        if side.index != "token" or tokenizer is None:
            what = "there is no tokenizer" if side.index == "token" else f"this side has a line a {side.index}"
            raise ValueError(f"{which!r}: {what}; give a number.")
        pieces = tokenizer.encode(which)
        if len(pieces) != 1:
            listed = ", ".join(map(repr, tokenizer.str_tokens(pieces)))
            raise ValueError(f"{which!r}: expected one token, got {len(pieces)} ({listed}).")
        number = pieces[0]
    ids = range(n) if side.ids is None else side.ids
    if number not in ids:
        raise ValueError(f"{which!r}: expected a {side.index} of this circuit ({n:,} of them), got {number}.")
    return ids.index(int(number))
