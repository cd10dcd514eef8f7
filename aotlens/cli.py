"""The ``aotlens`` command.

    aotlens checkpoints list | show NAME | verify [NAME ...] | import FILE | export NAME FILE
    aotlens train RECIPE_OR_TOML
    aotlens --version

It parses, calls the library and prints. What a user can put right is one line on stderr and exit code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aotlens import __version__
from aotlens.checkpoints import (
    CheckpointInfo,
    export_checkpoint,
    find_checkpoint,
    import_checkpoint,
    list_checkpoints,
    verify,
)
from aotlens.checkpoints.info import to_json

# Plain text everywhere: boxes and colours are noise in a log, a pipe and a screen reader.
_PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "no_args_is_help": True,
}

app = typer.Typer(add_completion=False, help="Trained attention-only transformers, opened up.", **_PLAIN)
checkpoints = typer.Typer(help="List, show, check and move trained models.", **_PLAIN)
app.add_typer(checkpoints, name="checkpoints")

Folders = Annotated[
    list[Path],
    typer.Option(
        "--checkpoints",
        metavar="DIR",
        help="Look here too: a checkpoint, or a folder of checkpoints. May be given several times.",
    ),
]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A name that `list` shows, or a checkpoint's folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command and exits. Errors a user can act on are ValueErrors and OSErrors here."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without φ must not end a listing
            stream.reconfigure(errors="backslashreplace")
    try:
        typer.main.get_command(app)(args=None if argv is None else list(argv), prog_name="aotlens")
    except (ValueError, OSError) as error:
        # Written by hand: stderr may be the pipe that broke.
        try:
            print(f"aotlens: {_one_line(str(error))}", file=sys.stderr, flush=True)
        finally:
            sys.exit(2)


def _version(wanted: bool) -> bool:
    if wanted:
        _print(f"aotlens {__version__}")
        raise typer.Exit()
    return wanted


@app.callback()
def _aotlens(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options before a command; --version has done its work by now."""


@checkpoints.command("list")
def list_command(folders: Folders = [], as_json: AsJson = False) -> None:  # noqa: B006 (Typer copies it)
    """List the checkpoints at hand.

    Those are the bundled ones, your own ($AOTLENS_HOME/checkpoints), and those in --checkpoints DIR. Losses
    are validation losses in nats per token, beside a smoothed bigram model's.
    """
    infos = list_checkpoints(folders)
    if as_json:
        _print(to_json([_as_json(info) for info in infos], indent=2))
    elif not infos:
        _print("No checkpoints. Train one (aotlens train --help), or give a folder with --checkpoints DIR.")
    else:
        _print(_table([("name", "model", "weights", "loss", "bigram"), *map(_row, infos)]))
        for info in infos:
            for remark in (info.note, info.problem and f"can't be loaded: {info.problem}"):
                if remark:
                    _print(f"{info.name}: {remark}")


@checkpoints.command("show")
def show_command(name: Name, folders: Folders = [], as_json: AsJson = False) -> None:  # noqa: B006
    """Show a checkpoint's card: what it is, its figures, its corpus, and how to train it again."""
    info = find_checkpoint(name, folders)
    if info.problem:
        raise ValueError(info.problem)
    if as_json:
        _print(to_json({**_as_json(info), "history": info.history()}, indent=2))
        return
    _print(info.card.rstrip() or f"{info.name} (it has no card.md)")
    _print(f"\nIn {info.path}, {info.n_weights:,} weights.")
    if info.note:
        _print(f"Note: {info.note}.")


@checkpoints.command("verify")
def verify_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="All of them, if none is given.")
    ] = None,
    folders: Folders = [],  # noqa: B006
) -> None:
    """Read checkpoints whole and check hashes, shapes, weights, tokenizer. Exit code 1 if one is damaged."""
    infos = [find_checkpoint(name, folders) for name in names] if names else list_checkpoints(folders)
    damaged = 0
    for info in infos:
        assert info.path is not None
        problems = verify(info.path)
        damaged += bool(problems)
        _print(f"{info.name}: {'ok' if not problems else ' '.join(problems)}")
    if damaged:
        raise typer.Exit(1)


@checkpoints.command("import")
def import_command(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .tar, .tar.gz, .tar.xz or .zip, or a folder.")
    ],
    name: Annotated[str | None, typer.Option(help="Call it this instead of its own name.")] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Put it here, not in $AOTLENS_HOME/checkpoints.")
    ] = None,
) -> None:
    """Bring in a checkpoint from an archive or a folder. It is checked first, and nothing is overwritten."""
    info = import_checkpoint(source, name=name, into=into)
    _print(f"{info.name}: imported to {info.path}")


@checkpoints.command("export")
def export_command(
    name: Name,
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Ends in .tar, .tar.gz, .tar.xz or .zip; otherwise a new folder."
        ),
    ],
    folders: Folders = [],  # noqa: B006
) -> None:
    """Write a checkpoint to an archive for `import`. It is checked first, and nothing is overwritten."""
    info = find_checkpoint(name, folders)
    assert info.path is not None
    _print(f"{info.name}: exported to {export_checkpoint(info.path, destination)}")


@app.command("train")
def train_command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name, or a TOML file.")],
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="stdlib, file:PATH, dir:PATH or hf:NAME, where the recipe leaves it open."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The checkpoint's folder, not $AOTLENS_HOME/checkpoints/NAME."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from where a stopped run was.")] = False,
    seed: Annotated[int | None, typer.Option(help="Instead of the recipe's.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the last stage, instead of the recipe's.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Of the last stage, instead of the recipe's.")] = None,
) -> None:
    """Train a model from a recipe, and save it as a checkpoint as it goes.

    On several GPUs: torchrun --nproc_per_node N -m aotlens train RECIPE
    """
    from aotlens.train import run_recipe  # imports torch, which the other commands need not wait for

    folder = run_recipe(
        recipe,
        corpus=corpus,
        out=out,
        device=device,
        resume=resume,
        seed=seed,
        learning_rate=learning_rate,
        tokens=tokens,
    )
    if os.environ.get("RANK", "0") == "0":
        _print(f"{folder.name}: saved in {folder}")


def _as_json(info: CheckpointInfo) -> dict[str, Any]:
    extra = {"path": str(info.path), "n_weights": info.n_weights, "note": info.note, "problem": info.problem}
    return {**info.to_config(), **extra}


def _row(info: CheckpointInfo) -> tuple[str, ...]:
    if info.problem:
        return (info.name, "damaged", "", "", "")
    model = info.model
    shape = f"{_several(model.get('n_layers'), 'layer')} × {_several(model.get('n_heads'), 'head')}"
    shape = f"{shape}, {model.get('attention')}"
    return (
        info.name,
        f"{shape} + MLP" if model.get("d_mlp") else shape,
        f"{info.n_weights:,}",
        _loss(info.metrics.get("validation_loss")),
        _loss(info.metrics.get("bigram_loss")),
    )


def _several(number: Any, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _loss(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _print(text: str) -> None:
    """Names and cards come from files that others wrote: no control characters reach the terminal."""
    typer.echo("".join(c for c in text if c in "\n\t" or (c.isprintable() or c == "\u00a0")))


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


if __name__ == "__main__":
    main()
