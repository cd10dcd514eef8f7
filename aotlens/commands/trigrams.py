"""``aotlens trigrams`` and ``bigrams``: a head's skip-trigrams, what the last token alone predicts, and both compared
with text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from aotlens.commands import options
from aotlens.commands.shared import (
    Context,
    Parts,
    TokenBar,
    command,
    documents_to_read,
    print_text,
    several,
)

if TYPE_CHECKING:
    pass

Filter = Annotated[
    list[str], options.word("Only this token (' the'), or its id (#262). Several times for more.", "TEXT")
]
Compared = Annotated[
    str | None, options.word("Compare with text: novels, stdlib, file:PATH, dir:PATH or hf:NAME.", "SPEC")
]

_TOKENS: tuple[str, ...] = ("source", "destination", "out")
_WEIGHTS: tuple[str, ...] = (*_TOKENS, "qk", "attention", "ov", "effect")
_EVIDENCE = (
    *_TOKENS, "effect", "occurrences", "followed", "lift", "lift_within", "lift_within_low", "lift_within_high",
    "lifts_disagree", "measured_attention", "measured_effect", "ablation_change", "verdict_by_document", "verdict",
)  # fmt: skip
_BUGS = (
    *_TOKENS, "followed", "other_destination", "other_out", "other_followed", "forced_effect", "forced_occurrences",
    "forced_followed", "forced_lift_within", "forced_verdict", "false",
)  # fmt: skip
#: Tokens of folded rows that a line names.
_MOST_OTHERS = 3


@command("trigrams")
def trigrams_command(
    context: Context,
    checkpoint: options.Checkpoint,
    head: options.Head,
    k: Annotated[int, options.whole("How many rows.", 1, options.MOST_ROWS, "--k")] = 20,
    score: Annotated[
        str, options.word("Rank by attention × ov; by z + ov; or by z × ov where z > 0.", "effect|sum|product")
    ] = "effect",
    lowest: Annotated[bool, options.flag("lowest", "The lowest scores: what the head suppresses.")] = False,
    distance: Annotated[
        str | None, options.word("With positions: the source N tokens back, or the mean over distances.", "N|mean")
    ] = None,
    source: Filter = [],
    destination: Filter = [],
    out: Filter = [],
    min_count: Annotated[
        int,
        options.whole(
            "Only tokens with at least so many training counts, where none is named.", 0, options.MOST_NUMBER
        ),
    ] = 0,
    fold: Annotated[
        list[str],
        options.word(
            "Fold rows that differ from a better one in this token only beneath it. Several times for more.",
            "source|destination|out",
        ),
    ] = [],
    depth: Annotated[int, options.whole("With --fold: of how many rows the first --k groups are listed.")] = 20_000,
    evidence: Compared = None,
    document: options.Documents = [],
    all_documents: options.AllDocuments = False,
    max_tokens: Annotated[int, options.whole("How much of the text to read.", 1, options.MOST_TOKENS)] = 1_000_000,
    bugs: Annotated[
        str | None,
        options.word(
            "With --evidence: instead of the rows, the false ones that pairs of them force: of confirmed rows, or of "
            "all.",
            "confirmed|all",
        ),
    ] = None,
) -> Parts:
    """List a head's skip-trigrams (source ... destination -> out), the best of all, from its weights.

    qk is the destination's score for the source above what it scores average text, in nats; attention the source's
    share against half a context of such text; ov what attending to the source adds to the out's logit, above the
    mean over outs; effect = attention × ov.

    With --fold source, rows are grouped by (destination, out): the best source stands for the group, rows is the
    group's size, and other_sources begins with its next best.

    With --evidence, every row is compared with text: how often the source comes before the destination, how much
    likelier the out is then, over all places (lift) and within stretches of 8 windows of one document (lift_within,
    with its 95% interval), what the head does there, and a verdict. Confirmed: within stretches the out is likelier
    than after the destination anyway, at a false discovery rate of 5%, stretches taken as independent.
    lifts_disagree: the two lie on different sides of 1, so the source tells which document or passage it is.
    verdict_by_document: the same with whole documents for stretches; too rare where there are fewer than 5.

    With --bugs, what the rows force: a head that says `keep ... in -> mind` and `keep ... at -> bay` also says
    `keep ... in -> bay`: source ... destination -> other_out. false: the text has enough of that pair, and the out
    comes less often than after the destination anyway.
    """
    import numpy as np

    from aotlens.data import open_corpus
    from aotlens.trigrams import evidence as find_evidence
    from aotlens.trigrams import fold_rows, skip_trigram_bugs, skip_trigrams

    if bugs not in (None, "confirmed", "all"):
        raise ValueError(f"--bugs {bugs}: expected confirmed or all.")
    for option, value in (("--bugs", bugs), ("--document", document), ("--all-documents", all_documents)):
        if value and evidence is None:
            raise ValueError(f"{option}: needs text to compare the rows with: --evidence SPEC.")
    corpus = None if evidence is None else open_corpus(evidence)
    model = context.model(checkpoint)
    sources, destinations, outs = (
        [_token_or_id(text) for text in texts] or None for texts in (source, destination, out)
    )
    triples = skip_trigrams(
        model,
        head,
        k=max(k, depth) if fold else k,
        score=score,
        largest=not lowest,
        sources=sources,
        destinations=destinations,
        outs=outs,
        min_count=min_count,
        distance=int(distance) if distance is not None and distance.isdecimal() else distance,
    )
    groups = None
    if fold:
        folded = fold_rows(triples, fold)
        triples, groups = folded.groups.take(np.arange(min(k, len(folded)))), folded.to_frame().head(k)
    if corpus is None:
        frame, summary, columns = triples.to_frame() if groups is None else groups, "", _WEIGHTS
    else:
        documents, which = documents_to_read(model, corpus, str(evidence), document, all_documents)
        read: dict[str, Any] = {"max_tokens": max_tokens, "documents": documents}
        with TokenBar() as bar:
            held = find_evidence(model, triples, corpus, progress=bar, **read)
        verdicts = ", ".join(f"{number} {word}" for word, number in held.summary().items())
        summary = f"{held.n_tokens:,} tokens of {which}: {verdicts}. {held.assumption}"
        frame, columns = held.to_frame(), _EVIDENCE
        if bugs is not None:
            confirmed = bugs == "confirmed"
            with TokenBar() as bar:
                forced = skip_trigram_bugs(model, held, corpus, only_confirmed=confirmed, progress=bar, **read)
            pairs = "of confirmed rows" if confirmed else "of rows"
            summary += f"\n{several(len(forced), 'triple')} forced by pairs {pairs}; false: {int(forced.false.sum())}."
            frame, columns, groups = forced.to_frame(), _BUGS, None
    if groups is not None:
        of_groups = ["rows", *(f"other_{name}s" for name in dict.fromkeys(fold))]
        frame, columns = frame.assign(**{name: groups[name] for name in of_groups}), (*columns, *of_groups)
    context.write(frame)
    if bugs is not None and frame.empty:
        yield "No two of these rows have one source, and different destinations and outs: nothing is forced."
    else:
        yield f"Head {head}" + (f". Relative, since {triples.relative}" if triples.relative else "")
        listing = frame if bugs is None else frame.head(k)
        yield listing[[name for name in listing if name.removesuffix("_id") in columns]]
        if len(listing) < len(frame):
            yield f"... and {len(frame) - len(listing):,} more: --k N for more of them, --csv FILE for all."
    if summary:
        print_text(summary if context.csv is not None else f"\n{summary}")


def _token_or_id(text: str) -> int | str:
    """Read `#262` as the id 262; anything else is a token's text."""
    return int(text[1:]) if text[:1] == "#" and text[1:].isdecimal() else text


