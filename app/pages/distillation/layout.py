"""The Distillation page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.distillation import HEADS
from app.core import Core
from app.core.examples import FIRST
from app.pages.distillation import captions
from app.pages.distillation.address import MAX_RESULTS, DistillationState
from app.pages.distillation.callbacks import result_options
from app.pages.distillation.ids import VIEWS, ids
from app.pages.distillation.service import Distillations
from app.pages.distillation.tables import head_columns
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.choices import head_picker
from app.shell.controls import labelled, link_button, whole_number
from app.shell.drawn import drawn
from app.shell.graph import caption
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import QUIET, about, panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid
from app.shell.views import view_panel

_EXPLAIN = about(captions.MEANING, formula=HEADS.about.formula, source=HEADS.about.source)
_EXPLAIN_TABLE = "Click a column’s name to sort, a head (or Enter on it) to see it closely."
_EXPLAIN_TEXT = "Where on a text the FFN fails, and where the head looks there."
_EXPLAIN_DISTIL = (
    "Trains FFNs for the heads of any checkpoint, all at once, on text that the app was started with; errors are on "
    "documents held out. The result is kept (in $AOTLENS_HOME/distillations) and shown with the others."
)


def layout(core: Core, service: Distillations, state: DistillationState) -> html.Div:
    """Return the page for an address; with nothing in it, the bundled results side by side."""
    asked = None if state.head is None else {"of": state.of, "layer": state.head[0], "head": state.head[1]}
    text = FIRST if state.text is None else state.text
    return html.Div(
        [
            html.H1("Distillation", className="sr-only"),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.ASKED, data=asked),
            dcc.Store(id=ids.PICKED),
            dcc.Store(id=ids.DRAWN),
            dcc.Store(id=ids.MAPPED),
            dcc.Store(id=ids.PROMPT, data={"text": text}),
            _choice_panel(service, state),
            html.Div(
                [
                    tabs(ids.VIEWS, state.view, _views(state), label="All heads"),
                    tabs(ids.BESIDES, state.beside, _besides(core, state, text), label="One head, and new results"),
                ],
                id=ids.BODY,
                className="distillation-body",
                **{"data-empty": ""},
            ),
        ],
        className="distillation-page",
        **{"data-max-characters": str(core.settings.max_characters)},
    )  # fmt: skip


def _views(state: DistillationState) -> dict[str, tuple[str, Any]]:
    table = grid(shell.table(ids.ALL), head_columns(()), key="id", height=500, header=64)
    exports = ("csv", "python")
    return {
        "heads": ("Error by head", _view(ids.GRID, "graph-distilled-grid", captioned=False)),
        "widths": ("Error by width", _view(ids.WIDTHS, captioned=False)),
        "attention": ("Against attention", _view(ids.CLOUD, controls=_across(state), captioned=False)),
        "replaced": ("Heads replaced", _view(ids.COSTS)),
        "table": ("Table", panel(ids.ALL, "All heads", _EXPLAIN_TABLE, table, exports=exports, follows=ids.SHOWN)),
    }


def _besides(core: Core, state: DistillationState, text: str) -> dict[str, tuple[str, Any]]:
    return {
        "head": ("One head", _view(ids.ONE, "graph-distilled-classes", before=[head_picker(ids.HEADS, ids.PICKED)])),
        "curve": ("Learning curve", _view(ids.CURVE, "graph-distilled-curve", captioned=False)),
        "text": ("On a text", _text_panel(core, text)),
        "new": ("Distil a checkpoint", _distil_panel(core, state)),
    }


def _view(id: str, size: str = "graph-distilled", **rest: Any) -> html.Section:
    return view_panel(id, VIEWS[id], size, follows=ids.SHOWN, **rest)


def _choice_panel(service: Distillations, state: DistillationState) -> html.Section:
    chosen = list(state.results or service.first())
    width = "" if state.width is None else str(state.width)
    content = [
        html.Div(
            [
                dmc.MultiSelect(
                    id=ids.RESULTS, label=f"Results (up to {MAX_RESULTS})", maxValues=MAX_RESULTS,
                    data=result_options(service, chosen), value=chosen, searchable=True, className="choose-results",
                    placeholder="choose", nothingFoundMessage="No such result",
                ),
                labelled(
                    "Hidden units of the FFN",
                    dmc.SegmentedControl(
                        id=ids.WIDTH, data=[width or "16"], value=width, size="sm",
                        **{"aria-label": "Hidden units"},
                    ),
                ),
            ],
            className="distillation-choices",
        ),
        html.P(id=ids.MEANING, className="meaning"),
        html.Details(
            [html.Summary("Data and settings"), html.Ul(id=ids.DATA, className="distillation-data")],
            className="caption",
        ),
    ]  # fmt: skip
    return panel(ids.PANEL, "Heads as feed-forward networks", _EXPLAIN, content)


def _across(state: DistillationState) -> dmc.Select:
    return dmc.Select(  # its data come with the first results: the library's motifs take seconds to import
        id=ids.ACROSS, data=[state.across], value=state.across, allowDeselect=False, size="xs", w=290,
        **{"aria-label": "Attention to"},
    )  # fmt: skip


def _text_panel(core: Core, text: str) -> html.Section:
    content: list[Any] = [
        html.Div(
            [
                dmc.Textarea(
                    id=ids.TEXT, label="Your text", value=text, autosize=True, minRows=2, maxRows=6,
                    spellCheck=False, className="prompt-text",
                ),
                dmc.Button("Run", id=ids.RUN, n_clicks=0, rightSection=dmc.Kbd("Ctrl ⏎", size="xs")),
            ],
            className="distillation-prompt",
        ),
        caption(ids.ON_TEXT),
        drawn(ids.STRIP, "strip", "Tokens"),
        html.Div(id=ids.CANVAS, className="large", **QUIET),
    ]  # fmt: skip
    link = link_button(ids.OPEN, "Open in Heads", core.links.to("heads"))
    exports = ("png", "svg", "csv", "python")
    return panel(
        ids.ON_TEXT, "On a text", _EXPLAIN_TEXT, content, controls=link, exports=exports, follows=ids.SHOWN
    )  # fmt: skip


def _distil_panel(core: Core, state: DistillationState) -> html.Section:
    corpora = core.corpora
    notice = None if corpora.names else html.P(captions.NO_CORPUS, className="meaning")
    tokens = core.settings.distil_tokens
    form = html.Div(
        [
            checkpoint_choice(ids.FORM_CHECKPOINT, core.catalog, core.catalog.default(), reads_text=True),
            text_choice(ids.FORM_CORPUS, corpora, corpora.chosen(state.corpus), className="choice"),
            dmc.MultiSelect(
                id=ids.FORM_HIDDEN, label="Hidden units",
                data=[{"value": str(n), "label": captions.units(n) if n == 0 else str(n)}
                      for n in (0, 2, 4, 8, 16, 32, 64, 128)],
                value=["0", "4", "16"], className="choice-units", maxValues=5,
            ),
            dmc.TextInput(
                id=ids.FORM_HEADS, label="Heads", placeholder="all; or 0.1, 1.3", value="", className="choice-short"
            ),
            whole_number(ids.FORM_SEEDS, "Seeds", 3, 1, 10, className="number"),
            dmc.Select(
                id=ids.FORM_TOKENS, label="Trained on at most", allowDeselect=False, w=170,
                data=[{"value": str(n), "label": f"{n:,} tokens"} for n in tokens], value=str(tokens[1]),
            ),
            dmc.Switch(
                id=ids.FORM_COSTS, label="measure what replacing heads costs", checked=True, className="distil-costs"
            ),
            dmc.Button("Run", id=shell.start(ids.FORM), n_clicks=0, className="distil-start"),
        ],
        className="distil-form",
    )  # fmt: skip
    own = own_text(ids.FORM_CORPUS, ids.FORM_PASTED, core.settings)
    return panel(ids.FORM, "Distil a checkpoint", _EXPLAIN_DISTIL, [notice, form, own, job_bar(ids.FORM)])
