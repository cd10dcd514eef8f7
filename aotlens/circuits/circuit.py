"""A head's circuit: a factored matrix that knows what its rows, columns and numbers are; its entries as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from aotlens.circuits.factored import FactoredMatrix
from aotlens.conventions import Head, head_name
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

SideName = Literal["tokens", "positions", "bias", "residual", "prompt", "head", "logits"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """The meaning of a circuit's rows (or columns).

    `name` is what was asked for. `index` says what row i is: `"token"` i of the vocabulary, `"position"` i, the one
    `"bias"`, `"direction"` i of the residual stream, or `"class"` i of a classifier. `through` names the other head
    whose output (as a query, key or value) or input (as an output) this side is. `undivided` marks positions that a
    norm divides by a scale which is not known here: they are divided by 1, and cannot be compared with tokens. A part
    of a circuit names in `ids` the rows that it has; None means all of them, in order.
    """

    name: SideName
    index: Literal["token", "position", "bias", "direction", "class"]
    through: Head | None = None
    undivided: bool = False
    ids: tuple[int, ...] | None = None

    def ids_of(self, places: Sequence[int]) -> list[int]:
        """Return the token ids, positions, directions or classes at these places."""
        return list(places) if self.ids is None else [self.ids[place] for place in places]

    def __str__(self) -> str:
        name = self.name if self.through is None else f"{self.index}s through {self.through[0]}.{self.through[1]}"
        return f"{name}, undivided" if self.undivided else name


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
        columns = {"row": self.row_labels, "column": self.column_labels, "row_id": self.rows, "column_id": self.columns}
        return data_frame({**columns, self.unit: self.values})


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
    """Return tokens as their strings (`<unused 4097>` beyond the tokenizer's vocabulary), other things as `position
    3`."""
    if side.index == "token" and tokenizer is not None:
        texts = iter(tokenizer.str_tokens([number for number in ids if number < tokenizer.d_vocab]))
        return tuple(next(texts) if number < tokenizer.d_vocab else f"<unused {number}>" for number in ids)
    return tuple("bias" if side.index == "bias" else f"{side.index} {number}" for number in ids)


Kind = Literal["qk", "ov"]
SideOf = Literal["left", "right"]

#: The roles of rows and columns in each kind of circuit.
ROLES: dict[Kind, tuple[str, str]] = {"qk": ("destination", "source"), "ov": ("source", "output")}


class Circuit(FactoredMatrix):
    """A `[rows, columns]` matrix A @ B of one head (or a sum of heads), never formed unless `.AB` asks for it.

    QK circuits are `[destination, source]` in nats, OV circuits `[source, out]` in logits, or in units of the residual
    stream where `right="residual"`; `unit` says which. `exact` says that an entry is that very term of the model's own
    score or logit, patterns given, up to rounding in the model's dtype; where it is not, `relative` says why, in a
    sentence for each of `reasons`. `psd_because` is not empty where the circuit is, by the model's construction,
    similar to a positive semidefinite matrix.

    `circuit[rows, columns]` is a part of it that keeps its unit, its names and `exact`. `top()`, `row(" the")` and
    `column(" the")` are tables of entries with the names of their rows and columns.
    """

    def __init__(
        self,
        A: Float[Tensor, "rows inner"],
        B: Float[Tensor, "inner columns"],
        *,
        kind: Kind,
        heads: Sequence[Head],
        left: Side,
        right: Side,
        reasons: Iterable[str] = (),
        psd_because: str = "",
        unit: str | None = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(A, B)
        self.kind: Kind = kind
        self.heads = tuple(heads)
        self.left, self.right = left, right
        self.reasons = tuple(dict.fromkeys(reasons))
        self.psd_because = psd_because
        if unit is None:
            unit = "nats" if kind == "qk" else "residual stream" if right.name == "residual" else "logits"
        self.unit = unit
        self.tokenizer = tokenizer

    @property
    def relative(self) -> str:
        """The reasons why entries are not the model's own terms, one sentence a reason; empty where they are."""
        return " ".join(self.reasons)

    @property
    def exact(self) -> bool:
        """Whether entries are terms of the model's own scores or logits, on any input."""
        return not self.reasons

    def _of(self, A: Tensor, B: Tensor, **changes: Any) -> Circuit:
        """The circuit with other factors, and with these fields changed."""
        names = ("kind", "heads", "left", "right", "reasons", "psd_because", "unit", "tokenizer")
        return Circuit(A, B, **({name: getattr(self, name) for name in names} | changes))

    def with_factors(self, A: Tensor, B: Tensor, reasons: Iterable[str] = ()) -> Circuit:
        """Return a circuit with the same sides and other factors, and further reasons why it is not exact."""
        return self._of(A, B, reasons=(*self.reasons, *reasons), psd_because="")

    @property
    def quantity(self) -> str:
        """The unit as it stands behind a number: nats, logits, or residual-stream units."""
        return {"residual stream": "residual-stream units"}.get(self.unit, self.unit)

    def _side(self, side: SideOf) -> tuple[Side, int]:
        return (self.left, self.ldim) if side == "left" else (self.right, self.rdim)

    def role(self, side: SideOf) -> str:
        """Name the role of a row (left) or a column (right): `destination token`, `output token, through 1.2`."""
        lines, role = self._side(side)[0], ROLES[self.kind][0 if side == "left" else 1]
        if lines.index == "direction":
            return f"residual direction ({role})"
        through = "" if lines.through is None else f", through {head_name(lines.through)}"
        return f"{role} {lines.index}{through}"

    @property
    def T(self) -> Circuit:
        """The transpose, its sides exchanged."""
        return self._of(self.B.transpose(-2, -1), self.A.transpose(-2, -1), left=self.right, right=self.left)

    def __getitem__(self, index: Any) -> Any:
        """The rows, or rows and columns, of an index: integers, slices, masks, or lists and arrays of places."""
        part = super().__getitem__(index)
        indices = index if isinstance(index, tuple) else (index,)
        if part.ndim != 2 or any(item is None or item is Ellipsis for item in indices):
            return part  # not rows and columns any more: a plain factored matrix
        places = [item.cpu().numpy() if isinstance(item, Tensor) else item for item in (*indices, slice(None))[:2]]
        left, right = (
            replace(side, ids=tuple(side.ids_of(np.atleast_1d(np.arange(n)[place]).tolist())))
            for side, n, place in zip((self.left, self.right), self.shape, places, strict=True)
        )
        return self._of(part.A, part.B, left=left, right=self.right if len(indices) == 1 else right, psd_because="")

    def labels(self, side: SideOf) -> tuple[str, ...]:
        """Label each row (left) or column (right): tokens as their strings, other things as `position 3`."""
        return self.lines(side, range(self._side(side)[1])).labels

    def lines(self, side: SideOf, places: Sequence[int]) -> Lines:
        """Return the rows (left) or columns (right) at these places, by name."""
        of, n = self._side(side)
        ids, are_texts = of.ids_of(places), of.index == "token" and self.tokenizer is not None
        arrays = {"places": np.asarray(places, dtype=np.int64), "ids": np.asarray(ids, dtype=np.int64)}
        names = labels(of, ids, self.tokenizer)
        return Lines(role=self.role(side), of=of.index, n=n, labels=names, are_texts=are_texts, **arrays)

    def place(self, side: SideOf, which: int | str) -> int:
        """Return the index of a row (left) or column (right) by its text or id. Raises `ValueError` if it does not
        exist."""
        of, n = self._side(side)
        number = which
        if isinstance(which, str):
            if of.index != "token" or self.tokenizer is None:
                what = "there is no tokenizer" if of.index == "token" else f"this side has a line a {of.index}"
                raise ValueError(f"{which!r}: {what}; give a number.")
            pieces = self.tokenizer.encode(which)
            if len(pieces) != 1:
                listed = ", ".join(map(repr, self.tokenizer.str_tokens(pieces)))
                raise ValueError(f"{which!r}: expected one token, got {len(pieces)} ({listed}).")
            number = pieces[0]
        ids = range(n) if of.ids is None else of.ids
        if number not in ids:
            raise ValueError(f"{which!r}: expected a {of.index} of this circuit ({n:,} of them), got {number}.")
        return ids.index(int(number))

    def entry_fields(self, rows: Sequence[int], columns: Sequence[int]) -> dict[str, Any]:
        """Return what a `CircuitTable` says of the entries at these places besides their values."""
        left, right = self.lines("left", rows), self.lines("right", columns)
        return {
            "circuit": repr(self),
            "unit": self.unit,
            "exact": self.exact,
            "relative": self.relative,
            "rows": left.ids,
            "columns": right.ids,
            "row_labels": left.labels,
            "column_labels": right.labels,
        }

    def top(self, k: int = 20, *, largest: bool = True) -> CircuitTable:
        """Return the k largest (or smallest) entries of the whole circuit, or all if they are fewer, with their
        names."""
        from aotlens.circuits.topk import top_entries

        best = top_entries(self, min(k, self.ldim * self.rdim), largest)
        return CircuitTable(**self.entry_fields(best.rows.tolist(), best.columns.tolist()), values=best.values.numpy())

    def row(self, which: int | str, k: int | None = 20, *, largest: bool = True) -> CircuitTable:
        """Return the k largest (or smallest) entries of one row, or all of them; `which` is a token's text or id, a
        position, a direction or a class. Raises `ValueError` for one that the circuit does not have."""
        place = self.place("left", which)
        values, columns = _largest(double(self.A)[place] @ double(self.B), k, largest)
        return CircuitTable(**self.entry_fields([place] * len(columns), columns), values=values)

    def column(self, which: int | str, k: int | None = 20, *, largest: bool = True) -> CircuitTable:
        """Return a column as a labelled table, as `row` gives a row."""
        place = self.place("right", which)
        values, rows = _largest(double(self.A) @ double(self.B)[:, place], k, largest)
        return CircuitTable(**self.entry_fields(rows, [place] * len(rows)), values=values)

    def entries(self, rows: Int[Tensor, " n"], columns: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return single entries, (rows[i], columns[i]) each, as float64 dot products on the CPU."""
        left = self.A.detach()[rows.to(self.A.device)].cpu().double()
        right = self.B.detach()[:, columns.to(self.B.device)].cpu().double()
        return (left * right.T).sum(-1)

    def __repr__(self) -> str:
        heads = "+".join(map(head_name, self.heads))
        sides = f"{self.left} [{self.ldim}] × {self.right} [{self.rdim}]"
        return f"{self.kind.upper()} circuit of {heads}: {sides}, {self.unit}, {'exact' if self.exact else 'relative'}"


def _largest(values: Float64[Tensor, " entry"], k: int | None, largest: bool) -> tuple[np.ndarray, list[int]]:
    """The k largest (or smallest) values of a line, or all of them, and their places."""
    if k is not None and k < 1:
        raise ValueError(f"k={k}: expected at least one entry, or None for all of them.")
    order = torch.sort(values, descending=largest, stable=True).indices[:k]
    return values[order].numpy(), order.tolist()


def sum_of_circuits(circuits: Sequence[Circuit]) -> Circuit:
    """Return the sum of circuits with the same kind and sides, factored along the joined inner dimension.

    Two heads that copy together are one circuit of inner dimension 2·d_head. Raises `ValueError` for none, or for
    circuits whose kind, sides or shapes differ.
    """
    if not circuits:
        raise ValueError("sum_of_circuits: expected at least one circuit, got none.")
    first = circuits[0]
    for other in circuits[1:]:
        mine, theirs = ((c.kind, c.left, c.right, tuple(c.shape)) for c in (first, other))
        if mine != theirs:
            raise ValueError(
                f"sum_of_circuits: expected circuits with the same kind and sides, got {first} and {other}."
            )
    because = {c.psd_because for c in circuits}
    return first._of(
        torch.cat([c.A for c in circuits], dim=1),
        torch.cat([c.B for c in circuits], dim=0),
        heads=[head for c in circuits for head in c.heads],
        reasons=[reason for c in circuits for reason in c.reasons],
        # A sum of such circuits is one only if all are similar to positive matrices in one and the same basis.
        psd_because=because.pop() if len(because) == 1 else "",
    )
