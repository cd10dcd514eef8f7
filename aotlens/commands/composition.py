"""``aotlens composition``: which heads read what which heads write."""

from __future__ import annotations

from typing import Annotated

import typer

from aotlens.commands.choosing import AllDocuments, Documents, documents_to_read
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
        str,
        typer.Option(metavar="q|k|v", help="The later head's side that reads: queries, keys or values."),
    ] = "q",
    top: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many pairs; --csv has them all.")
    ] = 20,
    folded: Annotated[
        bool, typer.Option("--folded", help="With the norms' gains and centring in the weights, not the bare weights.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="By what earlier heads wrote on this text, not by what their weights could write; implies --folded.",
        ),
    ] = None,
    second_moment: Annotated[
        bool, typer.Option("--second-moment", help="Of --data, with the mean over positions left in.")
    ] = False,
    sequences: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Windows of --data, spread over it.")
    ] = 16,
    document: Documents = [],  # noqa: B006 (Typer copies it)
    all_documents: AllDocuments = False,
    random: Annotated[
        int, typer.Option("--random", min=0, max=MOST_ROWS, metavar="N", help="Rotations for p-values; 0 for none.")
    ] = 0,
    csv: Csv = None,
    force: Force = False,
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """List the pairs of heads with the strongest composition: the later one reads what the earlier one writes.

    Pairs are sorted by their Frobenius ratio. Beside it: the earlier head's place among all that the later head can
    read; whether the pair lies above its null, z of 3 or more; how many standard deviations the norm's square lies
    above its mean over flips of signs in the stream's own directions (z), and over random rotations of one of the two
    heads (z rotated), which any two heads of a trained stream exceed; the norm; and mean and standard deviation of its
    square over rotations. --random draws rotations for p-values of the pairs that are near. With --data, the covariance
    over positions of what the earlier head wrote there takes the place of its weights.
    """
    from aotlens.circuits.composition import EDGE_Z, composition
    from aotlens.data import Encoding, open_corpus, spread_windows

    check_csv(csv, force)
    if data is None and second_moment:
        raise ValueError("--second-moment: expected --data SPEC, the text whose positions it is over.")
    source = None if data is None else open_corpus(data)
    model = load_ours("composition", checkpoint, "cpu", folders)  # which is where it is computed
    windows, which = None, ""
    if source is not None:
        documents, read = documents_to_read(model, source, str(data), document, all_documents)
        encoding = Encoding.of(model.tokenizer)
        windows = spread_windows(source, documents or source.names(), encoding, sequences, model.cfg.n_ctx)
        which = f", of what was written on {several(len(windows), 'window')} of {windows.shape[1]} tokens of {read}"
    result = composition(model, mode, folded=folded, data=windows, about_mean=not second_moment, n_random=random)
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
        f"{mode} composition{same}{which}. {result.edges.sum()} of {several(len(frame), 'pair')} above their null, "
        f"z ≥ {EDGE_Z:g}. Rotated at random, every pair has a root mean square of {result.random_rms:.4f}.\n"
    )
    tails = ("p above", "p below") if random else ()
    titles = ("composition", "place", "above null", "z", "z rotated", *tails, "norm", "norm² rotated: mean", "sd")
    lines: list[tuple[str, ...]] = [("earlier", "later", *titles)]
    for row in frame.head(top).itertuples():
        pair = (f"{row.earlier_layer}.{row.earlier_head}", f"{row.later_layer}.{row.later_head}")
        place = f"{row.rank} of {row.later_layer * model.cfg.n_heads}"
        z = [f"{row.z_signs:.1f}", f"{row.z:.1f}"]
        p = [f"{value:.2g}" if value == value else "" for value in (row.p_above, row.p_below)] if random else []
        sizes = (f"{row.norm:.3g}", f"{row.random_mean:.3g}", f"{row.random_std:.2g}")
        lines.append((*pair, f"{row.composition:.4f}", place, "yes" if row.edge else "no", *z, *p, *sizes))
    print_text(table(lines))
