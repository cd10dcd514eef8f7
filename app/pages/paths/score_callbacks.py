"""What the Paths page asks of the server about an attention score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from dash import no_update

from aotlens.plots import Theme
from app.core import Core
from app.core import score_words as words
from app.core.errors import RequestError
from app.core.files import File
from app.core.scores import ScoreQuestion
from app.pages.paths import score_figures as figures
from app.pages.paths import score_files as files
from app.pages.paths.ids import SCORE_PANELS, ids
from app.pages.paths.score_service import N_PAIRS, question_of
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import stores, values
from app.shell.score_lines import pair_table
from app.shell.sharing import save_files, when_seen

_SUMS = {"heads": ids.BY_HEADS, "sources": ids.BY_SOURCES, "orders": ids.BY_ORDERS}


def register(app: App, core: Core) -> None:
    """The callbacks of a score's panels, and their files."""
    when_seen(app, ids.SCORE_SHOWN, SCORE_PANELS)

    @guarded(
        app,
        panel=ids.SCORE,
        inputs=stores(prompt=ids.PROMPT, cell=ids.CELL) | values(of=ids.OF),
        output=stores(shown=ids.SCORE_SHOWN, top=shell.drawn(ids.SCORE_TOP)),
        empty={"top": no_update},  # of a score that is refused, another one can still be chosen
    )
    def choose(prompt: Any, cell: Any, of: str) -> Answer:
        if of != "score":
            return None
        question, said = question_of(
            core, prompt.get("checkpoint"), prompt.get("text") or "", cell["head"], cell["query"], cell["key"],
            cell["against"], length=prompt.get("length"),
        )  # fmt: skip
        return {
            "shown": question.to_dict(),
            "top": figures.target(core, core.scores.explain(question), said),
        }

    of_score = partial(guarded, app, reads={"question": chosen})

    @of_score(
        panel=ids.PAIRS, inputs=stores(question=shell.seen(ids.PAIRS)), parts=("caption",),
        output=stores(lines=shell.drawn(ids.PAIR_LINES)),
    )  # fmt: skip
    def list_pairs(question: ScoreQuestion) -> Answer:
        explained, top = core.scores.explain(question), core.scores.top(question, N_PAIRS)
        return {"caption": words.proof(top), "lines": [pair_table(core.links, explained, top)]}

    @of_score(
        panel=ids.TRACE, inputs=stores(question=shell.seen(ids.TRACE), theme=shell.THEME),
        parts=("figure", "caption"), output=stores(lines=shell.drawn(ids.TRACE_LINES)),
    )  # fmt: skip
    def draw_trace(question: ScoreQuestion, theme: Theme) -> Answer:
        trace = core.scores.trace(question)
        left = f"; {trace.n_not_followed} more are not followed" if trace.n_not_followed else ""
        return {
            "figure": figures.trace_figure(core, question, theme),
            "caption": f"{trace.headline}{left}.",
            "lines": figures.trace_lines(core, question),
        }

    for by, panel in _SUMS.items():
        _register_sums(of_score, core, by, panel)

    def saved(make: Callable[..., File]) -> Callable[..., File]:
        def file(shown: Any) -> File:
            question = chosen(shown)
            if question is None:
                raise RequestError("No score is explained, so there is nothing to save: choose one first.")
            return make(core, question)

        return file

    entries = {(panel, kind): partial(files.sums, by=by, kind=kind) for by, panel in _SUMS.items() for kind in _KINDS}
    entries |= {(ids.PAIRS, "csv"): files.pairs_csv, (ids.PAIRS, "json"): files.pairs_json}
    entries |= {(ids.TRACE, kind): partial(files.trace, kind=kind) for kind in ("svg", "html", "json")}
    save_files(
        app,
        {shell.export(panel, kind): saved(make) for (panel, kind), make in entries.items()},
        stores(shown=ids.SCORE_SHOWN),
    )


_KINDS = ("csv", "json")


def _register_sums(of_score: Any, core: Core, by: str, panel: str) -> None:
    @of_score(
        panel=panel, inputs=stores(question=shell.seen(panel), theme=shell.THEME), parts=("figure", "caption")
    )  # fmt: skip
    def draw_sums(question: ScoreQuestion, theme: Theme) -> Answer:
        total = core.scores.explain(question).score.value
        return {
            "figure": figures.sums_figure(core, question, by, theme),
            "caption": f"All pairs together: {words.signed(total)} {words.unit(core.scores.explain(question))}.",
        }


def chosen(shown: Any) -> ScoreQuestion | None:
    """The score that is shown; None when there is none."""
    if not shown:
        return None
    given = {field.name: shown[field.name] for field in fields(ScoreQuestion)}
    layer, head = given["head"]
    return ScoreQuestion(**{**given, "head": (int(layer), int(head))})
