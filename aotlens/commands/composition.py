"""``aotlens composition``: which heads read what which heads write."""

from __future__ import annotations

from typing import Annotated

import typer

from aotlens.commands.shared import Checkpoint, Csv, Folders, Force, check_csv, print_text, table, write_csv


def composition_command(
    checkpoint: Checkpoint,
    mode: Annotated[
        str, typer.Option(metavar="q|k|v", help="What the later head reads with: its queries, keys or values.")
    ] = "q",
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many pairs; --csv has them all.")] = 20,
    folded: Annotated[
        bool, typer.Option("--folded", help="With the norms' gains and centring in the weights, not the bare weights.")
    ] = False,
    csv: Csv = None,
    force: Force = False,
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """List the pairs of heads in which the later one reads most of what the earlier one writes.

    Beside each Frobenius ratio: how many standard deviations it is above independent random heads of the same
    shapes, by which pairs are sorted.
    """
    from aotlens.checkpoints import load
    from aotlens.circuits import composition

    check_csv(csv, force)
    model = load(checkpoint, "cpu", folders=folders)  # which is where it is computed
    result = composition(model, mode, folded=folded)
    frame = result.to_frame()
    if csv is not None:
        write_csv(frame, csv)
        return
    if frame.empty:
        print_text("This model has one layer, and so no pair of heads that could compose.")
        return
    other = {"q": "k", "k": "q"}.get(mode)
    same = (
        f" (and {other} composition: MSSA has one matrix for both)" if model.cfg.attention == "mssa" and other else ""
    )
    print_text(
        f"{mode} composition{same}. Independent random heads: mean {result.random_mean:.4f}, standard deviation "
        f"{result.random_std:.4f}.\n"
    )
    lines: list[tuple[str, ...]] = [("earlier", "later", "composition", "z")]
    for row in frame.head(top).itertuples():
        pair = (f"{row.earlier_layer}.{row.earlier_head}", f"{row.later_layer}.{row.later_head}")
        lines.append((*pair, f"{row.composition:.4f}", f"{row.z:.1f}"))
    print_text(table(lines))
