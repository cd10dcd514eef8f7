"""Whether a table's rows are true: of the language, and of what the head does in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from aotlens.conventions import Progress, as_head
from aotlens.data.windows import WINDOWS_A_STRATUM
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.results import Result, data_frame
from aotlens.trigrams.counting import Counts, TrigramCounter
from aotlens.trigrams.measuring import Example, ExampleKeeper, HeadInText
from aotlens.trigrams.table import KINDS, TrigramTable, kinds
from aotlens.trigrams.text import Sequences, Text, windows
from aotlens.trigrams.verdict import CONFIRMED, NOT_CONFIRMED, TOO_RARE, Association, associate

if TYPE_CHECKING:
    import pandas as pd

_LOGITS_BYTES = 64 * 10**6


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence(Result):
    """A table's rows beside real text. NaN where source … destination never occurs."""

    table: TrigramTable
    n_tokens: int
    """Read, without the start token of each window."""
    counts: Counts
    n_documents: int
    """The number of documents that were read."""
    association: Association
    """The association within strata of 8 consecutive windows of a document."""
    by_document: Association
    """The association within whole documents, to be held beside it: its own false discovery rate, and too rare with
    fewer than 5 documents."""
    verdict: tuple[str, ...]
    """`confirmed`, `not confirmed` or `too rare`; the rule stands in `aotlens.trigrams.verdict`."""
    attention: Float64[np.ndarray, " rows"]
    """Mean over occurrences of the head's attention from the destination to the source (all its copies), 0 to 1."""
    direct_effect: Float64[np.ndarray, " rows"]
    """Mean of what this attention adds to the out's logit (above the mean over outs, final scale frozen), logits."""
    ablation_change: Float64[np.ndarray, " rows"]
    """Mean change of the out's log-probability when the head writes nothing, nats; below 0 where the head helps."""
    examples: tuple[Example, ...]
    """A few occurrences of every row, those that the out follows first."""

    @property
    def headline(self) -> str:
        of = f"of {len(self.verdict):,} rows the text decides {self.n_testable:,}"
        return f"{of}: {self.n_confirmed:,} confirmed, {self.n_testable - self.n_confirmed:,} not"

    @property
    def n_confirmed(self) -> int:
        return self.verdict.count(CONFIRMED)

    @property
    def n_testable(self) -> int:
        """Rows that are not too rare."""
        return len(self.verdict) - self.verdict.count(TOO_RARE)

    @property
    def assumption(self) -> str:
        """The assumptions of the verdicts about this text, and how many hold without them."""
        strata = f"stretches of {WINDOWS_A_STRATUM} windows are taken as independent of each other"
        if self.n_documents > 1:
            n = self.by_document.verdicts.count(CONFIRMED)
            return (
                f"Places are compared within stretches of one document; {strata}. With whole documents as stretches "
                f"{n or 'none'} of the {len(self.verdict):,} rows would be confirmed."
            )
        return (
            f"What was read is one document, so the verdicts speak of that document alone: {strata} although one "
            "document holds them all, and whole documents cannot be held beside them."
        )

    @property
    def share_confirmed(self) -> float:
        """Confirmed rows among all of the table, those that are too rare included."""
        return self.n_confirmed / max(len(self.verdict), 1)

    def summary(self) -> dict[str, int]:
        """Count the rows that have each verdict."""
        return {word: self.verdict.count(word) for word in (CONFIRMED, NOT_CONFIRMED, TOO_RARE)}

    def by_kind(self) -> pd.DataFrame:
        """Count the rows of each kind (`aotlens.trigrams.table`, the index) that have each verdict (the columns).

        Raises `ValueError` for a model without a tokenizer.
        """
        rows = list(zip(kinds(self.table), self.verdict, strict=True))
        verdicts = (CONFIRMED, NOT_CONFIRMED, TOO_RARE)
        return data_frame({word: [rows.count((kind, word)) for kind in KINDS] for word in verdicts}, index=KINDS)

    def to_frame(self) -> pd.DataFrame:
        """Return the table's columns, then counts, lifts and verdicts, and what the head does."""
        counts, lift = self.counts, self.association
        with np.errstate(divide="ignore", invalid="ignore"):
            after_pair = counts.pair_out / counts.pair
            after_destination = counts.destination_out / counts.destination
        columns = {
            "occurrences": counts.pair,
            "windows": counts.windows,
            "followed": counts.pair_out,
            "p_out_after_pair": after_pair,
            "p_out_after_destination": after_destination,
            "lift": lift.lift,
            "lift_within": lift.lift_within,
            "lift_within_low": lift.low,
            "lift_within_high": lift.high,
            "lifts_disagree": lift.lifts_disagree,
            "p_value": lift.p_value,
            "q_value": lift.q_value,
            "verdict": list(self.verdict),
            "lift_within_by_document": self.by_document.lift_within,
            "p_value_by_document": self.by_document.p_value,
            "q_value_by_document": self.by_document.q_value,
            "verdict_by_document": list(self.by_document.verdicts),
            "measured_attention": self.attention,
            "measured_effect": self.direct_effect,
            "ablation_change": self.ablation_change,
        }
        return self.table.to_frame().assign(**columns)


