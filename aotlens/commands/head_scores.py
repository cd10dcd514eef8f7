"""``aotlens head-scores``: what heads do with what they attend to, each score beside its chance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    TokenBar,
    check_csv,
    load_ours,
    print_text,
    table,
    write_csv,
)
from aotlens.conventions import head_name


def head_scores_command(
    checkpoint: Checkpoint,
    corpus: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Text for the scores that read one: dir:PATH, stdlib, hf:….")
    ] = None,
    sequences: Annotated[
        int, typer.Option(min=2, max=MOST_ROWS, metavar="N", help="Windows of it, spread over it.")
    ] = 32,
    score: Annotated[
        list[str], typer.Option(metavar="NAME", help="Only this score, as anti_induction; repeatable.")
    ] = [],  # noqa: B006 (Typer copies it)
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Pairs of prompts, an object of JSON a line (patching.md).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_NUMBER, help="Of the random tokens.")] = 0,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """Score every head for what it does with what it attends to: a row a head, each score with its chance in brackets.

    Of text that the checkpoint was trained on, only the documents that were held out are read. Below the table stand
    the heads that reach a score's threshold, and the scores that could not be measured, with the reason.
    """
    from aotlens.checkpoints import shared_held_out_windows
    from aotlens.data import PromptPairs
    from aotlens.heads import head_scores

    check_csv(csv, force)
    model = load_ours("head-scores", checkpoint, device, folders)
    windows, documents = (None, None) if corpus is None else shared_held_out_windows([model], corpus, sequences)
    prompts = None if pairs is None else PromptPairs.from_jsonl(model, pairs)
    with TokenBar("scores") as bar:
        result = head_scores(model, windows, score or None, pairs=prompts, clusters=documents, seed=seed, progress=bar)
    if csv is not None:
        write_csv(result.to_frame(), csv)
        return
    heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    lines: list[tuple[str, ...]] = [("head", *(name.replace("_", " ") for name in result.measured))]
    places = [result.scores.index(name) for name in result.measured]
    for head in heads:
        cells = (f"{result.values[(place, *head)]:.3f} ({result.chance[(place, *head)]:.3f})" for place in places)
        lines.append((head_name(head), *cells))
    print_text(table(lines))
    for head in heads:
        for sentence in result.sentences(head):
            print_text(f"{head_name(head)}: {sentence}")
    for name, reason in result.reasons.items():
        print_text(f"{name.replace('_', ' ')}: not measured, {reason}.")
