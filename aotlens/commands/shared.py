"""What commands share: the models and texts that they open, and how they print."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

import typer
import typer.core

from aotlens.commands import options
from aotlens.conventions import several as several

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from aotlens.checkpoints import CheckpointInfo
    from aotlens.data import Corpus
    from aotlens.models import AttentionOnlyTransformer

# Plain text everywhere: boxes and colours are noise in a log, a pipe and a screen reader.
PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "no_args_is_help": True,
}


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────

#: What a command yields: texts and tables, which are printed without --csv.
Parts: TypeAlias = Iterator[Any]

#: Tokens of folded rows that a line names.
_MOST_OTHERS = 3


@dataclass(frozen=True)
class Context:
    """The options that all commands take, and what is opened by them."""

    command: str
    csv: Path | None = None
    force: bool = False
    device: str = "cpu"
    folders: Sequence[Path] = ()

    def load(self, checkpoint: str) -> Any:
        """Return the model of a checkpoint."""
        from aotlens.checkpoints import load

        return load(checkpoint, self.device, folders=self.folders)

    def model(self, checkpoint: str) -> AttentionOnlyTransformer:
        """Return the model, by a command that takes no bridge. Raises ValueError, by its name, for a bridge."""
        from aotlens.models import require_ours

        model: AttentionOnlyTransformer = self.load(checkpoint)
        require_ours(model, f"aotlens {self.command}")
        return model

    def card(self, model: Any, checkpoint: str) -> CheckpointInfo:
        """Return the card of a checkpoint and its model; for what another program wrote, as far as it is known."""
        from aotlens.checkpoints import CheckpointInfo, find_checkpoint, is_external

        if not is_external(checkpoint, self.folders):
            return find_checkpoint(checkpoint, self.folders)
        return getattr(model, "card", None) or CheckpointInfo(name=Path(checkpoint).resolve().name)

    def write(self, frame: pd.DataFrame) -> None:
        """Write the table to --csv, if there is one."""
        if self.csv is not None:
            write_csv(frame, self.csv)

    def show(self, parts: Parts | None) -> None:
        """Print text and tables, with blank lines between, if there is no --csv."""
        for number, part in enumerate(parts or ()):
            if self.csv is None:
                text = part if isinstance(part, str) else frame_text(part)
                print_text(f"\n{text}" if number else text)


def with_options(run: Callable[..., None], declared: Mapping[str, tuple[Any, Any]]) -> None:
    """Let Typer see a function's options: for each name its annotation, and its default or `Parameter.empty`."""
    run.__annotations__ = {name: kind for name, (kind, _) in declared.items()} | {"return": None}
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
            for name, (kind, default) in declared.items()
        ]
    )