@command("bigrams")
def bigrams_command(
    context: Context,
    checkpoint: options.Checkpoint,
    k: Annotated[
        int, options.whole("How many entries; with --token, of each; with --kl, tokens.", 1, options.MOST_ROWS, "--k")
    ] = 20,
    token: Annotated[
        list[str],
        options.word("Predicted tokens after this one (' the'), or its id (#262). Several times for more.", "TEXT"),
    ] = [],
    head: Annotated[
        list[str],
        options.heads(
            "Add what this head writes if it attends to the last token and to nothing else. Several times for more."
        ),
    ] = [],
    corpus: Compared = None,
    document: options.Documents = [],
    all_documents: options.AllDocuments = False,
    max_tokens: Annotated[int, options.whole("How much of the text to read.", 2, options.MOST_TOKENS)] = 1_000_000,
    kl: Annotated[
        bool, options.flag("kl", "With --corpus: tokens instead of entries, by their part of the distance.")
    ] = False,
) -> Parts:
    """List the largest entries of the direct path W_E W_U, exactly: what the last token alone predicts.

    logit is above the mean over second tokens; predicted, P(second | first) if there were nothing but this path.

    With --corpus, how often second follows first there, and how far the path's prediction is from the text's bigrams:
    KL in nats per token, weighted by frequency, compared with that of a prediction of unigram frequencies.
    """
    from aotlens.data import open_corpus
    from aotlens.trigrams import bigrams, count_bigrams, zero_layer

    if kl and corpus is None:
        raise ValueError("--kl: a distance from text needs one: --corpus SPEC.")
    for option, value in (("--document", document), ("--all-documents", all_documents)):
        if value and corpus is None:
            raise ValueError(f"{option}: names a part of a text: --corpus SPEC.")
    text = None if corpus is None else open_corpus(corpus)
    model = context.model(checkpoint)
    first_tokens = [_token_or_id(word) for word in token]
    counts, which = None, ""
    if text is not None:
        documents, which = documents_to_read(model, text, str(corpus), document, all_documents)
        counts = count_bigrams(model, text, max_tokens=max_tokens, documents=documents)
    held = None if counts is None else zero_layer(model, counts, heads=head)
    pairs = bigrams(model, k, tokens=first_tokens or None, heads=head, corpus=counts)
    if held is not None and kl:
        frame = held.to_frame()
        frame = (frame[frame.token_id.isin(pairs.first)] if first_tokens else frame).head(k)
    else:
        frame = pairs.to_frame()
        if held is not None:
            frame = frame.assign(first_kl=held.kl[pairs.first])
    context.write(frame)
    names = "".join(f" + head {layer}.{number}" for layer, number in pairs.heads)
    yield f"W_E W_U{names}" + (f". Relative, since {pairs.relative}" if pairs.relative else "")
    yield frame
    if held is not None and counts is not None:
        print_text(
            f"{'' if context.csv else chr(10)}{counts.n:,} bigrams of {which}: {held.mean_kl:.3f} nats per token from "
            f"them (KL, weighted by frequency); unigram frequencies are {held.unigram_kl:.3f} from them, and their own "
            f"entropy is {held.entropy:.3f}."
        )
