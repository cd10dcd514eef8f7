"""``aotlens view`` and ``aotlens report``: what pages show, at the command line and in one file, by the same
declarations (`aotlens.views`)."""

from __future__ import annotations

from dataclasses import replace
from inspect import Parameter as Argument
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from aotlens.commands import options
from aotlens.commands.shared import PLAIN, Context, TokenBar, check_new, command, print_text, table, with_options
from aotlens.views import FAMILIES, family

if TYPE_CHECKING:
    from aotlens.views import Family, Parameter

_MOST_LINES = 60
_ABOUT = "Print a view of a page: its answer, its table and the Python for it."


class _Families(typer.core.TyperGroup):
    """A command per family, made from its declaration when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(FAMILIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command_of(cmd_name) if cmd_name in FAMILIES else None


app = typer.Typer(cls=_Families, help=_ABOUT, **PLAIN)
app.callback(help=_ABOUT)(lambda: None)


def command_of(name: str, alias: str | None = None) -> Any:
    """Return the command of a family of views, by the family's name or by an alias."""
    views, alone = family(name), typer.Typer(add_completion=False, **PLAIN)
    titles = "\n\n".join(f"{view.name}: {view.title}." for view in views.views)
    about = f"{views.about}\n\nViews, by default the first:\n\n{titles}"
    alone.command(alias or name, help=about)(_command(views))
    return typer.main.get_command(alone)


def _command(views: Family) -> Any:
    def run(**options: Any) -> None:
        _show(views, options)

    names = [view.name for view in views.views]
    several = views.several and "One or several, the first of which is inspected."
    arguments: dict[str, tuple[Any, Any]] = {}
    if views.reads is not None:
        words = f"A name that `aotlens checkpoints list` shows, or a folder. {several or ''}".strip()
        kind: Any = list[str] if views.several else str
        first = "" if views.optional else Argument.empty
        arguments["checkpoint"] = Annotated[kind, typer.Argument(metavar="CHECKPOINT", help=words)], first
    arguments["view"] = Annotated[str, options.word(f"One of {', '.join(names)}.", "NAME")], names[0]
    arguments |= {name: _option(parameter) for name, parameter in views.parameters.items()}
    arguments |= {
        "python": (Annotated[bool, options.flag("python", "Print the Python that gives it, and stop.")], False),
        "html": (Annotated[Path | None, options.word("Write the figure here, a page.", "FILE")], None),
        "csv": (options.Csv, None),
        "force": (options.Force, False),
    }
    arguments |= {} if views.reads is None else {"folders": (options.Folders, [])}
    with_options(run, arguments)
    return run


def _option(parameter: Parameter) -> tuple[Any, Any]:
    """A parameter's annotation and default."""
    from aotlens.views.kinds import ChoiceParameter, FlagParameter, NumberParameter

    if isinstance(parameter, ChoiceParameter):
        words = "; ".join(
            f"{value}: {meaning}" if meaning != value else value for value, meaning in parameter.options.items()
        )
        return Annotated[str, options.word(f"{parameter.label}. {words}.", "NAME")], parameter.first
    about = f"{parameter.label}." + (f" By default {parameter.blank}." if parameter.blank else "")
    if isinstance(parameter, NumberParameter):
        kind: Any = int if parameter.whole else float
        number = options.whole(about, kind(parameter.least), kind(parameter.most))
        if parameter.first is None:
            return Annotated[kind | None, number], None
        return Annotated[kind, number], kind(parameter.first)
    metavar = parameter.word if isinstance(parameter, FlagParameter) else "TEXT"
    return Annotated[str, options.word(about, metavar)], parameter.written(parameter.first)


def _show(views: Family, options: dict[str, Any]) -> None:
    from aotlens.checkpoints import find_checkpoint
    from aotlens.views import Workshop
    from aotlens.views.view import cells

    names, folders = options.pop("checkpoint", []), options.pop("folders", [])
    view, html, python = views.view(options.pop("view")), options.pop("html"), options.pop("python")
    context = Context("view", options.pop("csv"), options.pop("force"))
    for file in (context.csv, html):
        check_new(file, context.force)
    names = [names] * bool(names) if isinstance(names, str) else names
    params = views.parse(*(replace(find_checkpoint(name, folders), name=name) for name in names), **options)
    if python:
        print_text(view.python(params).rstrip())
        return
    workshop = Workshop(folders)
    with TokenBar(view.slow or "steps") as bar:
        workshop.progress = bar
        result = view.result(params, workshop)
    frame = view.frame(result)
    if html is not None:
        from aotlens.plots.results import write_page

        write_page(view.figure(params, result), html)
    text = table(cells(frame, _MOST_LINES))
    if len(frame) > _MOST_LINES:
        text += f"\n… and {len(frame) - _MOST_LINES:,} rows more, which --csv FILE writes."
    context.write(frame)
    context.show(iter([view.caption(params, result), text]))


@command("report", "csv")
def report_command(
    context: Context,
    checkpoint: options.Checkpoint,
    out: Annotated[Path, options.word("The file to write: report.html.", "FILE", "--out", "-o")],
    corpus: Annotated[
        str | None,
        options.word(
            "Text to compare skip-trigrams with, and for an atlas where none is stored: stdlib, dir:PATH, hf:….", "SPEC"
        ),
    ] = None,
    text: Annotated[
        str | None, options.word("Show where heads attend in this text. Default: in what the atlas read.", "TEXT")
    ] = None,
    image: Annotated[
        list[Path],
        options.word(
            "Show where heads attend in this image, for a model of images; may be given several times.", "FILE"
        ),
    ] = [],
    heads: Annotated[
        str | None,
        options.word("Heads whose circuits and skip-trigrams are listed. Default: the 8 that matter most.", "L.H,L.H"),
    ] = None,
    sections: Annotated[
        str | None,
        options.word(
            "Of maps,atlas,circuits,trigrams,distillation,losses,card, in this order. Default: all, or with --view "
            "none.",
            "NAMES",
        ),
    ] = None,
    view: Annotated[
        list[str],
        options.word(
            "A view of `aotlens view`, with its parameters: 'circuits.map head=1.0 kind=ov'; may be given several "
            "times.",
            "FAMILY.VIEW",
        ),
    ] = [],
    tokens: Annotated[int, options.whole("How much of the corpus is read.", 1, options.MOST_TOKENS)] = 30_000,
) -> None:
    """Write what is known of a checkpoint to one HTML file of at most 5 MB, which opens from disk without a network.

    It has the maps of all heads on a text or on images, the atlas, circuits, skip-trigrams with verdicts, the
    distillation, losses and the card. A section says what the model cannot show. Of text that the checkpoint was
    trained on, only the documents that were held out are read.
    """
    check_new(out, context.force)
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
            device=context.device,
            folders=context.folders,
            progress=bar,
        )
    report.save(out)
    named = ", ".join(section.name for section in report.sections)
    print_text(f"{out}: {out.stat().st_size / 1e6:.1f} MB ({named})")


def _listed(text: str) -> list[str]:
    """Return the parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
