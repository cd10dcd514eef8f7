"""Options that several commands take, and how all of them print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

# Plain text everywhere: boxes and colours are noise in a log, a pipe and a screen reader.
PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "no_args_is_help": True,
}

Folders = Annotated[
    list[Path],
    typer.Option(
        "--checkpoints",
        metavar="DIR",
        help="Look here too: a checkpoint, or a folder of checkpoints. May be given several times.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]


def print_text(text: str) -> None:
    """Names and cards come from files that others wrote: no control characters reach the terminal."""
    typer.echo("".join(c for c in text if c in "\n\t" or (c.isprintable() or c == "\u00a0")))


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows of cells as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def one_line(text: str) -> str:
    """An error's message as one line."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
