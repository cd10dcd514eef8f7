"""``aotlens audit``: whether the layers of a checkpoint move tokens into the subspaces that their heads read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    card_of,
    check_csv,
    check_out,
    corpus_name,
    load_ours,
    print_text,
    several,
    table,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd


def audit_command(
    checkpoint: Checkpoint,
    corpus: Annotated[str, typer.Option(metavar="SPEC", help="Text to read: stdlib, file:PATH, dir:PATH, hf:NAME.")],
    tokens: Annotated[
        int, typer.Option(min=6, max=MOST_ROWS, metavar="N", help="How many of its tokens, in windows.")
    ] = 2048,
    draws: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Random rotations, and random groups.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, max=MOST_NUMBER, help="Of these.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the audit and the windows here, in NAME.safetensors.")
    ] = None,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Measure the signal-to-noise ratio (SNR) of every layer's tokens in its heads' subspaces, before and after it.

    The text is that which the checkpoint's card held out from training, where the corpus has some of it. Token 0 of
    each window is left out. Tokens count for every head ("all tokens"), for the head whose subspace holds most of them
    ("subspace"), or for the head whose pattern puts most on one key ("pattern"). ratio = SNR after ÷ before; writes
    rotated: the same had the layer written the same rotated by one random rotation; p above and below = (1 + rotations
    as extreme) ÷ (1 + rotations). rotated subspaces: SNR before the layer in randomly rotated subspaces.

    With --out, aotlens.results.load reads the file again.
    """
    check_csv(csv, force)
    if out is not None:
        check_out(out, force)

    from aotlens.data import open_corpus
    from aotlens.data.sources import portable_spec
    from aotlens.denoise import AuditRecord, audit
    from aotlens.distill import held_out_windows
    from aotlens.results import load

    if out is not None and out.exists():
        load(out, AuditRecord)  # only an audit is overwritten
    text = open_corpus(corpus)
    model = load_ours("audit", checkpoint, device, folders)
    info = card_of(model, checkpoint, folders)
    windows = held_out_windows(model, text, tokens)
    result = audit(model, windows, n_draws=draws, seed=seed)
    if out is not None:
        spec = portable_spec(corpus)
        sizes = f"--tokens {tokens} --draws {draws} --seed {seed}"
        record = AuditRecord(
            audit=result,
            checkpoint=info.name,
            weights_sha256=info.weights_sha256,
            tokens=windows,
            corpus=corpus_name(info, text),
            documents=tuple(info.held_out(text.names())),
            seed=seed,
            command=f"aotlens audit {info.name} --corpus {spec} {sizes}",
        )
        record.save(out, compact=True)
    frame = result.to_frame()
    if csv is not None:
        write_csv(frame, csv)
    else:
        read = f"{several(windows.shape[0], 'window')} of {windows.shape[1]} tokens"
        print_text(f"SNR in the subspaces of {result.matrix}, {read}, {several(draws, 'rotation')}.\n")
        print_text(_as_text(frame))
    if out is not None:
        print_text(f"{out}: saved")


def _as_text(frame: pd.DataFrame) -> str:
    """One line a grouping and layer."""
    null = ("writes rotated: mean", "least", "largest", "p above", "p below")
    lines: list[tuple[str, ...]] = [("tokens", "layer", "SNR", "rotated subspaces", "ratio", *null)]
    for row in frame.itertuples():
        values = (row.snr, row.rotated_snr, row.ratio, row.null_ratio, row.null_least, row.null_largest)
        tails = (f"{row.p_above:.2g}", f"{row.p_below:.2g}")
        lines.append((row.grouping, str(row.layer), *(f"{value:.3f}" for value in values), *tails))
    return table(lines)
