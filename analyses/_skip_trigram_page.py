"""The findings of analyses.skip_trigrams, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analyses._ensemble import EnsembleCheck, ensemble_check
from aotlens.conventions import describe, glyphs
from aotlens.models import AttentionOnlyTransformer
from aotlens.trigrams import (
    Evidence,
    Example,
    SkipTrigramBugs,
    count_bigrams,
    count_kinds,
    distance_shares,
    frequent_tokens,
    kinds,
    own_token_heads,
    zero_layer,
)
from aotlens.trigrams.background import BY_POSITION
from aotlens.trigrams.verdict import CONFIRMED

N_TOP, N_CONFIRMED, N_BUGS = 3, 4, 4
_MAX_AROUND = 60  # characters of an example on either side of what is left out


@dataclass(frozen=True, kw_only=True, eq=False)
class OfHead:
    """A head's best rows, random rows matched to them, both tested on the text, and what the best rows force."""

    head: int
    min_count: int
    found: Evidence
    random: Evidence
    bugs: SkipTrigramBugs


def share_lines(model: AttentionOnlyTransformer, min_count: int, results: Sequence[OfHead]) -> Iterator[str]:
    """Yield lines of how many rows hold, head by head, beside random triples; and what kinds the confirmed ones are."""
    if min_count:
        n = len(frequent_tokens(model, min_count))
        yield f"### Among the {n:,} tokens with at least {min_count:,} training counts"
        yield ""
        yield (
            f"A score does not know how often its tokens occur. Here source, destination and out are {n:,} of the "
            f"{model.cfg.d_vocab:,} tokens (`min_count={min_count}`, `--min-count {min_count}`), the search is as "
            "exhaustive."
        )
    else:
        yield "### Among all tokens"
    yield ""
    yield (
        "| head | position alone | confirmed | testable | p ≤ 5% | ≠ | documents | random: confirmed | testable "
        "| p ≤ 5% | kinds |"
    )
    yield "| --- " * 11 + "|"
    for result in results:
        association, by_document = result.found.association, result.found.by_document
        cells = [f"0.{result.head}", _by_position(model, result.head), *_shares(result.found)]
        cells += [str(int(association.lifts_disagree.sum())), str(by_document.verdicts.count(CONFIRMED))]
        yield f"| {' | '.join([*cells, *_shares(result.random), _kinds(result.found)])} |"
    yield ""
    yield _in_short(results)
    yield ""


def _shares(evidence: Evidence) -> list[str]:
    n, tested = len(evidence.verdict), ~evidence.association.too_rare
    share = f"{evidence.share_confirmed:.0%}" if n <= 100 else f"{evidence.share_confirmed:.1%}"
    nominal = "–" if not evidence.n_testable else f"{(evidence.association.p_value[tested] <= 0.05).mean():.0%}"
    return [f"{evidence.n_confirmed} of {n:,} ({share})", f"{evidence.n_testable:,}", nominal]


def _kinds(evidence: Evidence) -> str:
    """Say how many of the confirmed rows are of each kind, in words."""
    confirmed = [
        kind for kind, word in zip(kinds(evidence.table), evidence.verdict, strict=True) if word == "confirmed"
    ]
    return ", ".join(f"{number} {kind}" for kind, number in count_kinds(confirmed).items() if number) or "–"


def _by_position(model: AttentionOnlyTransformer, head: int) -> str:
    if not (model.cfg.position_kind.table or model.cfg.position_kind.biases):
        return "–"
    shares = distance_shares(model, (0, head))
    where = int(shares.argmax())
    if shares[where] < BY_POSITION:
        return "spread"
    return {0: "the token itself", 1: "the token before"}.get(where, f"{where} back") + f" ({shares[where]:.0%})"


