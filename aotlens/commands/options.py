"""The options of commands: what makes one, and those that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

#: The most that an option may ask for: rows of a table, random draws or windows; tokens of a text; hidden units. A
#: number beyond is refused before any work, where it would fill the memory.
MOST_ROWS = 1_000_000
MOST_TOKENS = 1_000_000_000
MOST_WIDTH = 65_536
#: The most seeds of a command that does all its work once for each.
MOST_SEEDS = 1000
#: The largest number that only names or counts something and takes no memory: a seed, a token's id, a position, a step.
MOST_NUMBER = 2**63 - 1


def whole(help: str, least: int | float = 1, most: int | float = MOST_ROWS, *names: str, metavar: str = "N") -> Any:
    """An option that is a number within bounds, whole unless its annotation is float."""
    return typer.Option(*names, min=least, max=most, metavar=metavar, help=help)


def word(help: str, metavar: str, *names: str) -> Any:
    """An option that is a word, a text or a file."""
    return typer.Option(*names, metavar=metavar, help=help)


def flag(name: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(f"--{name}", help=help)


def heads(help: str) -> Any:
    """An option --head, one or several times."""
    return typer.Option("--head", metavar="L.H", callback=check_heads, help=help)


def check_heads(value: str | list[str] | None) -> str | list[str] | None:
    """Raise ValueError, as the callback of --head, for what names no head, before any other work."""
    from aotlens.conventions import HEAD_NAME

    for name in [value] if isinstance(value, str) else value or ():
        if not HEAD_NAME.fullmatch(name):
            raise ValueError(f"--head {name}: expected a layer and a head, whole numbers from 0, as --head 1.0.")
    return value


Folders = Annotated[
    list[Path],
    typer.Option(
        "--checkpoints",
        metavar="DIR",
        help="Look here too: a checkpoint, or a folder of checkpoints. May be given several times.",
    ),
]
AsJson = Annotated[bool, flag("json", "Print JSON, for other programs.")]
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="A name that `aotlens checkpoints list` shows, or a folder.")
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write the table here, unrounded, instead of printing it.")
]
Force = Annotated[bool, flag("force", "Overwrite files.")]
Head = Annotated[str, heads("Layer and head, from 0: 1.4.")]
Ids = Annotated[
    str | None, word("A prompt as token ids: '12 7 7 3', without a start token of its own.", "IDS", "--ids")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Record = Annotated[Path | None, word("Keep the result here, in NAME.safetensors.", "FILE")]
AllDocuments = Annotated[
    bool, flag("all-documents", "Read all documents; default: of its training text, only those held out.")
]
Documents = Annotated[
    list[str], word("Read this document of the text only. Several times for more.", "NAME", "--document")
]
