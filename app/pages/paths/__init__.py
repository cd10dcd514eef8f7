"""Paths: which ways a logit came through the heads, the model without one of them, and an attention score likewise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash import html

from aotlens.conventions import head_name
from aotlens.views import View, paths, scores
from aotlens.views.paths import TEXT, PathsParameters
from app.core.examples import EXAMPLES
from app.core.files import File, text_file
from app.core.labels import Labels, token_labels
from app.core.workshop import AppWorkshop
from app.pages.paths import tables
from app.shell.arrange import Columns, Form, Linked, Panel, Preset, Rows, Tabs
from app.shell.view_page import view_page
from app.shell.view_service import Views

_EXAMPLES = {"A name that came before (induction)": TEXT, **EXAMPLES}
#: The parameters of a score.
_CELL = ("head", "query", "key", "against")


def _tokens(service: Views, params: PathsParameters) -> Labels:
    """All tokens of the model; before anybody types, the likeliest ones at the position, and the one that came next."""
    loaded = service.core.catalog.load(params.checkpoint)
    labels: Labels = service.workshop.keep(("tokens", loaded.key), lambda: token_labels(loaded.model))
    expansion = service.core.expansions.of(params.checkpoint, params.text).expansion
    n = min(service.core.settings.n_predictions, labels.n)
    first = expansion.frozen.logits[params.at].topk(n).indices.tolist()
    if params.position is not None:
        first += expansion.tokens[params.position + 1 : params.position + 2]
    return replace(labels, first=list(dict.fromkeys(first)))


def _notes(params: PathsParameters, result: Any) -> Any:
    notes = paths.notes(params)
    return html.Div(notes, className="caption exact") if notes else ""


def _of_top(params: PathsParameters, result: Any) -> str:
    return paths.TOP.title + ("" if params.through is None else f" through {head_name(params.through)}")


def _of_effect(params: PathsParameters, effect: Any) -> str:
    return f"Without {'' if effect.without.startswith('head ') else 'the path '}{effect.without}"


def _trace_page(workshop: AppWorkshop, view: View, params: PathsParameters) -> File:
    """The library's page of a trace: the drawing, a table of all edges, and the JSON."""
    return text_file(f"{view.file(params)}.html", workshop.result(view, params).to_html(), "text/html")


PAGE = view_page(
    paths.FAMILY,
    "Paths",
    labels={"target": _tokens, "versus": _tokens},
    arranged=Rows(
        Form(
            paths.SOURCES, lines=tables.sources, body=_notes,
            presets=[Preset(words, {"text": text}, menu="Examples") for words, text in _EXAMPLES.items()],
        ),
        Tabs("of", label="Quantity that is decomposed", sections={
            "logit": ("A logit", Columns(
                Tabs("view", label="Paths and heads", sections={
                    "top": ("Largest paths", Linked(
                        paths.TOP, controls=("k",), over=("by", "through"), lines=tables.paths, title=_of_top,
                    )),
                    "heads": ("Heads", Linked(paths.HEADS, lines=tables.heads)),
                    "flow": ("Flow", Panel(paths.FLOW, size="fill")),
                }),
                Tabs("beside", label="Sums and effects", sections={
                    "orders": ("By number of heads", Panel(paths.ORDERS, size="fill")),
                    "without": ("Without a head or a path", Linked(
                        paths.WITHOUT, controls=("without",), lines=tables.effect, title=_of_effect,
                    )),
                }),
                widths="minmax(0, 1.12fr) minmax(0, 1fr)",
            )),
            "score": ("An attention score", Rows(
                Linked(scores.SCORE, over=_CELL, lines=tables.sides),
                Columns(
                    Tabs("part", label="Pairs and trace", sections={
                        "pairs": ("Largest pairs", Linked(scores.PAIRS, reads=_CELL, lines=tables.pairs)),
                        "trace": ("Trace", Linked(
                            scores.TRACE, reads=_CELL, lines=tables.trace, saves={"html": _trace_page},
                        )),
                    }),
                    Tabs("sums", label="Sums of pairs", sections={
                        "heads": ("By last heads", Panel(scores.BY_HEADS, reads=_CELL)),
                        "sources": ("By sources", Panel(scores.BY_SOURCES, reads=_CELL)),
                        "orders": ("By numbers of heads", Panel(scores.BY_ORDERS, reads=_CELL)),
                    }),
                ),
            )),
        }),
    ),
)  # fmt: skip
