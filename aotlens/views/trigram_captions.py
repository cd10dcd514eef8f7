"""Skip-trigrams in sentences, with numbers and units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aotlens.conventions import glyphs, head_name

if TYPE_CHECKING:
    from aotlens.trigrams import Bigrams, Evidence, TrigramRow, TrigramRows, ZeroLayer
    from aotlens.views.trigram_choice import TrigramsParameters

#: The names of the scores that rank rows.
SCORES = {"effect": "effect", "sum": "z + ov", "product": "z × ov"}
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


def says_choice(chosen: TrigramsParameters, least: int, most_count: int) -> str:
    """Say which rows are listed; `least` training counts were asked for, of a token that has `most_count` at most."""
    which = "highest" if chosen.largest else "lowest"
    ends = {"sum": " (what the head neither looks for nor writes)"}
    what = "" if chosen.largest else ends.get(chosen.score, " (what the head suppresses)")
    among = []
    for role, word in _ROLES.items():
        text = getattr(chosen, role)
        if text:
            among.append(f"{word} is ‹{text[1:]}›" if text.startswith("=") else f"{word} contains ‹{text}›")
    if chosen.least:
        among.append(f"{'other ' if among else ''}tokens have at least {chosen.least:,} training counts")
    of = f"the triples whose {' and '.join(among)}" if among else "all triples of tokens"
    by = f"{SCORES[chosen.score]}: {_MEANING[chosen.score]}."
    if not chosen.over:
        sentence = f"The {chosen.k:,} {which} of {of}{what}, found exactly, by {by}"
    else:
        sentence = (
            f"Among the {max(chosen.k, chosen.depth):,} {which} of {of}{what}, found exactly, the first {chosen.k:,} "
            f"that differ from every better one in more than {_over(chosen)}. By {by}"
        )
    if not chosen.counted:
        return f"{sentence} {_UNIFORM}"
    if least > most_count:
        return f"{sentence} No token was seen {least:,} times in training, so none is left out for being rare."
    return sentence


def rows_caption(chosen: TrigramsParameters, rows: TrigramRows) -> str:
    """Say how many rows there are, what the text says of them, and how many are grouped with them."""
    sentence = f"{len(rows):,} rows"
    if rows.groups is not None and len(rows):
        beneath = rows.listed_frame()["grouped"]
        sentence += (
            f", with which {int(beneath.sum()):,} are grouped that differ from one of them in {_over(chosen)} only"
        )
    verdict = "" if rows.evidence is None else f" {says_summary(rows.evidence)}"
    return f"{sentence}.{verdict}"


def says_summary(result: Evidence) -> str:
    """Say the verdicts in a sentence."""
    return f"{result.headline[0].upper()}{result.headline[1:]}."


def says_verdicts(chosen: TrigramsParameters, rows: TrigramRows) -> str:
    """Say how the rows did in the text, or that they were not checked."""
    if rows.evidence is None or chosen.reading is None:
        return "No verdicts yet: the rows have not been checked against text."
    evidence = rows.evidence
    read = f"Read: the first {evidence.n_tokens:,} tokens of {chosen.reading.about}."
    return f"{says_summary(evidence)} {read} {evidence.assumption}"


def rule() -> str:
    """Say what the verdicts mean."""
    from aotlens.data.windows import WINDOWS_A_STRATUM
    from aotlens.trigrams.verdict import FALSE_DISCOVERY_RATE

    return (
        f"confirmed: within stretches of {WINDOWS_A_STRATUM} windows of one document, the predicted token follows "
        "source … destination more often (for a row with an effect below 0: less often) than it follows the "
        f"destination anyway, at a false discovery rate of {FALSE_DISCOVERY_RATE:.0%} over the rows (Benjamini and "
        f"Hochberg), stretches taken as independent. too rare: {_too_rare()}. not confirmed: the rest."
    )


def says_forced(rows: TrigramRows) -> str:
    """Say what confirmed rows force."""
    assert rows.forced is not None and rows.evidence is not None
    bugs, n_confirmed = rows.forced, rows.evidence.n_confirmed
    if not len(bugs):
        return (
            f"Of {_count(n_confirmed, 'confirmed row')} no two have one source and different destinations and "
            "predicted tokens, so nothing is forced."
        )
    return (
        f"{_count(len(bugs), 'triple')} forced by pairs of {n_confirmed:,} confirmed rows: "
        f"{int(bugs.false.sum()):,} false, {bugs.verdict.count('too rare'):,} too rare to say, "
        f"{bugs.verdict.count('confirmed'):,} confirmed themselves."
    )


def says_path(chosen: TrigramsParameters, result: Bigrams) -> str:
    """Say what the direct path's table is."""
    names = " and ".join(map(head_name, result.heads))
    what = f"W_E W_U{f' with what {names} write' if result.heads else ''}"
    which = "entries of the tokens searched for" if chosen.after else "largest entries of all"
    relative = f" Relative: {result.relative}" if result.relative else ""
    return f"{len(result.first):,} {which}, found exactly, of {what}.{relative}"


def says_own_heads(own: Sequence[Any], result: Bigrams) -> str:
    """Say which heads attend to the token itself, where they are not part of the path."""
    if not own:
        return "No head attends to the token itself by distance alone, where that can be read from the weights."
    if result.heads:
        return ""
    names = " and ".join(map(head_name, own))
    verb = "Heads" if len(own) > 1 else "Head"
    return f"{verb} {names} attend{'' if len(own) > 1 else 's'} to the token itself, whatever it is, and can be added."


def says_zero_layer(chosen: TrigramsParameters, result: ZeroLayer) -> str:
    """Say how far the direct path's prediction is from the text."""
    assert chosen.reading is not None
    return (
        f"Its prediction is {result.mean_kl:.2f} nats a token (KL) from the {int(result.count.sum()):,} bigrams of "
        f"{chosen.reading.about}; unigram frequencies are {result.unigram_kl:.2f} from them, whose entropy is "
        f"{result.entropy:.2f} nats."
    )


# ── one row ─────────────────────────────────────────────────────────────────────────────────────────────────────


def in_weights(row: TrigramRow) -> list[str]:
    """Say what the weights say about a row, and of which kind it is."""
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
        f"from the mean over all predicted tokens. {attention:.2%} of that is {effect:+.3g} logits.",
        f"Kind: {kind}, since {RULES[kind]}." if kind != "other" else "Kind: other; none of the rules holds.",
    ]


def in_text(row: TrigramRow, about: str) -> list[str]:
    """Say what text says about a row that was checked."""
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
        f"which moves {out} by {float(evidence.direct_effect[i]):+.3g} logits directly. Without the head the "
        f"log-probability of {out} changes by {change:+.3g} nats: {helps}, with all that it attends to.",
    ]


def _tokens(row: TrigramRow) -> tuple[str, str, str]:
    table, index = row.rows.table, row.number
    source, destination, out = (
        f"‹{glyphs(strings[index])}›" for strings in (table.source_token, table.destination_token, table.out_token)
    )
    return source, destination, out


def _over(chosen: TrigramsParameters) -> str:
    return "the source or the destination" if "destination" in chosen.over else "the source"


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
