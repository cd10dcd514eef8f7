"""``aotlens trigrams``: a head's skip-trigrams, and whether they are true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands.choosing import AllDocuments, Documents, HeadName, documents_to_read
from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    MOST_TOKENS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    TokenBar,
    check_csv,
    load_ours,
    print_text,
    several,
    table,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd

Filter = Annotated[
    list[str], typer.Option(metavar="TEXT", help="Only this token (' the'), or its id (#262). Several times for more.")
]

_TOKENS: tuple[str, ...] = ("source", "destination", "out")
_WEIGHTS: tuple[str, ...] = (*_TOKENS, "qk", "attention", "ov", "effect")
_EVIDENCE = (
    *_TOKENS, "effect", "occurrences", "followed", "lift", "lift_within", "lift_within_low", "lift_within_high",
    "lifts_disagree", "measured_attention", "measured_effect", "ablation_change", "verdict_by_document", "verdict",
)  # fmt: skip
#: Tokens of folded rows that a line names.
_MOST_OTHERS = 3
_BUGS = (
    *_TOKENS, "followed", "other_destination", "other_out", "other_followed", "forced_effect", "forced_occurrences",
    "forced_followed", "forced_lift_within", "forced_verdict", "false",
)  # fmt: skip


def trigrams_command(
    checkpoint: Checkpoint,
    head: HeadName,
    k: Annotated[int, typer.Option("--k", min=1, max=MOST_ROWS, metavar="N", help="How many rows.")] = 20,
    score: Annotated[
        str,
        typer.Option(
            metavar="effect|sum|product",
            help="Rank by attention × ov; by z + ov; or by z × ov where z > 0.",
        ),
    ] = "effect",
    lowest: Annotated[bool, typer.Option("--lowest", help="The lowest scores: what the head suppresses.")] = False,
    distance: Annotated[
        str | None,
        typer.Option(metavar="N|mean", help="With positions: the source N tokens back, or the mean over distances."),
    ] = None,
    source: Filter = [],  # noqa: B006 (Typer copies it)
    destination: Filter = [],  # noqa: B006
    out: Filter = [],  # noqa: B006
    min_count: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_NUMBER,
            metavar="N",
            help="Only tokens with at least so many training counts, where none is named.",
        ),
    ] = 0,
    fold: Annotated[
        list[str],
        typer.Option(
            metavar="source|destination|out",
            help="Fold rows that differ from a better one in this token only beneath it. Several times for more.",
        ),
    ] = [],  # noqa: B006
    depth: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_ROWS, metavar="N", help="With --fold: of how many rows the first --k groups are listed."
        ),
    ] = 20_000,
    evidence: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="Hold the rows against text: novels, stdlib, file:PATH, dir:PATH or hf:NAME."
        ),
    ] = None,
    document: Documents = [],  # noqa: B006
    all_documents: AllDocuments = False,
    max_tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="How much of the text to read.")
    ] = 1_000_000,
    bugs: Annotated[
        str | None,
        typer.Option(
            metavar="confirmed|all",
            help="With --evidence: instead of the rows, the false ones that pairs of them force: of confirmed rows, or "
            "of all.",
        ),
    ] = None,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """List a head's skip-trigrams (source ... destination -> out), the best of all, from its weights.

    qk is the destination's score for the source above what it scores average text, in nats; attention the source's
    share against half a context of such text; ov what attending to the source adds to the out's logit, above the
    mean over outs; effect = attention × ov.

    With --fold source, rows are grouped by (destination, out): the best source stands for the group, rows is the
    group's size, and other_sources begins with its next best.

    With --evidence, every row is held against text: how often the source comes before the destination, how much
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

    check_csv(csv, force)
    if bugs not in (None, "confirmed", "all"):
        raise ValueError(f"--bugs {bugs}: expected confirmed or all.")
    for option, value in (("--bugs", bugs), ("--document", document), ("--all-documents", all_documents)):
        if value and evidence is None:
            raise ValueError(f"{option}: needs text to hold the rows against: --evidence SPEC.")
    corpus = None if evidence is None else open_corpus(evidence)
    model = load_ours("trigrams", checkpoint, device, folders)
    wanted = [[token_or_id(text) for text in texts] or None for texts in (source, destination, out)]
    triples = skip_trigrams(
        model,
        head,
        k=max(k, depth) if fold else k,
        score=score,
        largest=not lowest,
        sources=wanted[0],
        destinations=wanted[1],
        outs=wanted[2],
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
            with TokenBar() as bar:
                forced = skip_trigram_bugs(
                    model, held, corpus, only_confirmed=bugs == "confirmed", progress=bar, **read
                )
            pairs = "of confirmed rows" if bugs == "confirmed" else "of rows"
            summary += f"\n{several(len(forced), 'triple')} forced by pairs {pairs}; false: {int(forced.false.sum())}."
            frame, columns, groups = forced.to_frame(), _BUGS, None
    if groups is not None:
        of_groups = ["rows", *(f"other_{name}s" for name in dict.fromkeys(fold))]
        frame, columns = frame.assign(**{name: groups[name] for name in of_groups}), (*columns, *of_groups)
    if csv is not None:
        write_csv(frame, csv)
    elif bugs is not None and frame.empty:
        print_text("No two of these rows have one source, and different destinations and outs: nothing is forced.")
    else:
        print_text(f"Head {head}" + (f". Relative, since {triples.relative}" if triples.relative else "") + "\n")
        listing = frame if bugs is None else frame.head(k)
        print_text(_as_text(listing, columns))
        if len(listing) < len(frame):
            print_text(f"... and {len(frame) - len(listing):,} more: --k N for more of them, --csv FILE for all.")
    if summary:
        print_text(summary if csv is not None else f"\n{summary}")


def token_or_id(text: str) -> int | str:
    """Read `#262` as the id 262; anything else is a token's text."""
    return int(text[1:]) if text[:1] == "#" and text[1:].isdecimal() else text


def quoted(text: str, number: int) -> str:
    """Return a token as it can be typed again: quoted, or its id where it has no string."""
    from aotlens.conventions import describe

    return describe(text) if text else f"#{number}"


def _as_text(frame: pd.DataFrame, columns: Sequence[str]) -> str:
    """Write the table as text: tokens quoted, numbers rounded."""
    lines = [tuple(columns)]
    for _, row in frame.iterrows():
        lines.append(tuple(_cell(row, name) for name in columns))
    return table(lines)


def _cell(row: Any, name: str) -> str:
    value = row[name]
    if f"{name}_id" in row:
        return quoted(value, row[f"{name}_id"])
    if isinstance(value, tuple):
        named = [quoted(text, 0) for text in value[:_MOST_OTHERS] if text]
        return " ".join([*named, *["…"] * (len(value) > _MOST_OTHERS)]) or "-"
    value = value.item() if hasattr(value, "item") else value  # numpy's numbers
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int):
        return str(value)
    return "-" if value != value else f"{value:.3g}"