def _in_short(results: Sequence[OfHead]) -> str:
    def total(side: str) -> tuple[int, int, int]:
        all_of = [getattr(each, side) for each in results]
        return (
            sum(each.n_confirmed for each in all_of),
            sum(each.n_testable for each in all_of),
            sum(len(each.verdict) for each in all_of),
        )

    own, other = total("found"), total("random")
    disagree = sum(int(each.found.association.lifts_disagree.sum()) for each in results)
    return (
        f"All heads: {own[0]} of {own[2]:,} rows confirmed ({own[0] / own[2]:.1%}; {_share(own)} of the {own[1]:,} "
        f"testable), beside {other[0]} of {other[2]:,} random triples ({other[0] / other[2]:.2%}; {_share(other)} of "
        f"{other[1]:,}). The two lifts disagree for {disagree} of the rows."
    )


def _share(total: tuple[int, int, int]) -> str:
    return "–" if not total[1] else f"{total[0] / total[1]:.1%}"


def row_lines(model: AttentionOnlyTransformer, min_count: int, results: Sequence[Evidence]) -> Iterator[str]:
    """Yield each head's first rows, whatever the verdict, and its best confirmed ones."""
    among = f"tokens with at least {min_count:,} training counts" if min_count else "all tokens"
    yield f"### Rows, among {among}"
    yield ""
    yield f"Of every head the first {N_TOP}, and the {N_CONFIRMED} best of the other confirmed ones."
    yield ""
    yield (
        "| head | rank | source | destination | out | effect | out follows | lift within documents (95%) "
        "| lift overall | attention "
        "| direct effect | without the head | verdict | for instance |"
    )
    yield "| --- " * 14 + "|"
    for evidence in results:
        frame = evidence.to_frame()
        rest = frame.iloc[N_TOP:]
        first = [*frame.index[:N_TOP], *rest.index[rest.verdict == "confirmed"][:N_CONFIRMED]]
        for index in first:
            row = frame.loc[index]
            tokens = [_code(describe(row[name])) for name in ("source", "destination", "out")]
            within = f"{row.lift_within:.2f} ({row.lift_within_low:.2f} to {_bound(row.lift_within_high)})"
            pooled = _number(row.lift, ".2f") + (" ≠" if row.lifts_disagree else "")
            numbers = [f"{row.effect:.2f}", f"{row.followed:,} of {row.occurrences:,}"]
            numbers += ["–" if row.lift_within != row.lift_within else within, pooled]
            numbers += [_number(row.measured_attention, ".2f"), _number(row.measured_effect, ".2f")]
            numbers.append(_number(row.ablation_change, "+.2f"))
            cells = [f"{evidence.table.layer}.{evidence.table.head}", str(row["rank"]), *tokens, *numbers, row.verdict]
            instance = next((e for e in evidence.examples if e.row == index and e.follows), None)
            yield f"| {' | '.join([*cells, _instance(model, instance)])} |"
    yield ""


def _number(value: float, form: str) -> str:
    return "–" if value != value else format(value, form)


def _bound(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.2f}"


