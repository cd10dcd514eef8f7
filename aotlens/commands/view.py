"""``aotlens view``: what a page shows, at the command line, by the same declaration (`aotlens.views`)."""

from __future__ import annotations

from dataclasses import replace
from inspect import Parameter as Argument
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from aotlens.commands.shared import PLAIN, Csv, Folders, Force, TokenBar, check_csv, print_text, table, write_csv
from aotlens.views import FAMILIES, family

if TYPE_CHECKING:
    from aotlens.views import Family, Parameter

_MOST_LINES = 60


class _OfFamilies(typer.core.TyperGroup):
    """A command a family, made from its declaration when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(FAMILIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command_of(cmd_name) if cmd_name in FAMILIES else None


def command_of(name: str, called: str | None = None) -> Any:
    """Return the command of a family of views, by the family's name unless it is `called` otherwise."""
    of, alone = family(name), typer.Typer(add_completion=False, **PLAIN)
    alone.command(called or name, help=_help(of))(_command(of))
    return typer.main.get_command(alone)


app = typer.Typer(cls=_OfFamilies, help="Print a view of a page: its answer, its table and the Python for it.", **PLAIN)


@app.callback()
def _views() -> None:
    """Print a view of a page: its answer, its table and the Python for it."""


def _help(of: Family) -> str:
    views = "\n\n".join(f"{view.name}: {view.title}." for view in of.views)
    return f"{of.about}\n\nViews, the first unless told:\n\n{views}"


def _command(of: Family) -> Any:
    names = [view.name for view in of.views]

    def run(**given: Any) -> None:
        _show(of, given)

    several = of.several and "One or several, the first of which is inspected."
    arguments: dict[str, tuple[Any, Any]] = {}
    if of.reads is not None:
        words = f"A name that `aotlens checkpoints list` shows, or a folder. {several or ''}".strip()
        kind: Any = list[str] if of.several else str
        first = "" if of.optional else Argument.empty
        arguments["checkpoint"] = Annotated[kind, typer.Argument(metavar="CHECKPOINT", help=words)], first
    arguments["view"] = Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(names)}.")], names[0]
    for name, each in of.parameters.items():
        arguments[name] = _option(each)
    arguments |= {
        "python": (Annotated[bool, typer.Option("--python", help="Print the Python that gives it, and stop.")], False),
        "html": (Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figure here, a page.")], None),
        "csv": (Csv, None),
        "force": (Force, False),
    }
    arguments |= {} if of.reads is None else {"folders": (Folders, [])}
    run.__annotations__ = {name: kind for name, (kind, _) in arguments.items()} | {"return": None}
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Argument(name, Argument.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
            for name, (kind, default) in arguments.items()
        ]
    )
    return run


def _option(each: Parameter) -> tuple[Any, Any]:
    from aotlens.views.kinds import ChoiceParameter, FlagParameter, NumberParameter

    if isinstance(each, ChoiceParameter):
        words = "; ".join(
            f"{value}: {meaning}" if meaning != value else value for value, meaning in each.options.items()
        )
        return Annotated[str, typer.Option(metavar="NAME", help=f"{each.label}. {words}.")], each.first
    blank = f" By default {each.blank}." if each.blank else ""
    if isinstance(each, NumberParameter):
        kind: Any = int if each.whole else float
        bounds: dict[str, Any] = {"min": kind(each.least), "max": kind(each.most)}
        optional = kind if each.first is not None else kind | None
        first = None if each.first is None else kind(each.first)
        return Annotated[optional, typer.Option(**bounds, metavar="N", help=f"{each.label}.{blank}")], first
    metavar = each.word if isinstance(each, FlagParameter) else "TEXT"
    return Annotated[str, typer.Option(metavar=metavar, help=f"{each.label}.{blank}")], each.written(each.first)


def _show(of: Family, given: dict[str, Any]) -> None:
    from aotlens.checkpoints import find_checkpoint
    from aotlens.views import Workshop
    from aotlens.views.view import cells

    named, folders = given.pop("checkpoint", []), given.pop("folders", [])
    view, csv, html = of.view(given.pop("view")), given.pop("csv"), given.pop("html")
    python, force = given.pop("python"), given.pop("force")
    for file in (csv, html):
        check_csv(file, force)
    names = [named] * bool(named) if isinstance(named, str) else named
    infos = [replace(find_checkpoint(name, folders), name=name) for name in names]
    chosen = of.parse(*infos, **given)
    if python:
        print_text(view.python(chosen).rstrip())
        return
    workshop = Workshop(folders)
    with TokenBar(view.slow or "steps") as bar:
        workshop.progress = bar
        result = view.result(chosen, workshop)
    frame = view.frame(result)
    if html is not None:
        from aotlens.plots.results import write_page

        write_page(view.figure(chosen, result), html)
    if csv is not None:
        write_csv(frame, csv)
        return
    print_text(f"{view.caption(chosen, result)}\n")
    print_text(table(cells(frame, _MOST_LINES)))
    if len(frame) > _MOST_LINES:
        print_text(f"… and {len(frame) - _MOST_LINES:,} rows more, which --csv FILE writes.")