def evidence(
    model: AttentionOnlyTransformer,
    table: TrigramTable,
    corpus: Text | Sequences,
    *,
    attention_mask: Tensor | None = None,
    max_tokens: int | None = 1_000_000,
    documents: Collection[str] | None = None,
    n_examples: int = 3,
    run_model: bool = True,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Compare every row of `table` with text, or with a batch of sequences, in one pass.

    Text is cut into windows of the model's context, anew at each document. Sequences, a batch of ids `[sequence, pos]`
    (`attention_mask` says which are no padding) or a list of ids or texts, are a window and a document each, as the
    model reads them. For each row: how often source … destination
    occurs (the source anywhere before the destination, in the same window); how often the out follows, against how
    often it follows the destination anyway, pooled (`lift`) and within strata of 8 consecutive windows of a document
    (`lift_within`, with a 95% interval and a test, see `aotlens.trigrams.verdict`), and the same within whole
    documents; and, at those very positions, the head's attention to the source, what that adds to the out's logit
    directly, and the change of the out's log-probability without the head (z set to 0, as `aotlens.heads.ablate`).

    The direct effect is Σ over the source's copies of attention · (v − bias) · W_O · W_U[out], centred over outs and
    divided by the final norm's scale there: `effect` of the table, with the attention and scales of the text.

    `run_model=False` counts only: verdicts need no more, and what the head does is NaN, without examples.

    `max_tokens` (None: all) limits what is read; `documents` names some of a corpus:
    `model.card.held_out(corpus.names())` are those that training did not see. `progress(tokens, all)` is called
    after each batch. Time: two forward passes of the windows that hold a row, with logits at its destinations, and
    counting. Memory: one batch. Raises `ValueError` for text that the model cannot read, and for a head that it does
    not have.
    """
    require_ours(model, "evidence", without=(*NOT_LINEAR, "score_cap"))
    assert model.cfg.d_vocab is not None
    if model.sees_later_keys:
        raise ValueError("evidence needs a causal model: only its next token is not visible to it.")
    head = as_head((table.layer, table.head), model.cfg)
    largest_id = max((int(ids.max(initial=0)) for ids in (table.source, table.destination, table.out)), default=0)
    if largest_id >= model.cfg.d_vocab:
        raise ValueError(f"the table has token {largest_id}, but this model's are 0 to {model.cfg.d_vocab - 1}.")
    counter = TrigramCounter(table.source, table.destination, table.out, model.cfg.d_vocab)
    reader = HeadInText(model, head, table.out) if run_model else None
    keeper = ExampleKeeper(len(table), n_examples)
    sums = np.zeros((3, len(table)))
    n_tokens = n_documents = 0
    n_windows = (
        batch_size
        if batch_size is not None
        else max(1, min(32, _LOGITS_BYTES // (4 * model.cfg.n_ctx * model.cfg.d_vocab)))
    )
    for batch in windows(
        model, corpus, batch_size=n_windows, max_tokens=max_tokens, documents=documents,
        attention_mask=attention_mask, progress=progress,
    ):  # fmt: skip
        places = counter.add(batch)
        if reader is not None and len(places.row):
            measured = reader.measure(batch.tokens, table.source, places)
            for i, values in enumerate(measured[:3]):
                sums[i] += np.bincount(places.row, values, minlength=len(table))
            keeper.add(batch.tokens, places, measured)
        n_tokens += int((batch.length - 1).sum())  # nothing stands before the first, the start token of text
        n_documents = int(batch.document[-1]) + 1
    counts = counter.counts()
    association = associate(counts.strata, upwards=table.upwards)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = sums / (counts.pair if run_model else 0 * counts.pair)
    return Evidence(
        table=table,
        n_tokens=n_tokens,
        n_documents=n_documents,
        counts=counts,
        association=association,
        by_document=associate(counts.documents, upwards=table.upwards),
        verdict=association.verdicts,
        attention=means[0],
        direct_effect=means[1],
        ablation_change=means[2],
        examples=keeper.examples(),
    )
