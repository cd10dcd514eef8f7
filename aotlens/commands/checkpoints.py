"""``aotlens checkpoints``: list, show, check and move trained models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from aotlens.checkpoints import (
    CheckpointInfo,
    compress_run,
    export_checkpoint,
    find_checkpoint,
    import_checkpoint,
    import_external,
    is_external,
    list_checkpoints,
    read_check,
    read_key_map,
    verify,
)
from aotlens.checkpoints.info import to_json
from aotlens.commands import options
from aotlens.commands.shared import PLAIN, print_text, several, table

app = typer.Typer(help="List, show, check and move trained models.", **PLAIN)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `list` shows, or a checkpoint's folder.")]


@app.command("list")
def list_command(folders: options.Folders = [], as_json: options.AsJson = False) -> None:
    """List the checkpoints at hand.

    Those are the bundled ones, your own ($AOTLENS_HOME/checkpoints), and those in --checkpoints DIR. Losses are
    validation losses in nats per token, with those of a smoothed bigram model as baseline; of a masked model, in nats
    per hidden token, with those of a unigram model; of a model of images, in nats per image, with those of the classes'
    shares; of in-context regression, errors with those of least squares.
    """
    infos = list_checkpoints(folders)
    if as_json:
        print_text(to_json([_as_json(info) for info in infos], indent=2))
    elif not infos:
        print_text("No checkpoints. Train one (aotlens train --help), or give a folder with --checkpoints DIR.")
    else:
        print_text(table([("name", "model", "weights", "loss", "baseline"), *map(_row, infos)]))
        for info in infos:
            for remark in (info.note, info.problem and f"can't be loaded: {info.problem}"):
                if remark:
                    print_text(f"{info.name}: {remark}")


@app.command("show")
def show_command(name: Name, folders: options.Folders = [], as_json: options.AsJson = False) -> None:
    """Show a checkpoint's card: what it is, its figures, its corpus, and how to train it again."""
    info = find_checkpoint(name, folders)
    if info.problem:
        raise ValueError(info.problem)
    if as_json:
        print_text(to_json({**_as_json(info), "history": info.history()}, indent=2))
        return
    print_text(info.card.rstrip() or f"{info.name} (it has no card.md)")
    print_text(f"\nIn {info.path}, {info.n_weights:,} weights.")
    if info.note:
        print_text(f"Note: {info.note}.")


@app.command("verify")
def verify_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all of them.")] = None,
    folders: options.Folders = [],
) -> None:
    """Read checkpoints whole and check hashes, shapes, weights, tokenizer. Exit code 1 if one is damaged."""
    infos = [find_checkpoint(name, folders) for name in names] if names else list_checkpoints(folders)
    damaged = 0
    for info in infos:
        assert info.path is not None
        problems = verify(info.path)
        damaged += bool(problems)
        print_text(f"{info.name}: {'ok' if not problems else ' '.join(problems)}")
    if damaged:
        raise typer.Exit(1)


