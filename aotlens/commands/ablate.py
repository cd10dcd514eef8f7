"""``aotlens ablate``: what a model loses without a head, on a prompt or on text."""

from __future__ import annotations

from typing import Annotated

import typer

from aotlens.commands.choosing import AllDocuments, Documents, documents_to_read
from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    Ids,
    check_csv,
    check_heads,
    load_ours,
    print_text,
    prompt,
    several,
    table,
    write_csv,
)


def ablate_command(
    checkpoint: Checkpoint,
    head: Annotated[
        list[str],
        typer.Option(
            metavar="L.H",
            callback=check_heads,
            help="Without this head; repeatable: without all of them. Default: each alone.",
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="A prompt to measure on.")] = None,
    ids: Ids = None,
    corpus: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Text to measure on; beside --text, what means and resampling are taken of."),
    ] = None,
    how: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="zero, mean, position_mean (the mean at each position), uniform (attention spread evenly), "
            "fixed_pattern (the mean pattern) or resample (another sequence's output).",
        ),
    ] = "zero",
    sequences: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Windows of the corpus, spread over it.")
    ] = 64,
    document: Documents = [],  # noqa: B006
    all_documents: AllDocuments = False,
    seed: Annotated[int, typer.Option(min=0, max=MOST_NUMBER, help="Of resampling.")] = 0,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """Measure the next-token loss with and without a head: the change in nats, and its 95% interval over documents.

    Without --head, every head is left out alone. Windows leave themselves out of the means that stand in for a head,
    unless --text is measured against the means of --corpus. Windows of one document depend on each other; of fewer than
    three documents there is no interval, and the change is of these texts.
    """
    import pandas as pd

    from aotlens.data import Encoding, open_corpus, windows_with_documents
    from aotlens.heads import ablate

    check_csv(csv, force)
    if text is None and ids is None and corpus is None:
        raise ValueError("expected something to measure on: --text TEXT, --ids IDS or --corpus SPEC.")
    source = None if corpus is None else open_corpus(corpus)
    model = load_ours("ablate", checkpoint, device, folders)
    tokens = prompt(model, text, ids)
    windows, clusters, which = None, None, "the prompt"
    if source is not None:
        documents, read = documents_to_read(model, source, str(corpus), document, all_documents)
        width = model.cfg.n_ctx if tokens is None else tokens.shape[1]
        encoding = Encoding.of(model.tokenizer)
        windows, clusters = windows_with_documents(source, documents or source.names(), encoding, sequences, width)
        which = f"{several(len(windows), 'window')} of {windows.shape[1]} tokens of {read}"
        which = which if tokens is None else f"the prompt, against {which}"
    inputs, reference, clusters = (windows, None, clusters) if tokens is None else (tokens, windows, None)
    assert inputs is not None
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    each = [[f"{layer}.{number}"] for layer in range(n_layers) for number in range(n_heads)]
    results = {
        " + ".join(names): ablate(model, inputs, names, how, reference=reference, clusters=clusters, seed=seed)
        for names in ([head] if head else each)
    }
    if csv is not None:
        frames = [result.to_frame().assign(head=name) for name, result in results.items()]
        table_of_all = pd.concat(frames)
        write_csv(table_of_all[["head", *table_of_all.columns.drop("head")]], csv)
        return
    lines: list[tuple[str, ...]] = [("without", "loss", "change", "95% from", "to")]
    for name, result in results.items():
        low, high = (f"{end:+.4f}" if end == end else "" for end in result.interval())
        lines.append((name, f"{result.ablated_mean:.4f}", f"{result.change:+.4f}", low, high))
    clean = next(iter(results.values())).clean_mean
    print_text(f"Next-token loss of the full model {clean:.4f} nats, on {which}; ablated by {how}.\n")
    print_text(table(lines))