def command(name: str, *without: str) -> Callable[[Callable[..., Parts | None]], Callable[..., None]]:
    """Make a command of a function of a `Context` and of options: adds --csv, --force, --device and --checkpoints,
    except those that it goes `without`, and prints what it yields."""

    def decorate(function: Callable[..., Parts | None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            context = Context(name, **{name: values.pop(name) for name in common})
            check_new(context.csv, context.force)
            context.show(function(context, **values))

        common: dict[str, tuple[Any, Any]] = {
            "csv": (options.Csv, None),
            "force": (options.Force, False),
            "device": (options.Device, "auto"),
            "folders": (options.Folders, []),
        }
        common = {name: option for name, option in common.items() if name not in without}
        hints = get_type_hints(function, include_extras=True)
        own = list(signature(function).parameters.values())[1:]
        with_options(run, {each.name: (hints[each.name], each.default) for each in own} | common)
        run.__name__, run.__doc__ = name, function.__doc__
        return run

    return decorate


class TextCommand(typer.core.TyperCommand):
    """A command that refuses a text without --text, with that advice."""

    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if ctx.args:
            text = " ".join(ctx.args)
            raise ValueError(
                f"{shlex.quote(text)}: expected nothing behind {ctx.params['checkpoint']} but options, got this. "
                f"If it is the text, write --text {shlex.quote(text)}."
            )
        return rest


def prompt(model: AttentionOnlyTransformer, text: str | None, ids: str | None) -> Tensor | None:
    """Return the prompt of --text or of --ids, `[1, pos]`; None for neither. Ids are taken as they are, without a start
    token.

    Raises ValueError for both, and for invalid ids.
    """
    import torch

    from aotlens.models.text import ids_in_brackets

    one_of_two("--text", text, "--ids", ids)
    if ids is None:
        return None if text is None else model.to_tokens(text)
    numbers = ids_in_brackets(f"[{ids.strip().removeprefix('[').removesuffix(']')}]")
    if numbers is None:
        raise ValueError(f"--ids {ids!r}: expected whole numbers, as '12 7 7 3'.")
    return torch.tensor([numbers], device=model.device)


def documents_to_read(
    model: AttentionOnlyTransformer, corpus: Corpus, spec: str, named: Sequence[str] = (), everything: bool = False
) -> tuple[tuple[str, ...] | None, str]:
    """Return the documents (None: all), and a description: of text that the model was trained on, those held out."""
    if named and everything:
        raise ValueError("--document and --all-documents: choose one of the two.")
    if named:
        return tuple(named), f"{', '.join(named)} in {spec}"
    held_out = () if everything else model.card.held_out(corpus.names())
    if not held_out:
        return None, spec
    which = f"{several(len(held_out), 'document')} in {spec} that {model.card.name} was not trained on"
    return held_out, f"the {which} (--all-documents reads all)"


def one_of_two(first: str, one: Any, second: str, other: Any) -> None:
    """Raise ValueError for two options that exclude each other."""
    if one is not None and other is not None:
        raise ValueError(f"{first} and {second}: expected one of them, got both.")


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


def frame_text(frame: pd.DataFrame) -> str:
    """Write a table as text: heads as 1.0, tokens quoted instead of their ids, numbers with four digits, and
    with a sign in a column with negative ones."""
    cells: dict[str, list[str]] = {}
    for name in frame:
        head = f"{name.removesuffix('layer')}head"
        if f"{name}_id" in frame:
            cells[name] = list(map(quoted, frame[name], frame[f"{name}_id"]))
        elif name.endswith("layer") and head in frame:
            pairs = zip(frame[name], frame[head], strict=True)
            cells[head.removesuffix("_head")] = [f"{layer}.{number}" for layer, number in pairs]
        elif name.removesuffix("_id") not in cells and name.removesuffix("_head") not in cells:
            form = "+.4g" if frame[name].dtype.kind == "f" and (frame[name] < 0).any() else ".4g"
            cells[name.replace("_", " ")] = [_cell(value, form) for value in frame[name].tolist()]
    return table([tuple(cells), *zip(*cells.values(), strict=True)])


def quoted(text: str, number: int) -> str:
    """Return a token as it can be typed again: quoted, or its id if it has no string."""
    from aotlens.conventions import describe

    return describe(text) if text else f"#{number}"


def _cell(value: Any, form: str) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):  # the tokens of folded rows
        more = ["…"] * (len(value) > _MOST_OTHERS)
        return " ".join([*(quoted(text, 0) for text in value[:_MOST_OTHERS] if text), *more])
    return f"{value:{form}}" if isinstance(value, float) else str(value).replace("\n", "\\n")


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of cells as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def check_new(file: Path | None, force: bool) -> None:
    """Raise ValueError, before any work, for a file that would be overwritten without --force."""
    if file is not None and file.exists() and not force:
        raise ValueError(f"{file}: exists already. Choose another file, or overwrite it with --force.")


def check_out(out: Path | None, force: bool) -> None:
    """Raise ValueError, before any work, for an --out that is no safetensors file, or one that it would overwrite."""
    if out is None:
        return
    if out.suffix != ".safetensors":
        raise ValueError(f"--out {out}: expected a name that ends in .safetensors, as {out.name}.safetensors.")
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: expected a folder that exists, found none at {out.parent}. Make it first.")
    check_new(out, force)


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
