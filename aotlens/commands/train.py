"""``aotlens train``: a checkpoint from a recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from aotlens.commands.shared import MOST_NUMBER, MOST_ROWS, Device, print_text


def train_command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name, or a TOML file.")],
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus",
            "--data",
            metavar="SPEC",
            help="Text in place of the recipe's: stdlib, novels, file:PATH, dir:PATH or hf:NAME; of images digits, "
            "npz:PATH, folder:PATH, openml:NAME or hf:NAME.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The checkpoint's folder, not $AOTLENS_HOME/checkpoints/NAME."),
    ] = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from where a stopped run was.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, max=MOST_NUMBER, help="Instead of the recipe's.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the last stage, instead of the recipe's.")] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_NUMBER, help="Of the last stage, or images, instead of the recipe's."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="gpt2_bpe:FOLDER", help="GPT-2's tokens: a folder with encoder.json and vocab.bpe."),
    ] = None,
    rows_at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_ROWS,
            metavar="N",
            help="Rows of a pass on each device; a step adds up its passes' gradients.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Train nothing: parameters, memory, speed and days on this device."),
    ] = False,
) -> None:
    """Train a model from a recipe, and save it as a checkpoint as it goes.

    On several GPUs: torchrun --nproc_per_node N -m aotlens train RECIPE
    """
    from aotlens.train import dry_run as measure  # imports torch, which the other commands need not wait for
    from aotlens.train import run_recipe
    from aotlens.train.run import changed_recipe

    if dry_run:
        changed = changed_recipe(recipe, seed, learning_rate, tokens, tokenizer, rows_at_once)
        print_text(measure(changed, device=device).text)
        return
    folder = run_recipe(
        recipe,
        corpus=corpus,
        out=out,
        device=device,
        resume=resume,
        seed=seed,
        learning_rate=learning_rate,
        tokens=tokens,
        tokenizer=tokenizer,
        rows_at_once=rows_at_once,
    )
    if os.environ.get("RANK", "0") == "0":
        print_text(f"{folder.name}: saved in {folder}")
