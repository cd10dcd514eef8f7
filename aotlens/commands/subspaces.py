"""``aotlens subspaces``: the subspaces that heads read, and how much they overlap."""

from __future__ import annotations

from typing import Annotated

import typer

from aotlens.commands.shared import (
    MOST_ROWS,
    Checkpoint,
    Csv,
    Folders,
    Force,
    check_csv,
    load_ours,
    print_text,
    several,
    table,
    write_csv,
)


def subspaces_command(
    checkpoint: Checkpoint,
    top: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many pairs; --csv has them all.")
    ] = 10,
    csv: Csv = None,
    force: Force = False,
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Show the subspace that each head reads (U of MSSA, W_V otherwise), and the pairs that overlap most.

    Of each head: the dimension of its subspace; its effective rank, less than that where the head reads some directions
    more than others; and its mean overlap with the other heads of its layer, Σcos² over the principal angles, beside
    that of random subspaces, and that of random weights behind the same norm, whose gain all heads of a layer share. Of
    each pair: the overlap, its mean over random rotations and how many standard deviations it lies above it (z), its
    mean over random weights behind the norms, the largest cosine, its mean over simulated rotations, and the share of
    them that reach it (p).
    """
    from aotlens.heads import subspaces

    check_csv(csv, force)
    result = subspaces(load_ours("subspaces", checkpoint, "cpu", folders))
    frame = result.to_frame()
    if csv is not None:
        write_csv(frame, csv)
        return
    room = result.room[0].upper() + result.room[1:]
    print_text(f"Subspaces of {result.matrix} in {several(result.width, 'dimension')}. {room}.\n")
    lines: list[tuple[str, ...]] = [("head", "rank", "effective", "overlap in its layer", "random", "behind the norm")]
    for row in result.head_frame().itertuples():
        overlaps = (row.overlap, row.random_mean, row.behind_gain_mean)
        shared = (f"{value:.3g}" if result.bases.shape[1] > 1 else "" for value in overlaps)
        lines.append((f"{row.layer}.{row.head}", str(row.rank), f"{row.effective_rank:.1f}", *shared))
    print_text(table(lines))
    if frame.empty:
        return
    lines = [
        ("first", "second", "overlap", "random: mean", "sd", "z", "behind the norms", "largest cosine", "random", "p")
    ]
    for row in frame.head(top).itertuples():
        pair = (f"{row.first_layer}.{row.first_head}", f"{row.second_layer}.{row.second_head}")
        rotated = (f"{row.overlap:.3f}", f"{row.random_mean:.3f}", f"{row.random_std:.2g}", f"{row.z:.1f}")
        overlap = (*rotated, f"{row.behind_gain_mean:.3f}")
        largest = (f"{row.largest_cosine:.4f}", f"{row.random_largest:.4f}", f"{row.p_largest:.2g}")
        lines.append((*pair, *overlap, *largest))
    print_text(f"\n{table(lines)}")