@app.command("import")
def import_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A .tar, .tar.gz, .tar.xz or .zip of a checkpoint, or its folder; or a model that others saved: a "
            "folder or file of TransformerLens, Hugging Face's GPT-2 or ViT, nanoGPT, or hf:OWNER/NAME.",
        ),
    ],
    name: Annotated[str | None, options.word("Call it this instead of its own name.", "NAME")] = None,
    into: Annotated[Path | None, options.word("Put it here, not in $AOTLENS_HOME/checkpoints.", "DIR")] = None,
    weights: Annotated[
        str | None, options.word("The file of the folder that holds the weights, where several may.", "FILE")
    ] = None,
    config: Annotated[
        list[str],
        options.word(
            "A setting that the source lacks (n_head=12), as its error names it. May be given several times.",
            "NAME=VALUE",
        ),
    ] = [],
    key_map: Annotated[
        Path | None, options.word("JSON: their tensors' names to ours, with --config for every size.", "FILE")
    ] = None,
    check: Annotated[
        Path | None,
        options.word("Arrays tokens (or images) and logits: a few of the source's logits to compare with.", "FILE.npz"),
    ] = None,
    symbols: Annotated[str | None, options.word("The names of the token ids, from 0: '0 1 2 3 + ='.", "NAMES")] = None,
    start: Annotated[
        str | None, options.word("Which of --symbols every prompt begins with. Default: none.", "NAME")
    ] = None,
) -> None:
    """Bring in a checkpoint, or a model that others saved. It is checked first, and nothing is overwritten.

    Of a model that others saved it prints the parameters, the largest difference of its logits to those of --check or
    of the source's own code, where that is installed, and what was left out; UNCHECKED where neither is there. A
    difference beyond rounding is refused. Nothing in its files is executed.
    """
    from aotlens.data import SymbolTokenizer

    if start is not None and symbols is None:
        raise ValueError(f"--start {start}: expected --symbols, too: it is one of them.")
    settings = dict(map(_setting, config))
    if not (settings or key_map or weights or check or is_external(source)):
        info = import_checkpoint(source, name=name, into=into)
        print_text(f"{info.name}: imported to {info.path}")
        return
    names = None if key_map is None else read_key_map(key_map)
    model = import_external(
        source,
        name=name,
        into=into,
        weights=weights,
        config=settings or None,
        key_map=names,
        tokenizer=None if symbols is None else SymbolTokenizer(symbols.split(), start),
        check=None if check is None else read_check(check),
    )
    print_text(f"{model.info.name}: imported to {model.info.path} ({model.format}), {model.n_parameters:,} parameters.")
    print_text(model.comparison.sentence)
    absent = "Not in the source, read as zero (gains as 1)"
    for title, tensors in (("Left out", model.dropped), (absent, model.absent)):
        if tensors:
            print_text(f"{title}: {', '.join(tensors)}.")


@app.command("export")
def export_command(
    name: Name,
    destination: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Ends in .tar, .tar.gz, .tar.xz or .zip; otherwise a new folder."),
    ],
    folders: options.Folders = [],
) -> None:
    """Write a checkpoint to an archive for `import`. It is checked first, and nothing is overwritten."""
    info = find_checkpoint(name, folders)
    assert info.path is not None
    print_text(f"{info.name}: exported to {export_checkpoint(info.path, destination)}")


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON where it is some, else as text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--config {text}: expected NAME=VALUE, as n_head=12.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, {"None": None, "True": True, "False": False}.get(value, value)


def _as_json(info: CheckpointInfo) -> dict[str, Any]:
    extra = {"path": str(info.path), "n_weights": info.n_weights, "note": info.note, "problem": info.problem}
    return {**info.to_config(), **extra}


def _row(info: CheckpointInfo) -> tuple[str, ...]:
    if info.problem:
        return (info.name, "damaged", "", "", "")
    model = info.model
    shape = f"{several(model.get('n_layers'), 'layer')} × {several(model.get('n_heads'), 'head')}"
    shape = f"{shape}, {model.get('attention')}"
    loss, baseline = info.losses
    return (
        info.name,
        f"{shape} + MLP" if model.get("d_mlp") else shape,
        f"{info.n_weights:,}",
        _loss(loss, info.words.marks[0]),
        _loss(baseline, info.words.marks[1]),
    )


def _loss(value: Any, of: str) -> str:
    return f"{value:.3f}{of}" if isinstance(value, int | float) else "-"


@app.command("compress")
def compress_command(
    name: Name,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that is not there yet.")],
    error: Annotated[
        float, options.word("How far rounding moves weights, as a share of their root mean square.", "SHARE")
    ] = 0.05,
    error_of: Annotated[
        list[str], options.word("Another one for a tensor, such as embed.W_E=0.15.", "TENSOR=SHARE")
    ] = [],
    folders: options.Folders = [],
) -> None:
    """Copy a checkpoint with its run's snapshots rounded, in about a tenth of the room."""
    errors = {}
    for text in error_of:
        tensor, _, share = text.partition("=")
        try:
            errors[tensor] = float(share)
        except ValueError:
            raise ValueError(f"--error-of {text}: expected TENSOR=SHARE, such as embed.W_E=0.15.") from None
    info = find_checkpoint(name, folders)
    assert info.path is not None
    run = compress_run(info.path, out, error=error, errors=errors)
    print_text(
        f"{run.folder}: {run.n_snapshots} snapshots in {run.bytes_after:,} bytes, {run.bytes_before:,} before; weights "
        f"moved by {run.error:g} of their root mean square."
    )
