"""Skip-trigrams in sentences, with numbers and units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aotlens.conventions import glyphs, head_name, minus
from aotlens.views.trigram_choice import SCORES

if TYPE_CHECKING:
    from aotlens.trigrams import Bigrams, Evidence, ExplainedRow, FilteredRows, TrigramRow, TrigramRows, ZeroLayer
    from aotlens.views.trigram_choice import TrigramsParameters

_MEANING = {
    "effect": "attention × ov, in logits: how much the source raises the predicted token where it competes for "
    "attention with average tokens",
    "sum": "nats and logits added, which multiplies the odds of being attended to by those of being written, whatever "
    "the context's length",
    "product": "over z > 0 only, so that only rows come first where the head both looks for the source and writes the "
    "predicted token strongly",
}
#: The kinds of `aotlens.trigrams.kinds`, whose rules these are, in the order in which they are tried.
RULES = {
    "copying": "the predicted token is the source, whatever its case and the spaces around it, or one of them begins "
    "the other",
    "punctuation": "the predicted token has no letter and no digit; a line end is punctuation too",
    "names": "the predicted token begins with a capital letter, as names do (and titles, and words that begin a "
    "sentence)",
    "morphology": "the predicted token goes on with a word: it begins with a letter, without a space before it",
    "other": "none of these",
}
EXACT = "Exact: z and ov are terms of this model's own scores and logits, on any text."
_UNIFORM = (
    "This checkpoint stores no counts of its training tokens, so every token of the vocabulary counts alike as "
    "background; attention to a source is then less like that in text, and no token is left out for being rare."
)
_ROLES = {"source": "source", "destination": "destination", "out": "predicted token"}


def says_choice(params: TrigramsParameters) -> str:
    """Describe the rows that are listed."""
    which = "highest" if params.largest else "lowest"
    ends = {"sum": " (what the head neither looks for nor writes)"}
    what = "" if params.largest else ends.get(params.score, " (what the head suppresses)")
    among = []
    for role, text in params.wanted(searched=True).items():
        word = _ROLES[role]
        among.append(f"{word} is ‹{text[1:]}›" if text.startswith("=") else f"{word} contains ‹{text}›")
    if params.least and params.counted:
        among.append(f"{'other ' if among else ''}tokens have at least {params.least:,} training counts")
    of = f"the triples whose {' and '.join(among)}" if among else "all triples of tokens"
    by = f"{SCORES[params.score]}: {_MEANING[params.score]}."
    if not params.over:
        sentence = f"The {params.k:,} {which} of {of}{what}, found exactly, by {by}"
    else:
        sentence = (
            f"Among the {params.depth:,} {which} of {of}{what}, found exactly, the first {params.k:,} "
            f"that differ from every better one in more than {_over(params)}. By {by}"
        )
    return sentence if params.counted else f"{sentence} {_UNIFORM}"


def rows_caption(params: TrigramsParameters, result: TrigramRows | FilteredRows) -> str:
    """Give the number of rows, what the text says of them, how many are grouped with them, and whether they are
    exact."""
    rows: TrigramRows = result.rows if params.filters else result  # type: ignore[assignment, union-attr]
    sentence = f"{len(rows):,} rows"
    if params.filters:
        sentence = f"{len(result):,} of {len(rows):,} rows match"
    if rows.groups is not None and len(rows):
        beneath = rows.listed_frame()["grouped"]
        sentence += (
            f", with which {int(beneath.sum()):,} are grouped that differ from one of them in {_over(params)} only"
        )
    verdict = "" if rows.evidence is None else f" {rows.evidence.finding}"
    if params.stored:
        verdict += " This check comes with aotlens."
    if "verdict" in params.filters and rows.evidence is None:
        verdict = " No row has a verdict before the rows are checked against text."
    relative = f"Relative: compare rows with each other. {rows.table.relative}" if rows.table.relative else EXACT
    return f"{sentence}.{verdict}\n{relative}"


def says_verdicts(params: TrigramsParameters, rows: TrigramRows) -> str:
    """Count the verdicts, or state that the rows were not checked."""
    if rows.evidence is None or params.corpus is None:
        return "No verdicts yet: the rows have not been checked against text."
    evidence = rows.evidence
    read = f"Read: the first {evidence.n_tokens:,} tokens of {params.corpus.about}."
    return f"{evidence.finding} {read} {evidence.assumption}"


def says_before(params: TrigramsParameters) -> str:
    """State what the check will read."""
    assert params.corpus is not None
    return (
        f"Not checked yet. Run reads the first {params.tokens:,} tokens of {params.corpus.about}, in the background; "
        "you can stop it."
    )


def says_bugs(rows: TrigramRows) -> str:
    """State what pairs of confirmed rows imply."""
    assert rows.forced is not None and rows.evidence is not None
    bugs, n_confirmed = rows.forced, rows.evidence.n_confirmed
    if not len(bugs):
        return (
            f"Of {_count(n_confirmed, 'confirmed row')} no two have one source and different destinations and "
            "predicted tokens, so they imply no other triple."
        )
    return (
        f"{_count(len(bugs), 'triple')} implied by pairs of {n_confirmed:,} confirmed rows: "
        f"{int(bugs.false.sum()):,} false, {bugs.verdict.count('too rare'):,} too rare to tell, "
        f"{bugs.verdict.count('confirmed'):,} confirmed themselves."
    )


def says_path(params: TrigramsParameters, result: Bigrams) -> str:
    """Describe the direct path's table."""
    names = " and ".join(map(head_name, result.heads))
    what = f"W_E W_U{f' with what {names} write' if result.heads else ''}"
    which = "entries of the tokens searched for" if params.after else "largest entries of all"
    relative = f" Relative: {result.relative}" if result.relative else ""
    none = " No head attends to the token itself by distance alone, as far as the weights tell."
    return (
        f"{len(result.first):,} {which}, found exactly, of {what}."
        f"{none if params.own and not result.heads else ''}{relative}"
    )


def says_zero_layer(params: TrigramsParameters, result: ZeroLayer) -> str:
    """Give the distance of the direct path's prediction from the text."""
    assert params.corpus is not None
    return (
        f"Its prediction is {result.mean_kl:.2f} nats per token (KL) from the {int(result.count.sum()):,} bigrams of "
        f"{params.corpus.about}; unigram frequencies are {result.unigram_kl:.2f} from them, whose entropy is "
        f"{result.entropy:.2f} nats."
    )


# ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────


def says_row(params: TrigramsParameters, result: ExplainedRow) -> str:
    """Explain a row: by the weights, and by the text if it was checked."""
    row = result.row
    checked = row.rows.evidence is not None and params.corpus is not None
    text = in_text(row, params.corpus.about) if checked else ["In text: not checked yet."]  # type: ignore[union-attr]
    return "\n".join([*in_weights(row), "", *text])


def in_weights(row: TrigramRow) -> list[str]:
    """Explain a row by the weights, and state its kind."""
    from aotlens.trigrams.kinds import kind_of

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
        f"Kind: {kind}, since {RULES[kind]}." if kind != "other" else "Kind: other; none of the rules holds.",
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


def _over(params: TrigramsParameters) -> str:
    return "the source or the destination" if "destination" in params.over else "the source"


def _rule(evidence: Evidence, row: int) -> str:
    from aotlens.trigrams.verdict import FALSE_DISCOVERY_RATE

    side = "more" if evidence.table.upwards[row] else "less"
    return f"confirmed where q ≤ {FALSE_DISCOVERY_RATE}, tested for {side} often"


def _too_rare() -> str:
    from aotlens.trigrams.verdict import MIN_OCCURRENCES, MIN_STRATA

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
