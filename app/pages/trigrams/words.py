"""Skip-trigrams in sentences, with numbers and units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from app.pages.trigrams.service import Choice, Shape
from app.pages.trigrams.service_direct import DirectPath, PathChoice

if TYPE_CHECKING:
    from aotlens.trigrams import Evidence, SkipTrigramBugs, TrigramTable

NAMES = {"effect": "effect", "sum": "z + ov", "product": "z × ov"}

SCORES = {
    "effect": "attention × ov, in logits: how much the source raises the out where it competes for attention with "
    "average tokens",
    "sum": "nats and logits added, which multiplies the odds of being looked at by those of being written, whatever "
    "the context's length",
    "product": "over z > 0 only, so that only rows where the head both looks and writes strongly come first",
}

EXACT = "Exact: z and ov are terms of this model's own scores and logits, on any text."


def rare(least: int, shape: Shape) -> str:
    """What is done where no token has `least` training counts, or none has any; empty where some have."""
    if not shape.counted:
        return UNIFORM
    if least > shape.most_count:
        return f"No token was seen {least:,} times in training, so none is left out for being rare."
    return ""


def folded(choice: Choice, n_rows: int, most: int, shown: int) -> str:
    """How many rows are beneath those that are listed, at `most` beneath one, of which `shown` unfold."""
    rest = f" (+ unfolds the best {shown:,} beneath a row; the CSV has them all)" if most > shown else ""
    return f", beneath which {n_rows:,} are folded that differ from one of them in {_OVER[choice.fold]} only{rest}"


def no_row(rank: int, n_rows: int) -> str:
    """What is said of a rank that the table does not have."""
    return f"There is no row {rank:,} in a table of {n_rows:,} rows; the nearest is explained instead."


_OVER = {"similar": "the source or the destination", "sources": "the source"}


def table(choice: Choice, searched: int) -> str:
    """What is listed; `searched` are the rows of which some are folded."""
    which = "highest" if choice.end == "top" else "lowest"
    ends = {"sum": " (what the head neither looks for nor writes)"}
    what = "" if choice.end == "top" else ends.get(choice.score, " (what the head suppresses)")
    among = [
        f"{name} contains ‹{value}›" if not value.startswith("=") else f"{name} is ‹{value[1:]}›"
        for name, value in (("source", choice.source), ("destination", choice.destination), ("out", choice.out))
        if value
    ]
    if choice.least:
        others = "other " if among else ""
        among.append(f"{others}tokens have at least {choice.least:,} training counts")
    of = f"the triples whose {' and '.join(among)}" if among else "all triples of tokens"
    by = f"{NAMES[choice.score]}: {SCORES[choice.score]}."
    if choice.fold == "none":
        return f"The {choice.k:,} {which} of {of}{what}, found exactly, by {by}"
    return (
        f"Among the {max(choice.k, searched):,} {which} of {of}{what}, found exactly, the first {choice.k:,} that "
        f"differ from every better one in more than {_OVER[choice.fold]}. By {by}"
    )


#: Where a checkpoint has no training counts.
UNIFORM = (
    "This checkpoint stores no counts of its training tokens, so every token of the vocabulary counts alike as "
    "background; attention to a source is then less like that in text, and no token is left out for being rare."
)


def weights(table: TrigramTable, row: int, shown: tuple[str, str, str]) -> list[str]:
    """What the weights say about a row."""
    source, destination, out = (f"‹{one}›" for one in shown)
    z, attention = float(table.qk[row]), float(table.attention[row])
    ov, effect = float(table.ov[row]), float(table.effect[row])
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
    return [
        f"With {source} earlier in the text, head {table.layer}.{table.head} at {destination} {verb} the logit of "
        f"{out} by {abs(effect):.3g} logits: its odds × {_factor(effect)}.",
        looks + f"{where} that is {attention:.2%} of its attention.",
        f"All of its attention on {source} {change} {abs(ov):.2f} logits {'to' if ov >= 0 else 'from'} {out}, measured "
        f"from the mean over all outs. {attention:.2%} of that is {effect:+.3g} logits.",
    ]


def in_text(found: Evidence, row: int, shown: tuple[str, str, str], about: str) -> list[str]:
    """What text says about a row."""
    source, destination, out = (f"‹{one}›" for one in shown)
    counts, link = found.counts, found.association
    n, followed = int(counts.pair[row]), int(counts.pair_out[row])
    read = f"In the first {found.n_tokens:,} tokens of {about},"
    if n == 0:
        return [f"{read} {source} never comes before {destination} within the model's context: too rare to say."]
    at_all = float(counts.destination_out[row]) / float(counts.destination[row])
    said = [
        f"{read} {source} … {destination} occurs {_count(n, 'time')}, in {_count(int(counts.windows[row]), 'window')}. "
        f"{out} follows {followed:,} of them, {followed / n:.2%}; after {destination} in general {at_all:.2%}."
    ]
    verdict = found.verdict[row]
    within, pooled = float(link.lift_within[row]), float(link.lift[row])
    if math.isfinite(within):
        low, high = float(link.low[row]), float(link.high[row])
        known = math.isfinite(low) and math.isfinite(high)
        interval = f" (95% interval {_short(low)} to {_short(high)})" if known else ""
        said[0] += (
            f" Within stretches of one document that is a lift of {_short(within)}{interval}; over all places pooled, "
            f"{_short(pooled)}."
        )
    if link.lifts_disagree[row]:
        said.append(
            f"The two lifts lie on different sides of 1: {source} tells which document or passage it is, rather than "
            "what comes next."
        )
    q = float(link.q_value[row])
    why = f" (q = {q:.2g}; {_rule(found, row)})" if math.isfinite(q) else f" ({_too_rare()})"
    change = float(found.ablation_change[row])
    helps = "the head helps here" if change < 0 else "the head hurts here"
    said += [
        f"Verdict: {verdict}{why}. With whole documents as stretches: {found.by_document.verdicts[row]}. "
        f"{found.assumption}",
        f"In those places the head gives {source} {float(found.attention[row]):.2%} of its attention on average, which "
        f"moves {out} by {float(found.direct_effect[row]):+.3g} logits directly. Without the head the log-probability "
        f"of {out} changes by {change:+.3g} nats: {helps}, with all that it attends to.",
    ]
    return said


#: The kinds of `aotlens.trigrams.kinds`, whose rules these are, in the order in which they are tried.
RULES = {
    "copying": "the out is the source, whatever its case and the spaces around it, or one of them begins the other",
    "punctuation": "the out has no letter and no digit; a line end is punctuation too",
    "names": "the out begins with a capital letter, as names do (and titles, and words that begin a sentence)",
    "morphology": "the out goes on with a word: it begins with a letter, without a space before it",
    "other": "none of these",
}


def kind(name: str) -> str:
    """A kind and its rule."""
    return f"Kind: {name}, since {RULES[name]}." if name != "other" else "Kind: other; none of the rules below holds."


def verdicts(found: Evidence | None, about: str) -> str:
    """How the table did, or why nothing is known."""
    if found is None:
        return "No verdicts yet: the table has not been held against text."
    n = found.summary()
    listed = ", ".join(f"{number:,} {word}" for word, number in n.items())
    read = f"{listed}, of {sum(n.values()):,} rows, in the first {found.n_tokens:,} tokens of {about}."
    return f"{read} {found.assumption}"


def rule() -> str:
    """What the verdicts mean."""
    from aotlens.data.windows import WINDOWS_A_STRATUM
    from aotlens.trigrams.verdict import FALSE_DISCOVERY_RATE

    return (
        f"confirmed: within stretches of {WINDOWS_A_STRATUM} windows of one document, the out follows source … "
        "destination more often (for a row with an effect below 0: less often) than it follows the destination anyway, "
        f"at a false discovery rate of {FALSE_DISCOVERY_RATE:.0%} over the table (Benjamini and Hochberg), stretches "
        f"taken as independent. too rare: {_too_rare()}. not confirmed: the rest."
    )


def forced(bugs: SkipTrigramBugs | None, n_confirmed: int) -> str:
    """What confirmed rows force, or why nothing is known."""
    if bugs is None:
        return "Nothing is known of what the rows force: the table has not been held against text."
    if not len(bugs):
        return (
            f"Of {_count(n_confirmed, 'confirmed row')} no two have one source and different destinations and outs, so "
            "nothing is forced."
        )
    false, verdicts = int(bugs.false.sum()), bugs.verdict
    return (
        f"{_count(len(bugs), 'triple')} forced by pairs of {n_confirmed:,} confirmed rows: {false:,} false, "
        f"{verdicts.count('too rare'):,} too rare to say, {verdicts.count('confirmed'):,} confirmed themselves."
    )


def direct_path(path: DirectPath, choice: PathChoice, about: str) -> str:
    """What the direct path's table is, and how far its prediction is from text."""
    found, names = path.bigrams, " and ".join(f"{layer}.{head}" for layer, head in path.own)
    what = f"W_E W_U{f' with what {names} write' if found.heads else ''}"
    which = "entries of the tokens searched for" if choice.after else "largest entries of all"
    sentences = [f"{len(found.first):,} {which}, found exactly, of {what}."]
    if path.own and not found.heads:
        sentences.append(f"{_heads(path.own)} {names} attend to the token itself, whatever it is, and can be added.")
    if not path.own:
        sentences.append(
            "No head attends to the token itself by distance alone, where that can be read from the weights."
        )
    if path.zero_layer is not None:
        held = path.zero_layer
        sentences.append(
            f"Its prediction is {held.mean_kl:.2f} nats a token (KL) from the {path.n_text:,} bigrams of {about}; "
            f"unigram frequencies are {held.unigram_kl:.2f} from them, whose entropy is {held.entropy:.2f} nats."
        )
    if found.relative:
        sentences.append(f"Relative: {found.relative}")
    return " ".join(sentences)


def _heads(heads: tuple[tuple[int, int], ...]) -> str:
    return "Heads" if len(heads) > 1 else "Head"


def _rule(found: Evidence, row: int) -> str:
    from aotlens.trigrams.verdict import FALSE_DISCOVERY_RATE

    side = "more" if found.table.upwards[row] else "less"
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


def _factor(effect: float) -> str:
    return f"{math.exp(min(effect, 300.0)):.3g}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
