"""``aotlens motifs``: which heads are previous-token, first-token or induction heads."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Checkpoint,
    Csv,
    Folders,
    Force,
    check_csv,
    print_text,
    table,
    write_csv,
)


def motifs_command(
    checkpoint: Checkpoint,
    motif: Annotated[
        list[str], typer.Option(metavar="NAME", help="Only this motif, as previous_token or induction; repeatable.")
    ] = [],  # noqa: B006 (Typer copies it)
    half_length: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Random tokens before they are repeated.")
    ] = 50,
    sequences: Annotated[int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many such sequences.")] = 16,
    start: Annotated[
        str, typer.Option(metavar="ID|none", help="The start token's id, or none; default: the checkpoint's own.")
    ] = "own",
    seed: Annotated[int, typer.Option(min=0, max=MOST_NUMBER, help="Of the random tokens.")] = 0,
    csv: Csv = None,
    force: Force = False,
    folders: Folders = [],  # noqa: B006
) -> None:
    """Score every head for every motif on repeated random tokens: its mean attention to the motif's keys.

    Scores run from 0 to 1 for a softmax; the last row is chance, what uniform attention over the keys that a query sees
    would score. A head's label is the motif that exceeds chance most, of those that reach 0.4.
    """
    from aotlens.checkpoints import load
    from aotlens.heads import motif_scores

    check_csv(csv, force)
    scores = motif_scores(
        load(checkpoint, "cpu", folders=folders),
        motifs=motif or None,
        n_sequences=sequences,
        half_length=half_length,
        start=_start(start),
        seed=seed,
    )
    if csv is not None:
        write_csv(scores.to_frame(), csv)
        return
    measured = [name for name in scores.motifs if name not in scores.reasons]
    lines: list[tuple[str, ...]] = [("head", *(name.replace("_", " ") for name in measured), "label")]
    for layer, labels in enumerate(scores.labels()):
        for head, label in enumerate(labels):
            cells = (f"{scores[name][layer, head]:.3f}" for name in measured)
            lines.append((f"{layer}.{head}", *cells, label.replace("_", " ")))
    assert scores.uniform is not None
    chance = (f"{scores.uniform[scores.motifs.index(name)].mean():.3f}" for name in measured)
    lines.append(("even", *chance, "what uniform attention scores"))
    print_text(f"Mean attention on {scores.about}.\n")
    print_text(table(lines))
    for name, reason in scores.reasons.items():
        print_text(f"{name.replace('_', ' ')}: not measured, {reason}.")


def _start(text: str) -> int | Literal["own"] | None:
    if text in ("own", "none"):
        return "own" if text == "own" else None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"--start {text}: expected a token id or none.")
    return int(text)
