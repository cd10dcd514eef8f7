"""Rows of a head by their tokens, kind and verdict; one row with its examples as text, and prompts that give its
tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from aotlens.conventions import glyphs, minus
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result, data_frame
from aotlens.trigrams.evidence import Evidence
from aotlens.trigrams.find import is_like
from aotlens.trigrams.measuring import Example
from aotlens.trigrams.rows import TrigramRow, TrigramRows
from aotlens.trigrams.table import kind_of
from aotlens.trigrams.verdict import FALSE_DISCOVERY_RATE, MIN_OCCURRENCES, MIN_STRATA

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class FilteredRows(Result):
    """Those rows of a head that match."""

    rows: TrigramRows
    """All rows."""
    numbers: Int64[np.ndarray, " matches"]
    """The matching ones; 0 is the first."""

    @property
    def headline(self) -> str:
        return f"{len(self):,} of {len(self.rows):,} rows match"

    def __len__(self) -> int:
        return len(self.numbers)

    def listed_frame(self) -> pd.DataFrame:
        """Return the matching rows of `TrigramRows.listed_frame`, with their ranks there."""
        return self.rows.listed_frame().iloc[self.numbers]

    def to_frame(self) -> pd.DataFrame:
        """Return the matching rows of `TrigramRows.to_frame`, with the others of their groups."""
        frame = self.rows.to_frame()
        return frame[frame.get("group", frame["rank"]).isin(self.numbers + 1)].reset_index(drop=True)


def filter_rows(
    rows: TrigramRows, *, source: str = "", destination: str = "", out: str = "", verdict: str = "", kind: str = ""
) -> FilteredRows:
    """Return the rows whose tokens contain these texts (or, after `=`, are them; `tokens_like`), of this verdict and
    kind; an empty text matches all. Unchecked rows have no verdict."""
    frame = rows.listed_frame()
    keep = np.ones(len(frame), dtype=bool)
    for column, text in {"source": source, "destination": destination, "out": out}.items():
        if text:
            keep &= np.array([is_like(glyphs(token), text) for token in frame[column]], dtype=bool)
    for column, word in {"verdict": verdict, "kind": kind}.items():
        if word:
            keep &= frame[column].eq(word).to_numpy() if column in frame else False
    return FilteredRows(rows=rows, numbers=np.flatnonzero(keep))


#: The number of a window's first tokens that may be dropped to find a text that is tokenised in the same way.
_MOST_DROPPED = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplainedRow(Result):
    """A row, and occurrences of its source and destination in text if it was checked."""

    row: TrigramRow
    examples: tuple[Example, ...]
    tokens: tuple[tuple[str, ...], ...]
    """The strings of each example's tokens."""
    prompts: tuple[str, ...]
    """A text that the model tokenises as the end of each example; empty if there is none."""
    dropped: tuple[int, ...]
    """The number of the example's first tokens that its prompt lacks."""

    @property
    def headline(self) -> str:
        return self.row.headline

    def sentences(self, text: str = "the text", rules: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return the row by the weights, and by the text (so called) if it was checked; lines of sentences."""
        checked = self.row.rows.evidence is not None
        return "\n".join([
            *in_weights(self.row, rules), "", *(in_text(self.row, text) if checked else ["In text: not checked yet."]),
        ])  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return the row's line of `TrigramRows.listed_frame`."""
        return self.row.to_frame()

    def examples_frame(self) -> pd.DataFrame:
        """Return one row per occurrence: follows, attention, distance, text, and the prompt with the destination's
        position."""
        lines = []
        for example, tokens, prompt, dropped in zip(
            self.examples, self.tokens, self.prompts, self.dropped, strict=True
        ):
            position = example.destination_position
            back = position - example.source_position
            lines.append((example.follows, float(example.attention), back, "".join(tokens), prompt, position - dropped))
        return data_frame(lines, columns=["follows", "attention", "distance", "text", "prompt", "position"])


def explain_row(model: AttentionOnlyTransformer, row: TrigramRow) -> ExplainedRow:
    """Return a row with its examples, of which there are none if it was not checked against text.

    A window may begin within a word or a character, where its text alone would be cut into other tokens: its first
    tokens are dropped until the text is tokenised in the same way. Raises `ValueError` for a model without a tokenizer.
    """
    require_ours(model, "explain_row")
    if model.tokenizer is None:
        raise ValueError("explain_row: this model has no tokenizer, so its tokens have no text.")
    evidence = row.rows.evidence
    examples = () if evidence is None else tuple(each for each in evidence.examples if each.row == row.number)
    openings = [_opening(model, example) for example in examples]
    return ExplainedRow(
        row=row,
        examples=examples,
        tokens=tuple(tuple(model.tokenizer.str_tokens(example.tokens.tolist())) for example in examples),
        prompts=tuple(prompt for prompt, _ in openings),
        dropped=tuple(dropped for _, dropped in openings),
    )


def _opening(model: AttentionOnlyTransformer, example: Example) -> tuple[str, int]:
    """A text that is tokenised as the example's tokens, with as few of the first dropped as possible; and how many."""
    assert model.tokenizer is not None
    tokens = example.tokens.tolist()
    for dropped in range(min(_MOST_DROPPED, example.source_position)):
        wanted = tokens[1 + dropped :]
        prompt = model.tokenizer.decode(wanted)
        if prompt and model.to_tokens(prompt)[0].tolist()[1:] == wanted:
            return prompt, dropped
    return "", 0


def in_weights(row: TrigramRow, rules: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Explain a row by the weights, and state its kind, with the rule of the kind in words if `rules` has it."""
    table, index = row.rows.table, row.number
    source, destination, out = _tokens(row)
    z, attention = float(table.qk[index]), float(table.attention[index])
    ov, effect = float(table.ov[index]), float(table.effect[index])
    verb, change = ("raises", "adds") if ov >= 0 else ("lowers", "takes")
    side = "above" if z >= 0 else "below"
    looks = (
        f"At {destination} the head scores {source} {abs(z):.2f} nats {side} its background (the log-mean-exp over "
        f"training tokens), so it attends to it {_times(z)} as much as to an average token. "
    )
    where = {
        None: f"Against {table.n_background} such tokens",
        "mean": f"Averaged over distances of 1 to {table.n_background} tokens, with what positions add,",
    }.get(table.distance, f"At a distance of {table.distance} tokens, with what positions add,")  # type: ignore[arg-type]
    kind = kind_of(table.source_token[index], table.out_token[index])
    return [
        f"With {source} earlier in the text, head {table.layer}.{table.head} at {destination} {verb} the logit of "
        f"{out} by {abs(effect):.3g} logits: its odds × {math.exp(min(effect, 300.0)):.3g}.",
        looks + f"{where} that is {attention:.2%} of its attention.",
        f"All of its attention on {source} {change} {abs(ov):.2f} logits {'to' if ov >= 0 else 'from'} {out}, measured "
        f"from the mean over all predicted tokens. {attention:.2%} of that is {minus(effect, '+.3g')} logits.",
        f"Kind: {kind}{', since ' * (kind in rules)}{rules.get(kind, '')}."
        if kind != "other"
        else "Kind: other; none of the rules holds.",
    ]


def in_text(row: TrigramRow, about: str) -> list[str]:
    """Explain a row that was checked by the text."""
    evidence, i = row.rows.evidence, row.number
    assert evidence is not None
    source, destination, out = _tokens(row)
    counts, link = evidence.counts, evidence.association
    n, followed = int(counts.pair[i]), int(counts.pair_out[i])
    read = f"In the first {evidence.n_tokens:,} tokens of {about},"
    if n == 0:
        return [f"{read} {source} never comes before {destination} within the model's context: too rare to say."]
    at_all = float(counts.destination_out[i]) / float(counts.destination[i])
    sentences = [
        f"{read} {source} … {destination} occurs {_count(n, 'time')}, in {_count(int(counts.windows[i]), 'window')}. "
        f"{out} follows {followed:,} of them, {followed / n:.2%}; after {destination} in general {at_all:.2%}."
    ]
    within, overall = float(link.lift_within[i]), float(link.lift[i])
    if math.isfinite(within):
        low, high = float(link.low[i]), float(link.high[i])
        known = math.isfinite(low) and math.isfinite(high)
        interval = f" (95% interval {_short(low)} to {_short(high)})" if known else ""
        sentences[0] += (
            f" Within stretches of one document that is a lift of {_short(within)}{interval}; overall, "
            f"{_short(overall)}."
        )
    if link.lifts_disagree[i]:
        sentences.append(
            f"The two lifts lie on different sides of 1: {source} tells which document or passage it is, rather than "
            "what comes next."
        )
    q, change = float(link.q_value[i]), float(evidence.ablation_change[i])
    why = f" (q = {q:.2g}; {_rule(evidence, i)})" if math.isfinite(q) else f" ({_too_rare()})"
    helps = "the head helps here" if change < 0 else "the head hurts here"
    return [
        *sentences,
        f"Verdict: {evidence.verdict[i]}{why}. With whole documents as stretches: {evidence.by_document.verdicts[i]}. "
        f"{evidence.assumption}",
        f"In those places the head gives {source} {float(evidence.attention[i]):.2%} of its attention on average, "
        f"which moves {out} by {minus(float(evidence.direct_effect[i]), '+.3g')} logits directly. Without the head the "
        f"log-probability of {out} changes by {minus(change, '+.3g')} nats: {helps}, with all that it attends to.",
    ]


def _tokens(row: TrigramRow) -> tuple[str, str, str]:
    table, index = row.rows.table, row.number
    source, destination, out = (
        f"‹{glyphs(strings[index])}›" for strings in (table.source_token, table.destination_token, table.out_token)
    )
    return source, destination, out


def _rule(evidence: Evidence, row: int) -> str:
    side = "more" if evidence.table.upwards[row] else "less"
    return f"confirmed where q ≤ {FALSE_DISCOVERY_RATE}, tested for {side} often"


def _too_rare() -> str:
    return (
        f"in stretches that hold places with and without the source, fewer than {MIN_OCCURRENCES} with it or "
        f"{MIN_OCCURRENCES} without, or fewer than {MIN_STRATA} such stretches, to compare"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(z: float) -> str:
    factor = math.exp(min(z, 300.0))
    return f"{factor:.3g} times" if factor < 1e4 else f"{factor:.1e} times"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
