"""The ``aotlens`` command.

    aotlens checkpoints list | show NAME | verify [NAME ...] | import FILE | export NAME FILE
    aotlens train RECIPE_OR_TOML
    aotlens film RUN --corpus SPEC [--ledger] [--html FILE]
    aotlens influence RUN --corpus SPEC --measure "induction 1.0" [--check 40]
    aotlens evaluate CHECKPOINT ... --suite zero-shot [--protocol aot] [--lambada FILE] [--wikitext FILE]
    aotlens circuits | spectrum CHECKPOINT --head L.H
    aotlens composition CHECKPOINT
    aotlens subspaces CHECKPOINT
    aotlens audit CHECKPOINT --corpus SPEC [--out FILE]
    aotlens motifs CHECKPOINT [--motif NAME] [--half-length N]
    aotlens head-scores CHECKPOINT [--corpus SPEC] [--score NAME]
    aotlens atlas CHECKPOINT --corpus SPEC [--head L.H]
    aotlens compare LEFT RIGHT [--corpus SPEC]
    aotlens universality NAME NAME ... [--corpus SPEC]
    aotlens ablate CHECKPOINT [--head L.H] --text TEXT | --corpus SPEC [--how mean]
    aotlens generate CHECKPOINT --text TEXT [--without L.H,L.H] [--how mean]
    aotlens paths CHECKPOINT --text TEXT
    aotlens trigrams CHECKPOINT --head L.H [--evidence SPEC]
    aotlens bigrams CHECKPOINT [--token TEXT] [--corpus SPEC]
    aotlens compile FFN.safetensors --bound M --tolerance E
    aotlens distill CHECKPOINT --corpus SPEC [--hidden 0,4,16,64] [--out FILE]
    aotlens view FAMILY [CHECKPOINT] [--view NAME] [--python]
    aotlens patch CHECKPOINT [--clean TEXT --corrupted TEXT | --pairs NAME] [--view NAME]
    aotlens report CHECKPOINT -o report.html [--corpus SPEC]
    aotlens sweep SWEEP.toml [--dask ADDRESS] | sweep status SWEEP.toml
    aotlens --version

It parses, calls the library and prints. What a user can put right is one line on stderr and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from aotlens import __version__
from aotlens.commands import (
    atlas,
    checkpoints,
    circuits,
    distill,
    evaluate,
    heads,
    paths,
    sweep,
    training,
    trigrams,
    view,
)
from aotlens.commands.shared import PLAIN, TextCommand, one_line, print_text, printable


class _Commands(typer.core.TyperGroup):
    """The commands below, and `patch`, which is made from the declaration of its views when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), "patch"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return view.command_of("patching", "patch") if cmd_name == "patch" else super().get_command(ctx, cmd_name)


app = typer.Typer(cls=_Commands, add_completion=False, help="Trained attention-only transformers, opened up.", **PLAIN)
app.add_typer(checkpoints.app, name="checkpoints")
app.command("train")(training.train_command)
app.command("film")(training.film_command)
app.command("influence")(training.influence_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("circuits")(circuits.circuits_command)
app.command("spectrum")(circuits.spectrum_command)
app.command("composition")(circuits.composition_command)
app.command("subspaces")(circuits.subspaces_command)
app.command("audit")(atlas.audit_command)
app.command("motifs")(heads.motifs_command)
app.command("head-scores")(heads.head_scores_command)
app.command("atlas")(atlas.atlas_command)
app.command("compare")(heads.compare_command)
app.command("universality")(heads.universality_command)
app.command("ablate", cls=TextCommand)(heads.ablate_command)
app.command("generate", cls=TextCommand)(heads.generate_command)
app.command("paths", cls=TextCommand)(paths.paths_command)
app.command("trigrams")(trigrams.trigrams_command)
app.command("bigrams")(trigrams.bigrams_command)
app.command("compile")(distill.compile_command)
app.command("distill")(distill.distill_command)
app.add_typer(view.app, name="view")
app.command("report", cls=TextCommand)(view.report_command)
app.add_typer(sweep.app, name="sweep")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and exit. Errors a user can act on are ValueErrors and OSErrors here."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without φ must not end a listing
            stream.reconfigure(errors="backslashreplace")
    try:
        typer.main.get_command(app)(args=None if argv is None else list(argv), prog_name="aotlens")
    except (ValueError, OSError) as error:
        # Written by hand: stderr may be the pipe that broke.
        try:
            print(f"aotlens: {printable(one_line(str(error)))}", file=sys.stderr, flush=True)
        finally:
            sys.exit(2)


def _version(wanted: bool) -> bool:
    if wanted:
        print_text(f"aotlens {__version__}")
        raise typer.Exit()
    return wanted


@app.callback()
def _aotlens(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options before a command; --version has done its work by now."""


if __name__ == "__main__":
    main()
