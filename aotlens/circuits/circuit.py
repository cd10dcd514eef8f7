"""A head's circuit: a factored matrix that knows what its rows, columns and numbers are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.labelled import CircuitTable, Lines, labels, place_of
from aotlens.circuits.side import Side
from aotlens.conventions import Head, head_name
from aotlens.models.weights import double

Kind = Literal["qk", "ov"]

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

    def with_factors(self, A: Tensor, B: Tensor, reasons: Iterable[str] = ()) -> Circuit:
        """Return a circuit with the same sides and other factors, and further reasons why it is not exact."""
        return Circuit(
            A,
            B,
            kind=self.kind,
            heads=self.heads,
            left=self.left,
            right=self.right,
            reasons=(*self.reasons, *reasons),
            unit=self.unit,
            tokenizer=self.tokenizer,
        )

    @property
    def quantity(self) -> str:
        """The unit as it stands behind a number: nats, logits, or residual-stream units."""
        return {"residual stream": "residual-stream units"}.get(self.unit, self.unit)

    def role(self, side: Literal["left", "right"]) -> str:
        """Name the role of a row (left) or a column (right): `destination token`, `output token, through 1.2`."""
        chosen = self.left if side == "left" else self.right
        role = ROLES[self.kind][0 if side == "left" else 1]
        if chosen.index == "direction":
            return f"residual direction ({role})"
        through = "" if chosen.through is None else f", through {chosen.through[0]}.{chosen.through[1]}"
        return f"{role} {chosen.index}{through}"

    @property
    def T(self) -> Circuit:
        """The transpose, its sides exchanged."""
        return Circuit(
            self.B.transpose(-2, -1),
            self.A.transpose(-2, -1),
            kind=self.kind,
            heads=self.heads,
            left=self.right,
            right=self.left,
            reasons=self.reasons,
            psd_because=self.psd_because,
            unit=self.unit,
            tokenizer=self.tokenizer,
        )

    def __getitem__(self, index: Any) -> Any:
        """The rows, or rows and columns, of an index: integers, slices, masks, or lists and arrays of places."""
        part = super().__getitem__(index)
        indices = index if isinstance(index, tuple) else (index,)
        if part.ndim != 2 or any(each is None or each is Ellipsis for each in indices):
            return part  # not rows and columns any more: a plain factored matrix
        sides = [
            replace(side, ids=tuple(side.ids_of(np.atleast_1d(np.arange(n)[_as_numpy(each)]).tolist())))
            for side, n, each in zip((self.left, self.right), self.shape, (*indices, slice(None))[:2], strict=True)
        ]
        return Circuit(
            part.A,
            part.B,
            kind=self.kind,
            heads=self.heads,
            left=sides[0],
            right=self.right if len(indices) == 1 else sides[1],
            reasons=self.reasons,
            unit=self.unit,
            tokenizer=self.tokenizer,
        )

    def labels(self, side: Literal["left", "right"]) -> tuple[str, ...]:
        """Label each row (left) or column (right): tokens as their strings, other things as `position 3`."""
        chosen, n = (self.left, self.ldim) if side == "left" else (self.right, self.rdim)
        return labels(chosen, chosen.ids_of(range(n)), self.tokenizer)

    def lines(self, side: Literal["left", "right"], places: Sequence[int]) -> Lines:
        """Return the rows (left) or columns (right) at these places, by name."""
        chosen, n = (self.left, self.ldim) if side == "left" else (self.right, self.rdim)
        ids = chosen.ids_of(places)
        return Lines(
            role=self.role(side),
            of=chosen.index,
            n=n,
            places=np.asarray(places, dtype=np.int64),
            ids=np.asarray(ids, dtype=np.int64),
            labels=labels(chosen, ids, self.tokenizer),
            are_texts=chosen.index == "token" and self.tokenizer is not None,
        )

    def top(self, k: int = 20, *, largest: bool = True) -> CircuitTable:
        """Return the k largest (or smallest) entries of the whole circuit, as `top_entries` finds them, with their
        names; all of them where there are no more than k."""
        from aotlens.circuits.topk import top_entries

        best = top_entries(self, min(k, self.ldim * self.rdim), largest)
        return entries_table(self, best.rows.tolist(), best.columns.tolist(), best.values.numpy())

    def row(self, which: int | str, k: int | None = 20, *, largest: bool = True) -> CircuitTable:
        """Return the k largest (or smallest) entries of one row, or all of them; `which` is a token's text or id, a
        position, a direction or a class. Raises `ValueError` for one that the circuit does not have."""
        return line_table(self, which, k, largest, column=False)

    def column(self, which: int | str, k: int | None = 20, *, largest: bool = True) -> CircuitTable:
        """Return a column as a labelled table, as `row` gives a row."""
        return line_table(self, which, k, largest, column=True)

    def entries(self, rows: Int[Tensor, " n"], columns: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return single entries, (rows[i], columns[i]) each, as float64 dot products on the CPU."""
        left = self.A.detach()[rows.to(self.A.device)].cpu().double()
        right = self.B.detach()[:, columns.to(self.B.device)].cpu().double()
        return (left * right.T).sum(-1)

    def __repr__(self) -> str:
        heads = "+".join(map(head_name, self.heads))
        sides = f"{self.left} [{self.ldim}] × {self.right} [{self.rdim}]"
        return f"{self.kind.upper()} circuit of {heads}: {sides}, {self.unit}, {'exact' if self.exact else 'relative'}"