def _code(text: str) -> str:
    """Write text as code in a cell of a Markdown table."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _instance(model: AttentionOnlyTransformer, example: Example | None) -> str:
    """Return some text from the source to the out."""
    if example is None or model.tokenizer is None:
        return "–"
    text = "".join(model.tokenizer.str_tokens(example.tokens[example.source_position :].tolist()))
    if len(text) > 2 * _MAX_AROUND:
        text = f"{text[: _MAX_AROUND // 3]} … {text[-_MAX_AROUND:]}"
    return _code("".join(char if char == " " else glyphs(char) for char in text).strip())


def bug_lines(min_count: int, results: Sequence[OfHead]) -> Iterator[str]:
    """Yield lines of what pairs of confirmed rows force, and the largest of it that the text contradicts."""
    yield "### False triples that true ones force"
    yield ""
    among = f"tokens with at least {min_count:,} training counts" if min_count else "all tokens"
    yield (
        "A head's score factors into f(source, destination) · f(source, out), so two confirmed rows with one source, "
        "(a, b → c) and (a, b′ → c′), force (a, b → c′) and (a, b′ → c) (`aotlens.trigrams.skip_trigram_bugs`). Of the "
        f"tables among {among}; *false*: common enough to be judged, and the out comes less often than after the "
        "destination anyway, within stretches of a document (lift within documents below 1)."
    )
    yield ""
    yield "| head | confirmed rows | triples forced | confirmed themselves | false | too rare |"
    yield "| --- " * 6 + "|"
    listed: list[tuple[float, str]] = []
    for result in results:
        bugs = result.bugs
        verdicts = bugs.verdict
        yield (
            f"| 0.{result.head} | {result.found.n_confirmed} | {len(bugs)} | {verdicts.count('confirmed')} "
            f"| {int(bugs.false.sum())} | {verdicts.count('too rare')} |"
        )
        frame = bugs.to_frame()
        for _, bug in frame[frame.false].iterrows():
            listed.append((bug.forced_effect, _bug_row(f"0.{result.head}", bug)))
    yield ""
    if not listed:
        return
    yield f"The {min(N_BUGS, len(listed))} with the largest forced effect, with how often each out follows its pair:"
    yield ""
    yield "| head | true | and | force | effect | lift within documents |"
    yield "| --- " * 6 + "|"
    yield from (line for _, line in sorted(listed, key=lambda pair: -pair[0])[:N_BUGS])
    yield ""


def _bug_row(head: str, bug: Any) -> str:
    def triple(destination: str, out: str, counts: str) -> str:
        return f"{_code(describe(bug.source))} … {_code(describe(destination))} → {_code(describe(out))}: {counts}"

    cells = [
        head,
        triple(bug.destination, bug.out, f"{bug.followed:,}"),
        triple(bug.other_destination, bug.other_out, f"{bug.other_followed:,}"),
        triple(bug.destination, bug.other_out, f"{bug.forced_followed:,} of {bug.forced_occurrences:,}"),
        f"{bug.forced_effect:.2f}",
        _number(bug.forced_lift_within, ".2f"),
    ]
    return f"| {' | '.join(cells)} |"


def ensemble_check_on(model: AttentionOnlyTransformer, ids: np.ndarray) -> EnsembleCheck:
    """Check Theorem 25 on the first eight windows of the text."""
    width = model.cfg.n_ctx
    tokens = torch.from_numpy(ids[: min(8, max(len(ids) // width, 1)) * width].copy())
    return ensemble_check(model, tokens.view(-1, min(width, len(tokens))))


def direct_path_lines(model: AttentionOnlyTransformer, ids: np.ndarray) -> Iterator[str]:
    """Yield the zero-layer part of the model against the text's bigrams, and Theorem 25."""
    counts = count_bigrams(model, ids)
    alone = zero_layer(model, counts)
    yield "### The direct path, and Theorem 25"
    yield ""
    yield (
        f"What the last token alone predicts through W_E W_U is {alone.mean_kl:.2f} nats a token from the text's "
        f"{counts.n:,} bigrams (KL, frequency-weighted; their own entropy is {alone.entropy:.2f}). A prediction of "
        f"unigram frequencies is {alone.unigram_kl:.2f} from them."
    )
    itself = own_token_heads(model)
    if itself:
        added = zero_layer(model, counts, heads=itself)
        names = " and ".join(f"0.{head}" for _, head in itself)
        yield (
            f"{'Heads' if len(itself) > 1 else 'Head'} {names} attend to the token itself whatever it is, so what they "
            f"write belongs to the bigrams: with their OV circuits added the distance is {added.mean_kl:.2f}."
        )
    check = ensemble_check_on(model, ids)
    n_tokens = next(iter(check.terms.values())).shape[:-1].numel()
    yield ""
    yield (
        f"Theorem 25, on {n_tokens:,} tokens: the sum of the bigram term and of every head's skip-trigrams is "
        f"the model's logits to {check.residual:.1g}, where the largest term is {check.largest:.3g}."
    )
