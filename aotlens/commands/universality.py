"""``aotlens universality``: which heads come again in several models."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Csv,
    Device,
    Folders,
    Force,
    check_csv,
    load_ours,
    print_text,
    table,
    write_csv,
)
from aotlens.conventions import head_name


def universality_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME ...", help="Checkpoints with the same tokens.")],
    corpus: Annotated[
        str, typer.Option(metavar="SPEC", help="Text on which patterns and effects are compared: dir:PATH, stdlib.")
    ],
    sequences: Annotated[
        int, typer.Option(min=2, max=MOST_ROWS, metavar="N", help="Windows of it, spread over it.")
    ] = 32,
    tokens: Annotated[int, typer.Option(min=8, max=4096, metavar="N", help="Tokens of each window.")] = 64,
    match: Annotated[str, typer.Option(help="Evidence that groups of heads are matched on.")] = "pattern",
    test: Annotated[str, typer.Option(help="Evidence that they are tested on.")] = "ov",
    kind: Annotated[
        list[str],
        typer.Option(metavar="NAME=KIND", help="The kind of a checkpoint, as seed-0=decay; of each, or none."),
    ] = [],  # noqa: B006 (Typer copies it)
    seed: Annotated[int, typer.Option(min=0, max=MOST_NUMBER, help="Of the permutations.")] = 0,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """Match the heads of several checkpoints on one evidence and test the matches on another.

    Evidence is one of ov, qk, pattern, content, written, effect. A line a test, with the mean of the tested evidence
    over matched heads beside that of heads permuted within their layers; whether heads are alike beyond how they attend
    by distance; a line a test and layer, with an interval over models; then a line a group of heads that are matched
    with each other, with the models that have it, and ± the standard error over documents of what comes from text. With
    models of two kinds, how much each kind's heads come again.
    """
    from aotlens.checkpoints import shared_held_out_windows
    from aotlens.heads import universality

    check_csv(csv, force)
    models = {Path(name).name: load_ours("universality", name, device, folders) for name in names}
    if len(models) < len(names):
        raise ValueError(f"expected checkpoints of different names, got {', '.join(names)}.")
    if unnamed := [each for each in kind if "=" not in each]:
        raise ValueError(f"--kind {unnamed[0]}: expected NAME=KIND, with a checkpoint's name.")
    kinds = {name: said for name, _, said in (each.rpartition("=") for each in kind)} or None
    windows = shared_held_out_windows(list(models.values()), corpus, sequences, tokens)
    result = universality(
        models, windows.ids, grouped_by=(match, test), kinds=kinds, clusters=windows.documents, seed=seed
    )
    if csv is not None:
        write_csv(result.to_frame(), csv)
        return
    print_text(f"{result.headline}\n")
    lines: list[tuple[str, ...]] = [("matched", "tested", "mean", "permuted", "p")]
    for row in result.tests_frame().to_dict("records"):
        chance = f"{row['null_mean']:.3f} ± {row['null_std']:.3f}"
        lines.append((row["matched"], row["tested"], f"{row['observed']:.3f}", chance, f"{row['p']:.3g}"))
    print_text(table(lines))
    if result.beyond_distance:
        print_text(f"\n{result.beyond_distance}.")
    lines = [("layer", "matched", "tested", "mean", "permuted", "excess", "95% over models")]
    for row in result.layers_frame().to_dict("records"):
        between = "" if np.isnan(row["low"]) else f"{row['low']:+.3f} to {row['high']:+.3f}"
        means = f"{row['observed']:.3f}", f"{row['null_mean']:.3f}", f"{row['excess']:+.3f}"
        unpaired = np.isnan(row["observed"])  # no head of the layer is assigned to one of another model
        lines.append((str(row["layer"]), row["matched"], row["tested"], *(("–",) * 3 if unpaired else means), between))
    print_text(f"\n{table(lines)}")
    if result.layer_trend:
        print_text(f"\n{result.layer_trend}")
    lines = [("in", *result.models, match, test, "q")]
    for group in result.groups:
        heads = {name: head_name(head) for name, head in group.heads}
        said = (group.matched, group.matched_text_se), (group.tested, group.tested_text_se)
        alike = (*(f"{value:.2f}{_error(se)}" for value, se in said), f"{group.q:.2g}")
        lines.append((str(len(group.heads)), *(heads.get(name, "") for name in result.models), *alike))
    print_text(f"\n{table(lines)}")
    counted = [kind for kind in dict.fromkeys(result.kinds) if result.kinds.count(kind) > 1]
    for first, second in itertools.combinations(counted, 2):
        print_text(f"\n{result.compare_kinds(first, second).headline}")


def _error(se: float) -> str:
    """A standard error over documents; nothing where there is none."""
    return "" if np.isnan(se) else f" ± {se:.2f}"
