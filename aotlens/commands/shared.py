"""Options that several commands take, and how all of them print."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from aotlens.conventions import several as several

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from aotlens.checkpoints import CheckpointInfo
    from aotlens.data import Corpus
    from aotlens.models import AttentionOnlyTransformer

#: The most that an option may ask for: rows of a table, random draws or windows; tokens of a text; hidden units. A
#: number beyond is refused before any work, where it would fill the memory.
MOST_ROWS = 1_000_000
MOST_TOKENS = 1_000_000_000
MOST_WIDTH = 65_536
#: The most seeds of a command that does all its work once for each.
MOST_SEEDS = 1000
#: The largest number that only names or counts something and takes no memory: a seed, a token's id, a position, a step.
MOST_NUMBER = 2**63 - 1

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
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="A name that `aotlens checkpoints list` shows, or a folder.")
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write the table here, unrounded, instead of printing it.")
]
Force = Annotated[bool, typer.Option("--force", help="Let --csv overwrite a file.")]
Ids = Annotated[
    str | None,
    typer.Option("--ids", metavar="IDS", help="A prompt as token ids: '12 7 7 3', without a start token of its own."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]


def check_heads(given: str | list[str] | None) -> str | list[str] | None:
    """Raise ValueError, as the callback of --head, for what names no head, before any other work."""
    from aotlens.conventions import HEAD_NAME

    for name in [given] if isinstance(given, str) else given or ():
        if not HEAD_NAME.fullmatch(name):
            raise ValueError(f"--head {name}: expected a layer and a head, whole numbers from 0, as --head 1.0.")
    return given


class TextCommand(typer.core.TyperCommand):
    """A command of which a text that stands without --text is told so."""

    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = super().parse_args(ctx, args)
        if ctx.args:
            text = " ".join(ctx.args)
            raise ValueError(
                f"{shlex.quote(text)}: expected nothing behind {ctx.params['checkpoint']} but options, found this. "
                f"If it is the text, write --text {shlex.quote(text)}."
            )
        return given


def prompt(model: AttentionOnlyTransformer, text: str | None, ids: str | None) -> Tensor | None:
    """Return the prompt of --text or of --ids, `[1, pos]`; None for neither. Ids are taken as they are, without a start
    token.

    Raises ValueError for both, and for ids that are none.
    """
    import torch

    from aotlens.models.text import ids_in_brackets

    if text is not None and ids is not None:
        raise ValueError("--text and --ids: expected one of them, got both.")
    if ids is None:
        return None if text is None else model.to_tokens(text)
    numbers = ids_in_brackets(f"[{ids.strip().removeprefix('[').removesuffix(']')}]")
    if numbers is None:
        raise ValueError(f"--ids {ids!r}: expected whole numbers, as '12 7 7 3'.")
    return torch.tensor([numbers], device=model.device)


def load_ours(command: str, checkpoint: str, device: str, folders: list[Path]) -> AttentionOnlyTransformer:
    """Return the model of a command that takes no bridge. Raises ValueError, by the command's name, for a bridge."""
    from aotlens.checkpoints import load
    from aotlens.models import require_ours

    model = load(checkpoint, device, folders=folders)
    require_ours(model, f"aotlens {command}")
    return model


def card_of(model: Any, checkpoint: str, folders: list[Path]) -> CheckpointInfo:
    """Return the card of `checkpoint`, whose model `model` is; of what another program wrote, as far as is known."""
    from aotlens.checkpoints import CheckpointInfo, find_checkpoint, is_external

    if not is_external(checkpoint, folders):
        return find_checkpoint(checkpoint, folders)
    return getattr(model, "card", None) or CheckpointInfo(name=Path(checkpoint).resolve().name)


class TokenBar:
    """`progress(done, total)` in tokens (or images, cells), as a bar on a terminal's stderr.

    In a file or a pipe it prints nothing, or with `lines` a line whenever more is done: for work that is done in few
    steps of minutes each.
    """

    def __init__(self, counted: str = "tokens", *, lines: bool = False) -> None:
        from tqdm import tqdm

        self._bar = tqdm(unit=f" {counted}", unit_scale=True, leave=False, disable=None)
        self._counted, self._lines, self._done = counted, lines and self._bar.disable, 0

    def __call__(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)
        if self._lines and done > self._done:
            self.say(f"{done} of {total} {self._counted}")
        self._done = done

    def say(self, message: str) -> None:
        """Print a line on stderr, above the bar where there is one."""
        self._bar.write(printable(message), file=sys.stderr)
        sys.stderr.flush()

    def __enter__(self) -> TokenBar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()


def print_text(text: str) -> None:
    """Print the text on stdout, as `printable` lets it through."""
    typer.echo(printable(text))


def printable(text: str) -> str:
    """Remove control characters, which must not reach the terminal: names and cards come from files that
    others wrote."""
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() or c == "\u00a0"))


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of cells as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def check_csv(csv: Path | None, force: bool) -> None:
    """Raise ValueError, before any work, where --csv would overwrite a file that it was not told to."""
    if csv is not None and csv.exists() and not force:
        raise ValueError(f"{csv}: exists already. Choose another file, or overwrite it with --force.")


def check_out(out: Path, force: bool) -> None:
    """Raise ValueError, before any work, for an --out that is no safetensors file, or one that it would overwrite."""
    if out.suffix != ".safetensors":
        raise ValueError(f"--out {out}: expected a name that ends in .safetensors, as {out.name}.safetensors.")
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: expected a folder that is there, found none at {out.parent}. Make it first.")
    if out.exists() and not force:
        raise ValueError(f"{out}: exists already. Choose another file, or overwrite it with --force.")


def corpus_name(info: CheckpointInfo, text: Corpus) -> str:
    """Return the name that the checkpoint's card has for its own text; of another file or folder the beginning of its
    hash."""
    from aotlens.data.sources import portable_spec

    if info.held_out(text.names()) and info.corpus.get("name"):
        return str(info.corpus["name"])
    spec = portable_spec(text.spec)
    return spec if spec == text.spec else f"{spec} (sha256 {text.sha256()[:12]})"


def write_csv(frame: pd.DataFrame, csv: Path) -> None:
    """Write the table as it is, and print a line that says so."""
    from aotlens import files

    files.write_csv(frame, csv)
    print_text(f"{csv}: {several(len(frame), 'row')}")


def one_line(text: str) -> str:
    """Return an error's message as one line."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