def _as_numpy(index: Any) -> Any:
    return index.cpu().numpy() if isinstance(index, Tensor) else index


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
    return Circuit(
        torch.cat([c.A for c in circuits], dim=1),
        torch.cat([c.B for c in circuits], dim=0),
        kind=first.kind,
        heads=[head for c in circuits for head in c.heads],
        left=first.left,
        right=first.right,
        reasons=[reason for c in circuits for reason in c.reasons],
        unit=first.unit,
        tokenizer=first.tokenizer,
        # A sum of such circuits is one only if all are similar to positive matrices in one and the same basis.
        psd_because=because.pop() if len(because) == 1 else "",
    )


def entries_table(
    circuit: Circuit, rows: Sequence[int], columns: Sequence[int], values: Float64[np.ndarray, " entry"]
) -> CircuitTable:
    """Return the entries at these places of the circuit, with the names of what stands there."""
    ids = [side.ids_of(places) for side, places in ((circuit.left, rows), (circuit.right, columns))]
    return CircuitTable(
        circuit=repr(circuit),
        unit=circuit.unit,
        exact=circuit.exact,
        relative=circuit.relative,
        rows=np.asarray(ids[0], dtype=np.int64),
        columns=np.asarray(ids[1], dtype=np.int64),
        row_labels=labels(circuit.left, ids[0], circuit.tokenizer),
        column_labels=labels(circuit.right, ids[1], circuit.tokenizer),
        values=values,
    )


def line_table(circuit: Circuit, which: int | str, k: int | None, largest: bool, *, column: bool) -> CircuitTable:
    """Return the k largest (or smallest) entries of one row or column, or all of them; float64 dot products."""
    side, n = (circuit.right, circuit.shape[1]) if column else (circuit.left, circuit.shape[0])
    place = place_of(side, which, n, circuit.tokenizer)
    A, B = (double(factor) for factor in (circuit.A, circuit.B))
    values = A @ B[:, place] if column else A[place] @ B
    if k is not None and k < 1:
        raise ValueError(f"k={k}: expected at least one entry, or None for all of them.")
    order = torch.sort(values, descending=largest, stable=True).indices[:k]
    others, same = order.tolist(), [place] * len(order)
    rows, columns = (others, same) if column else (same, others)
    return entries_table(circuit, rows, columns, values[order].numpy())
