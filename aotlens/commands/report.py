"""``aotlens report``: what is known of a checkpoint, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotlens.commands.shared import (
    MOST_TOKENS,
    Checkpoint,
    Device,
    Folders,
    TokenBar,
    print_text,
)


def report_command(
    checkpoint: Checkpoint,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: report.html.")],
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Text to hold skip-trigrams against, and for an atlas where none is stored: stdlib, dir:PATH, hf:….",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Show where heads look in this text. Default: in what the atlas read."),
    ] = None,
    image: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="Show where heads look in this image, for a model of images; may be given several times.",
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    heads: Annotated[
        str | None,
        typer.Option(
            metavar="L.H,L.H", help="Heads whose circuits and skip-trigrams are listed. Default: 8 that count."
        ),
    ] = None,
    sections: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Of maps,atlas,circuits,trigrams,distillation,losses,card, in this order. Default: all, or with "
            "--view none.",
        ),
    ] = None,
    view: Annotated[
        list[str],
        typer.Option(
            metavar="FAMILY.VIEW",
            help="A view of `aotlens view`, with its parameters: 'circuits.map head=1.0 kind=ov'; may be given several "
            "times.",
        ),
    ] = [],  # noqa: B006 (Typer copies it)
    tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="How much of the corpus is read.")
    ] = 30_000,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Write what is known of a checkpoint to one HTML file of at most 5 MB, which opens from disk without a network.

    It has the maps of all heads on a text or on images, the atlas, circuits, skip-trigrams with verdicts, the
    distillation, losses and the card. What the model cannot show is said in its section. Of text that the checkpoint
    was trained on, only the documents that were held out are read.
    """
    if out.exists() and not force:
        raise ValueError(f"{out}: exists already. Choose another file, or overwrite it with --force.")
    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"--out {out}: expected a name that ends in .html, as {out.name}.html.")

    from aotlens.report import make_report

    with TokenBar() as bar:
        report = make_report(
            checkpoint,
            corpus=corpus,
            text=text,
            images=image,
            heads=None if heads is None else _listed(heads),
            sections=None if sections is None else _listed(sections),
            views=view,
            n_tokens=tokens,
            device=device,
            folders=folders,
            progress=bar,
        )
    report.save(out)
    named = ", ".join(section.name for section in report.sections)
    print_text(f"{out}: {out.stat().st_size / 1e6:.1f} MB ({named})")


def _listed(text: str) -> list[str]:
    """Return the parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
