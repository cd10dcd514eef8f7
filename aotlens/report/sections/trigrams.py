"""The best skip-trigrams of the heads, and whether text bears them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aotlens.conventions import describe
from aotlens.report.parts import Part, Table, Text
from aotlens.report.sections.circuits import require_readable
from aotlens.report.subject import Subject
from aotlens.trigrams import Evidence, TrigramTable, evidence, skip_trigrams

N_ROWS = 10
#: Tokens make up at least this share of the training text: triples of rarer ones hardly occur in any text, so that no
#: verdict is possible.
FREQUENT = 1e-3


def trigram_parts(subject: Subject) -> list[Part]:
    """List each head's `source … destination → out` by effect, with verdicts of the corpus or the atlas's windows."""
    require_readable(subject, "Skip-trigrams")
    counts = subject.counts
    if counts is None:
        raise ValueError(
            "Skip-trigrams are weighed against the tokens of the training text, and this checkpoint "
            "has no counts of them."
        )
    text, about = _text(subject)
    parts: list[Part] = [
        Text(
            text=f"The {N_ROWS} best of each head by effect, attention × OV in logits, from its weights, "
            "over the tokens "
            f"that make up at least {FREQUENT:.2%} of the training text. {about} {subject.why_heads}"
        )
    ]
    relative: dict[str, None] = {}
    for layer, head in subject.heads:
        table = skip_trigrams(subject.model, (layer, head), k=N_ROWS, min_count=FREQUENT * float(counts.sum()))
        relative |= dict.fromkeys(re.findall(r"[^.]+\.", table.relative))
        held = None if text is None else _held_against(subject, table, text)
        parts.append(_as_table(f"Head {layer}.{head}", table, held))
    if relative:
        reasons = "".join(relative).strip()
        parts.insert(1, Text(text=f"Weights alone are relative to the model's own numbers: {reasons}", note=True))
    return parts


def _text(subject: Subject) -> tuple[Any, str]:
    """Return the text that rows are held against, and a sentence about it."""
    if subject.model.sees_later_keys:
        return None, "There are no verdicts: this model sees later tokens, and a verdict is about the next one."
    rule = (
        "A row is confirmed where, within stretches of text, the out follows more often than after "
        "the destination anyway, "
        "at a false discovery rate of 5% among the rows of a head."
    )
    if subject.corpus is not None:
        documents = subject.held_out()
        which = "" if documents is None else " that were held out from its training"
        return subject.corpus, f"{rule} Read: up to {subject.n_tokens:,} tokens of documents of the corpus{which}."
    if subject.atlas is None:
        return None, "There are no verdicts: --corpus SPEC names text to hold the rows against."
    return subject.atlas.examples.tokens.ravel(), f"{rule} Read: {subject.atlas.about}, each a stretch of its own."


def _held_against(subject: Subject, table: TrigramTable, text: Any) -> Evidence:
    if subject.corpus is None:
        return evidence(subject.model, table, text, run_model=False)
    return evidence(
        subject.model, table, text, max_tokens=subject.n_tokens, documents=subject.held_out(), run_model=False
    )


def _as_table(caption: str, table: TrigramTable, held: Evidence | None) -> Table:
    strings = (table.source_token, table.destination_token, table.out_token)
    ids = (table.source, table.destination, table.out)
    names = [_tokens(of, numbers.tolist()) for of, numbers in zip(strings, ids, strict=True)]
    columns = [
        *names,
        _numbers(table.qk),
        _numbers(table.attention, "{:.3f}"),
        _numbers(table.ov),
        _numbers(table.effect),
    ]
    titles = ["source …", "destination", "→ out", "QK, nats", "attention", "OV, logits", "effect, logits"]
    if held is not None:
        lift = held.association.lift_within
        columns += [[f"{n:,}" for n in held.counts.pair.tolist()], _numbers(lift, "{:.2f}"), list(held.verdict)]
        titles += ["occurs", "lift within documents", "verdict"]
    return Table(caption=caption, columns=titles, rows=list(zip(*columns, strict=True)))


def _tokens(strings: Sequence[str], ids: Sequence[int]) -> list[str]:
    return [describe(text) if text else f"#{number}" for text, number in zip(strings, ids, strict=True)]


def _numbers(values: Any, form: str = "{:+.3f}") -> list[str]:
    return ["–" if value != value else form.format(value) for value in values.tolist()]
