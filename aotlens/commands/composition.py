"""``aotlens composition``: which heads read what which heads write."""

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


def composition_command(
    checkpoint: Checkpoint,
    mode: Annotated[
        str, typer.Option(metavar="q|k|v", help="What the later head reads with: its queries, keys or values.")
    ] = "q",
    top: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many pairs; --csv has them all.")
    ] = 20,
    folded: Annotated[
        bool, typer.Option("--folded", help="With the norms' gains and centring in the weights, not the bare weights.")
    ] = False,
    csv: Csv = None,
    force: Force = False,
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """List the pairs of heads in which the later one reads most of what the earlier one writes.

    Pairs are sorted by their Frobenius ratio. Beside it: the earlier head's place among all that the later head can
    read; whether the pair lies above its null (the same two heads, one of them turned at random against the other) at
    a false discovery rate of 5% over all pairs; the share of such rotations that reach the product's norm (p above) or
    stay at or below it (p below); how many standard deviations the norm's square lies above its mean over rotations
    (z); the norm; and that mean and standard deviation.
    """
    from aotlens.circuits import composition

    check_csv(csv, force)
    model = load_ours("composition", checkpoint, "cpu", folders)  # which is where it is computed
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
        f"{mode} composition{same}. {result.edges.sum()} of {several(len(frame), 'pair')} above their null, the same "
        f"two heads turned at random ({result.n_random:,} rotations; false discovery rate 5%). Turned at random, every "
        f"pair has a root mean square of {result.random_rms:.4f}.\n"
    )
    titles = ("composition", "place", "above null", "p above", "p below", "z", "norm", "norm² turned: mean", "sd")
    lines: list[tuple[str, ...]] = [("earlier", "later", *titles)]
    for row in frame.head(top).itertuples():
        pair = (f"{row.earlier_layer}.{row.earlier_head}", f"{row.later_layer}.{row.later_head}")
        place = f"{row.rank} of {row.later_layer * model.cfg.n_heads}"
        tails = (f"{row.p_above:.2g}", f"{row.p_below:.2g}", f"{row.z:.1f}")
        sizes = (f"{row.norm:.3g}", f"{row.random_mean:.3g}", f"{row.random_std:.2g}")
        lines.append((*pair, f"{row.composition:.4f}", place, "yes" if row.edge else "no", *tails, *sizes))
    print_text(table(lines))
