"""``aotlens distill``: feed-forward networks that imitate a checkpoint's heads, and how well they do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands.shared import (
    MOST_ROWS,
    MOST_TOKENS,
    MOST_WIDTH,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    TokenBar,
    card_of,
    check_csv,
    check_heads,
    check_out,
    corpus_name,
    print_text,
    table,
    write_csv,
)

if TYPE_CHECKING:
    from aotlens.distill import Distillation, SubstitutionCosts


def distill_command(
    checkpoint: Checkpoint,
    corpus: Annotated[
        str, typer.Option(metavar="SPEC", help="Text to learn from and to be judged by: stdlib, dir:PATH, hf:NAME, ...")
    ],
    hidden: Annotated[
        str, typer.Option(metavar="N,N,...", help="Hidden units of the networks; 0 is the best linear map.")
    ] = "0,16",
    head: Annotated[
        list[str],
        typer.Option(
            "--head", metavar="L.H", callback=check_heads, help="Only this head. Several times for more; default: all."
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    sequence_length: Annotated[
        int | None,
        typer.Option(
            min=3, max=MOST_TOKENS, metavar="N", help="Tokens of a window; default: the context, at most 512."
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="result|z", help="The target: the head's output, or its z before W_O.")
    ] = "result",
    seeds: Annotated[int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Networks of each head and width.")] = 3,
    tokens: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="Training tokens.")] = 400_000,
    held_out_tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="Tokens to be judged by.")
    ] = 65_536,
    document: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Hold this document out. Several times for more; default: those of the checkpoint's card, or a tenth.",
        ),
    ] = [],  # noqa: B006
    wide: Annotated[
        int, typer.Option(min=0, max=MOST_WIDTH, metavar="N", help="Units of the network for the floor; 0 for none.")
    ] = 256,
    neighbours: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_ROWS, metavar="N", help="Training tokens to look for nearest neighbours in; 0 for none."
        ),
    ] = 16_384,
    replace: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_TOKENS,
            metavar="N",
            help="Held-out tokens on which heads are also replaced by their widest networks; 0 for none.",
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the networks and errors here, in NAME.safetensors.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run to --out that was stopped.")] = False,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """Train a feed-forward network for each head, reading the token's own input only, to write what the head writes.

    error = sum of squared differences on held-out documents, over that of the training mean: 0 is a perfect copy, 1 no
    better than a constant. floor is the least error found by any means (networks, nearest neighbours), an estimate from
    above of what any function of the same input could reach. Intervals: 95%, over held-out documents (fewer than
    three: stretches of them) and seeds.

    With --replace, cost is the loss that the model gains with the head's widest network in its place, in nats a token.

    With --out, a stopped run goes on with --resume. aotlens.distill.load_record reads the file, which says of
    what it is and holds the costs; the app shows it with --distillation FILE.
    """
    # The checks come before what takes seconds to import.
    check_csv(csv, force)
    state, widths = _check_out(out, resume, force), _widths(hidden)

    from aotlens.checkpoints import load
    from aotlens.data import open_corpus
    from aotlens.data.sources import portable_spec
    from aotlens.distill import load_record, record_distillation

    if out is not None and out.exists():
        load_record(out)  # only a distillation is overwritten
    text = open_corpus(corpus)
    model = load(checkpoint, device, folders=folders)
    info = card_of(model, checkpoint, folders)
    with TokenBar() as bar:
        record = record_distillation(
            model,
            text,
            widths,
            heads=head or None,
            target=target,
            seeds=seeds,
            held_out=document or None,
            sequence_length=sequence_length,
            checkpoint=state,
            progress=bar,
            train_tokens=tokens,
            held_out_tokens=held_out_tokens,
            validation_tokens=8192,
            wide=wide or None,
            neighbours=neighbours,
            replace=replace,
            text="" if out is None else corpus_name(info, text),
            command=f"aotlens distill {info.name} --corpus {portable_spec(corpus)}",
        )
    distillation = record.distillation
    if out is not None:
        dataclasses.replace(record, checkpoint=info.name, weights_sha256=info.weights_sha256).save(out)
    if csv is not None:
        write_csv(distillation.to_frame(), csv)
    else:
        print_text(_as_text(distillation, record.costs))
    documents = f" of {', '.join(distillation.held_out_documents[:3])}"
    if len(distillation.held_out_documents) > 3:
        documents += f" and {len(distillation.held_out_documents) - 3} more"
    print_text(
        f"\n{distillation.train_tokens:,} training tokens ({distillation.distinct_tokens:,} different), "
        f"{distillation.held_out_tokens:,} held-out ones{documents}."
    )
    if out is not None:
        print_text(f"{out}: saved")


def _check_out(out: Path | None, resume: bool, force: bool) -> Path | None:
    """Check `out`, and return the path at which the state of a run to it is kept."""
    if out is None:
        if resume:
            raise ValueError("--resume: needs --out FILE, the one that the stopped run was given.")
        return None
    check_out(out, force)
    state = out.with_name(f"{out.name}.state")
    if state.exists() and not resume:
        raise ValueError(f"{state}: a stopped run's. Go on with it with --resume, or delete it to begin again.")
    return state


def _widths(hidden: str) -> list[int]:
    try:
        widths = sorted({int(part) for part in hidden.split(",")})
    except ValueError:
        raise ValueError(f"--hidden {hidden}: expected whole numbers with commas between, as 0,4,16.") from None
    if not 0 <= widths[0] <= widths[-1] <= MOST_WIDTH:
        raise ValueError(f"--hidden {hidden}: expected widths from 0 to {MOST_WIDTH:,}.")
    return widths


def _as_text(distillation: Distillation, costs: SubstitutionCosts | None) -> str:
    """One line a head, the most like an FFN (of the largest width) first."""
    intervals: dict[int, Any] = {width: distillation.interval(width) for width in distillation.hidden}
    titles = ("linear" if width == 0 else f"{width} units" for width in distillation.hidden)
    lines: list[tuple[str, ...]] = [("head", "attends to", *titles, "position", "floor", *(["cost"] if costs else []))]
    for head in distillation.order(distillation.hidden[-1]):
        place = distillation.place(head)
        errors = []
        for width in distillation.hidden:
            low, high = intervals[width][place]
            errors.append(f"{distillation.mean_error(width)[place]:.3f} ({low:.3f}-{high:.3f})")
        rest = [f"{value:.3f}" for value in (distillation.position_error[place], distillation.floor[place])]
        if costs is not None:
            rest.append(f"{costs.alone[costs.heads.index(head), 0]:.4f}")
        lines.append((f"{head[0]}.{head[1]}", distillation.attending.attends[place], *errors, *rest))
    return table(lines)
