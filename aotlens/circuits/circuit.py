"""A head's circuit: a factored matrix that knows what its rows, columns and numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import FactoredMatrix

from aotlens.conventions import Head

Kind = Literal["qk", "ov"]
SideName = Literal["tokens", "positions", "bias", "residual", "prompt", "head", "logits"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """What the rows (or columns) of a circuit stand for.

    `name` is what was asked for. `index` says what row i is: `"token"` i of the vocabulary, `"position"` i, the one
    `"bias"`, `"direction"` i of the residual stream, or `"class"` i of a classifier. `through` names the other head
    whose output (as a query, key or value) or input (as an output) this side is.
    """

    name: SideName
    index: Literal["token", "position", "bias", "direction", "class"]
    through: Head | None = None

    def __str__(self) -> str:
        return self.name if self.through is None else f"{self.index}s through {self.through[0]}.{self.through[1]}"


class Circuit(FactoredMatrix):
    """A `[rows, columns]` matrix A @ B of one head (or a sum of heads), never formed unless `.AB` asks for it.

    QK circuits are `[destination, source]` in nats, OV circuits `[source, out]` in logits, or in units of the residual
    stream where `right="residual"`; `unit` says which. `exact` says that an entry is that very term of the model's own
    score or logit, patterns given, up to rounding in the model's dtype; where it is not, `relative` says why in a
    sentence. `psd_because` is not empty where the circuit is, by the model's construction, similar to a positive
    semidefinite matrix.
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
        relative: str = "",
        psd_because: str = "",
        unit: str | None = None,
    ) -> None:
        super().__init__(A, B)
        self.kind: Kind = kind
        self.heads = tuple(heads)
        self.left, self.right = left, right
        self.relative = relative
        self.psd_because = psd_because
        if unit is None:
            unit = "nats" if kind == "qk" else "residual stream" if right.name == "residual" else "logits"
        self.unit = unit

    @property
    def exact(self) -> bool:
        """Whether entries are terms of the model's own scores or logits, on any input."""
        return not self.relative

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
            relative=self.relative,
            psd_because=self.psd_because,
            unit=self.unit,
        )

    def entries(self, rows: Int[Tensor, " n"], columns: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Single entries, (rows[i], columns[i]) each, as float64 dot products on the CPU."""
        left = self.A.detach()[rows.to(self.A.device)].cpu().double()
        right = self.B.detach()[:, columns.to(self.B.device)].cpu().double()
        return (left * right.T).sum(-1)

    def __repr__(self) -> str:
        heads = "+".join(f"{layer}.{head}" for layer, head in self.heads)
        sides = f"{self.left} [{self.ldim}] × {self.right} [{self.rdim}]"
        return f"{self.kind.upper()} circuit of {heads}: {sides}, {self.unit}, {'exact' if self.exact else 'relative'}"


def sum_of_circuits(circuits: Sequence[Circuit]) -> Circuit:
    """Σ of circuits with the same kind and sides, factored along the joined inner dimension.

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
        relative=next((c.relative for c in circuits if c.relative), ""),
        # A sum of such circuits is one only if all are similar to positive matrices in one and the same basis.
        psd_because=because.pop() if len(because) == 1 else "",
    )
