"""``aotlens bigrams``: what the last token alone predicts, and how far that is from text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.choosing import AllDocuments, Documents, documents_to_read
from aotlens.commands.shared import (
    MOST_ROWS,
    MOST_TOKENS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    check_csv,
    check_heads,
    load_ours,
    print_text,
    table,
    write_csv,
)
from aotlens.commands.trigrams import quoted, token_or_id

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.trigrams import ZeroLayer


def bigrams_command(
    checkpoint: Checkpoint,
    k: Annotated[
        int,
        typer.Option(
            "--k", min=1, max=MOST_ROWS, metavar="N", help="How many entries; with --token, of each; with --kl, tokens."
        ),
    ] = 20,
    token: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Predicted tokens after this one (' the'), or its id (#262). Several times for more.",
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    head: Annotated[
        list[str],
        typer.Option(
            metavar="L.H",
            callback=check_heads,
            help="Add what this head writes if it attends to the last token and to nothing else. Several times for "
            "more.",
        ),
    ] = [],  # noqa: B006
    corpus: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Hold it against text: novels, stdlib, file:PATH, dir:PATH or hf:NAME."),
    ] = None,
    document: Documents = [],  # noqa: B006
    all_documents: AllDocuments = False,
    max_tokens: Annotated[
        int, typer.Option(min=2, max=MOST_TOKENS, metavar="N", help="How much of the text to read.")
    ] = 1_000_000,
    kl: Annotated[
        bool, typer.Option("--kl", help="With --corpus: tokens instead of entries, by their part of the distance.")
    ] = False,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """List the largest entries of the direct path W_E W_U, exactly: what the last token alone predicts.

    logit is above the mean over second tokens; predicted, P(second | first) if there were nothing but this path.

    With --corpus, how often second follows first there, and how far the path's prediction is from the text's bigrams:
    KL in nats a token, weighted by frequency, beside that of a prediction of unigram frequencies.
    """
    from aotlens.data import open_corpus
    from aotlens.trigrams import bigrams, count_bigrams, zero_layer

    check_csv(csv, force)
    if kl and corpus is None:
        raise ValueError("--kl: a distance from text needs one: --corpus SPEC.")
    for option, value in (("--document", document), ("--all-documents", all_documents)):
        if value and corpus is None:
            raise ValueError(f"{option}: names a part of a text: --corpus SPEC.")
    text = None if corpus is None else open_corpus(corpus)
    model = load_ours("bigrams", checkpoint, device, folders)
    chosen = [token_or_id(word) for word in token]
    counts, which = None, ""
    if text is not None:
        documents, which = documents_to_read(model, text, str(corpus), document, all_documents)
        counts = count_bigrams(model, text, max_tokens=max_tokens, documents=documents)
    held = None if counts is None else zero_layer(model, counts, heads=head)
    pairs = bigrams(model, k, tokens=chosen or None, heads=head, corpus=counts)
    if held is not None and kl:
        frame = held.to_frame()
        if chosen:
            frame = frame[frame.token_id.isin(pairs.first)]
        frame = frame.head(k)
    else:
        frame = pairs.to_frame()
        if held is not None:
            frame = frame.assign(first_kl=held.kl[pairs.first])
    if csv is not None:
        write_csv(frame, csv)
    else:
        names = "".join(f" + head {layer}.{number}" for layer, number in pairs.heads)
        print_text(f"W_E W_U{names}" + (f". Relative, since {pairs.relative}" if pairs.relative else "") + "\n")
        print_text(_tokens_as_text(frame) if kl else _as_text(frame))
    if held is not None and counts is not None:
        print_text(("" if csv is not None else "\n") + _summary(held, counts.n, which))


def _summary(held: ZeroLayer, n: int, corpus: str) -> str:
    return (
        f"{n:,} bigrams of {corpus}: {held.mean_kl:.3f} nats a token from them (KL, weighted by frequency); unigram "
        f"frequencies are {held.unigram_kl:.3f} from them, and their own entropy is {held.entropy:.3f}."
    )


def _as_text(frame: pd.DataFrame) -> str:
    """Write the table as text: tokens quoted, numbers rounded."""
    counted = "count" in frame
    columns = ["first", "second", "logit", "predicted"] + (["in text", "count", "KL of first"] if counted else [])
    lines: list[tuple[str, ...]] = [tuple(columns)]
    for _, row in frame.iterrows():
        cells = [quoted(row["first"], row.first_id), quoted(row.second, row.second_id), f"{row.logit:.3g}"]
        cells.append(f"{row.predicted:.2%}")
        if counted:
            cells += [_number(row.probability, ".2%"), f"{row['count']:,}", _number(row.first_kl, ".2f")]
        lines.append(tuple(cells))
    return table(lines)


def _tokens_as_text(frame: pd.DataFrame) -> str:
    lines: list[tuple[str, ...]] = [("token", "count", "frequency", "KL", "part of the mean KL")]
    for _, row in frame.iterrows():
        cells = (quoted(row.token, row.token_id), f"{row['count']:,}", f"{row.frequency:.2%}", f"{row.kl:.2f}")
        lines.append((*cells, f"{row.part:.4f}"))
    return table(lines)


def _number(value: float, form: str) -> str:
    return "-" if value != value else format(value, form)
