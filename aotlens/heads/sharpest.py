"""The tokens that a head looks for and writes: the rows that its circuits are sharpest about, in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float64

from aotlens.circuits import ov_circuit, qk_circuit, strongest_rows
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.heads.atlas import Atlas
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

#: The least number of standard deviations above flipped signs for a head's circuit to be read through another one.
LEAST_Z = 3.0
#: Tokens whose rows are looked through: the most frequent ones of the training text.
N_FREQUENT = 512
#: Rows of a circuit that are listed.
N_ROWS = 5
MODES = {"q": "queries", "k": "keys", "v": "values"}


@dataclass(frozen=True, kw_only=True, eq=False)
class SharpestRows(Result):
    """Rows of one circuit of a head, the sharpest first, and the largest entries of each."""

    head: Head
    kind: str
    """`qk` or `ov`."""
    through: Head | None
    """The earlier head whose output stands on one side of a QK circuit."""
    mode: str
    """`q` or `k`: on which side; empty where there is none."""
    rows: tuple[str, ...]
    entries: tuple[tuple[str, ...], ...]
    """The tokens of the largest entries, by row."""
    values: Float64[np.ndarray, "row entry"]
    """The values of the entries, above the row's level (`aotlens.circuits.StrongestRows.relative`)."""

    @property
    def title(self) -> str:
        """The name of the circuit."""
        if self.kind == "ov":
            return "Writes: source → next tokens"
        if self.through is None:
            return "Looks for: query → keys"
        return f"Looks for, {MODES[self.mode]} through {self.through[0]}.{self.through[1]}"

    @property
    def unit(self) -> str:
        """The unit of the values."""
        return "nats" if self.kind == "qk" else "logits"

    @property
    def headline(self) -> str:
        return f"{self.title}; {self.rows[0]!r} → {self.entries[0][0]!r} ({self.values[0, 0]:.1f} {self.unit})"

    def to_frame(self) -> pd.DataFrame:
        """Return one row an entry: circuit, row, entry, above_row."""
        import pandas as pd

        records = [
            (self.title, row, entry, float(value))
            for row, entries, values in zip(self.rows, self.entries, self.values, strict=True)
            for entry, value in zip(entries, values, strict=True)
        ]
        return pd.DataFrame(records, columns=["circuit", "row", "entry", "above_row"])


@dataclass(frozen=True, kw_only=True, eq=False)
class SharpestCircuits(Result):
    """The tokens that a head looks for, by itself and through a head that it reads, and those that it writes."""

    circuits: tuple[SharpestRows, ...]

    @property
    def headline(self) -> str:
        return ". ".join(each.headline for each in self.circuits)

    def to_frame(self) -> pd.DataFrame:
        """Return the tables of all circuits, one below the other."""
        import pandas as pd

        return pd.concat([each.to_frame() for each in self.circuits], ignore_index=True)


@torch.no_grad()
def sharpest_circuits(model: AttentionOnlyTransformer, atlas: Atlas, head: HeadLike) -> SharpestCircuits:
    """Find, of a head's full circuits, the five rows whose largest entries stand out most, each with three entries.

    Its QK circuit, where the model has queries and keys; the same with keys, or else queries, through the head that
    they read most, where that is `LEAST_Z` above flipped signs in the `atlas`; and its OV circuit. Rows are those of
    the 512 most frequent tokens of the training text, of the first ones where their counts are not known. Cost as
    `strongest_rows`.

    Raises `ValueError` where the model has no circuits of tokens or no tokenizer.
    """
    require_ours(model, "sharpest_circuits")
    if "circuits" in atlas.missing:
        raise ValueError(f"This model has no circuits of tokens: {atlas.missing['circuits']}.")
    chosen = as_head(head, model.cfg)
    circuits = []
    if model.cfg.has_query_key:
        circuits.append(_rows(model, chosen, "qk", None, ""))
        for mode in ("k", "q"):
            partner = next((each for each in atlas.reads(chosen, 99) if each.mode == mode), None)
            if partner is not None and partner.z >= LEAST_Z:
                circuits.append(_rows(model, chosen, "qk", partner.head, mode))
                break
    circuits.append(_rows(model, chosen, "ov", None, ""))
    return SharpestCircuits(circuits=tuple(circuits))


def _rows(model: AttentionOnlyTransformer, head: Head, kind: str, through: Head | None, mode: str) -> SharpestRows:
    sides = ["tokens", "tokens" if kind == "qk" else "logits"]
    if through is not None:
        sides[mode == "k"] = f"{through[0]}.{through[1]}"
    circuit = (qk_circuit if kind == "qk" else ov_circuit)(model, head, *sides)
    counts = model.unigram_counts
    frequent = torch.arange(circuit.shape[0]) if counts is None else counts.argsort(descending=True).cpu()
    strongest = strongest_rows(circuit, frequent[:N_FREQUENT], n=N_ROWS)
    if model.tokenizer is None:
        raise ValueError("expected a model with a tokenizer, whose tokens have texts.")
    texts = model.tokenizer.str_tokens
    return SharpestRows(
        head=head, kind=kind, through=through, mode=mode, rows=tuple(texts(strongest.rows.tolist())),
        entries=tuple(tuple(texts(row)) for row in strongest.columns.tolist()),
        values=strongest.relative.cpu().double().numpy(),
    )  # fmt: skip
