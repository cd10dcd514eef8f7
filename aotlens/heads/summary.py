"""A selection from an atlas: the heads that a search finds, one head closely, and the tokens that its circuits
favour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.circuits import ov_circuit, qk_circuit, strongest_rows
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.data.windows import spread
from aotlens.heads.atlas import Atlas
from aotlens.heads.examples import HeadExample
from aotlens.heads.head_search import rows_where
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


#: Heads that are listed in each direction, those most beyond chance.
N_PARTNERS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class FoundHeads(Result):
    """All heads of an atlas, and which of them were searched for."""

    atlas: Atlas
    search: str
    found: Bool[np.ndarray, " head"]
    """Whether the search finds each head, in order."""

    @property
    def headline(self) -> str:
        n, total = int(self.found.sum()), len(self.found)
        heads = "head" if total == 1 else "heads"
        return f"{total} {heads}" if n == total else f"{n} of {total} {heads}"

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of the atlas's table that are found."""
        return self.atlas.to_frame()[self.found]


def find_heads(atlas: Atlas, search: str = "") -> FoundHeads:
    """Find the heads that `search` finds, as `induction_random > 0.4 and layer = 1` or `previous token`; all for none.

    `aotlens.heads.head_search` says what can be written. Raises `ValueError` for what cannot be read.
    """
    try:
        return FoundHeads(atlas=atlas, search=search, found=rows_where(atlas.to_frame(), search))
    except ValueError as error:
        raise ValueError(f"Heads where {error}") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadSummary(Result):
    """One head of an atlas, and of which tenth of its attention away from key 0 examples are given."""

    atlas: Atlas
    head: Head
    bin: int
    strings: tuple[tuple[str, ...], ...] = ()
    """The tokens of each example's sequence, as texts; empty if no model was given."""
    prompts: tuple[str, ...] = ()
    """A prompt for each example that the model reads as the tokens up to the one after the query; empty if there is
    none, as for a sequence that begins within a character."""

    @property
    def name(self) -> str:
        """The head's name."""
        return f"{self.head[0]}.{self.head[1]}"

    @property
    def headline(self) -> str:
        return self.atlas.sentence(self.head)

    @property
    def counts(self) -> list[int]:
        """The number of queries that attend so much away from key 0, by tenths."""
        return [int(count) for count in self.atlas.examples.counts[self.head]]

    @property
    def examples(self) -> tuple[HeadExample, ...]:
        """The queries of that bin that were kept, those that attend away most first."""
        return self.atlas.examples.of(self.head, self.bin)

    @property
    def examples_headline(self) -> str:
        """The queries that the examples are of, and how many there are."""
        counts = self.counts
        total, upper = sum(counts), "1" if self.bin == len(counts) - 1 else f"{(self.bin + 1) / 10:.1f}"
        share = counts[self.bin] / total if total else 0.0
        return (
            f"{counts[self.bin]:,} of {total:,} queries ({share:.1%}) have {self.bin / 10:.1f} to {upper} of their "
            "attention away from the start token."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a motif, as `MotifScores.chance_frame`."""
        return self._own(self.atlas.motifs.chance_frame())

    def example_frame(self) -> pd.DataFrame:
        """Return one row per example of the bin, as `HeadExamples.to_frame`."""
        frame = self._own(self.atlas.examples.to_frame())
        return frame[frame["bin"] == self.bin].reset_index(drop=True)

    def partner_frame(self) -> pd.DataFrame:
        """Return one row a head that it reads or feeds: relation, layer, head, mode, composition, z."""
        import pandas as pd

        relations = {"reads": self.atlas.reads(self.head, N_PARTNERS), "feeds": self.atlas.feeds(self.head, N_PARTNERS)}
        return pd.DataFrame(
            [
                (relation, *partner.head, partner.mode, partner.value, partner.z)
                for relation, partners in relations.items()
                for partner in partners
            ],
            columns=["relation", "layer", "head", "mode", "composition", "z"],
        )

    def loss_frame(self) -> pd.DataFrame:
        """Return one row a kind of replacement: how, change, low, high (the interval of the change), together (the
        change with all heads replaced), clean (the loss with none), n (windows); nats a token."""
        import pandas as pd

        records = []
        for how, each in self.atlas.ablations.items():
            place, together = each.heads.index(self.head), self.atlas.together[how]
            low, high = each.intervals()[place]
            records.append((how, each.changes[place], low, high, together.change, together.clean_mean, len(each.clean)))
        return pd.DataFrame(records, columns=["how", "change", "low", "high", "together", "clean", "n"])

    def _own(self, frame: pd.DataFrame) -> pd.DataFrame:
        layer, head = self.head
        return frame[(frame["layer"] == layer) & (frame["head"] == head)].reset_index(drop=True)


def head_summary(
    atlas: Atlas, head: HeadLike, bin: int | None = None, *, model: AttentionOnlyTransformer | None = None
) -> HeadSummary:
    """Summarise a head, with examples of a `bin`, 0 to 9, of its attention away from key 0; by default, or if that bin
    is empty, of the highest bin that has some. With the `model`, examples have their texts.

    Raises `ValueError` for a head that the atlas does not have.
    """
    if model is not None:
        require_ours(model, "head_summary")
    head = as_head(head, atlas.examples.counts.shape[:2])
    counts = atlas.examples.counts[head]
    if bin is None or not 0 <= bin < len(counts) or not counts[bin]:
        bin = max((place for place, count in enumerate(counts) if count), default=0)
    summary = HeadSummary(atlas=atlas, head=head, bin=bin)
    if model is None:
        return summary
    ids = [atlas.examples.tokens[example.sequence].tolist() for example in summary.examples]
    strings = tuple(tuple(_texts(model, row)) for row in ids)
    ends = [example.query + 2 for example in summary.examples]
    prompts = tuple(_prompt(model, row[:end]) for row, end in zip(ids, ends, strict=True))
    return replace(summary, strings=strings, prompts=prompts)


def _texts(model: AttentionOnlyTransformer, ids: list[int]) -> list[str]:
    return list(map(str, ids)) if model.tokenizer is None else model.to_str_tokens(ids)


def _prompt(model: AttentionOnlyTransformer, ids: list[int]) -> str:
    """Return the text that a model reads as these tokens; empty if there is none. Some sequences begin within a
    character of several bytes, or with a space that a tokenizer merges."""
    text = "".join(_texts(model, ids)[1:])
    return text if model.tokenizer is not None and model.to_tokens(text)[0].tolist() == ids else ""


def ablated_tokens(atlas: Atlas) -> Int64[Tensor, "sequence pos"]:
    """Return the windows of an atlas on which heads were left out. Raises `ValueError` for one without ablations, and
    for one of sequences of several lengths."""
    if atlas.lengths is not None:
        raise ValueError(f"the atlas of {atlas.model} is of sequences of several lengths, which were padded.")
    if not atlas.ablations:
        reason = atlas.missing.get("ablations", "it was made with hows=()")
        raise ValueError(f"the atlas of {atlas.model} has no ablations: {reason}.")
    tokens = torch.as_tensor(atlas.examples.tokens)
    return tokens[spread(len(tokens), len(next(iter(atlas.ablations.values())).clean))]


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
        return ". ".join(circuit.headline for circuit in self.circuits)

    def to_frame(self) -> pd.DataFrame:
        """Return the tables of all circuits, one below the other."""
        import pandas as pd

        return pd.concat([circuit.to_frame() for circuit in self.circuits], ignore_index=True)


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
    head = as_head(head, model.cfg)
    circuits = []
    if model.cfg.has_query_key:
        circuits.append(_rows(model, head, "qk", None, ""))
        for mode in ("k", "q"):
            partner = next((other for other in atlas.reads(head, 99) if other.mode == mode), None)
            if partner is not None and partner.z >= LEAST_Z:
                circuits.append(_rows(model, head, "qk", partner.head, mode))
                break
    circuits.append(_rows(model, head, "ov", None, ""))
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
