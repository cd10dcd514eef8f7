"""The Distillation page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.core.examples import FIRST
from app.pages.distillation import words
from app.pages.distillation.address import MAX_RESULTS, DistillationState
from app.pages.distillation.callbacks import result_options
from app.pages.distillation.ids import ids
from app.pages.distillation.service import Distillations
from app.pages.distillation.tables import head_columns
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.choices import head_picker
from app.shell.controls import labelled, link_button, whole_number
from app.shell.drawn import drawn
from app.shell.graph import caption, figure
from app.shell.head_map import head_map
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import about, panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid

_EXPLAIN = about(words.MEANING, formula=words.ERROR, source="Non-linearity in attention, Sections 4 and 5")
_EXPLAIN_GRID = (
    "Row = layer, column = head; the number is the error with the chosen hidden units, mean over seeds. The stronger "
    "the colour, the less an FFN can do it without other tokens. Point at a head for its interval; click it to see it "
    "closely."
)
_EXPLAIN_WIDTHS = (
    "Mean over a model’s heads (bars: 95% interval over heads, long where there are few); dotted: the chosen head. "
    "Left of the line: FFNs by hidden units; the linear map passes through no bottleneck, so it may beat a narrow one. "
    "Right of it: what else was tried on the same heads. “Least of all” is the smallest error that anything reached, "
    "an estimate from above of what any function of the token’s own input could."
)
_EXPLAIN_CLOUD = (
    "A point is a head: colour says where it attends most, shape its model, bars the 95% interval. Left: against its "
    "mean attention to one target. Right: 0 is the same pattern on every text. Click a point to see the head closely."
)
_EXPLAIN_COSTS = (
    "Is the error a good standard to choose heads by? Heads are replaced by their FFNs together, the most FFN-like "
    "first, beside the same heads’ means or zeros, and other orders (grey: random ones). Below the others is better. "
    "Click a name in the legend to leave its curve out."
)
_EXPLAIN_TABLE = "Click a column’s name to sort, a head (or Enter on it) to see it closely."
_EXPLAIN_HEAD = "Errors are on held-out documents. Which tokens is the FFN wrong about?"
_EXPLAIN_CURVE = "Error on validation text while the FFNs trained, a line a seed; below 1 they beat the mean."
_EXPLAIN_TEXT = "Where on a text the FFN fails, and where the head looks there."
_EXPLAIN_DISTIL = (
    "Trains FFNs for the heads of any checkpoint, all at once, on text that the app was started with; errors are on "
    "documents held out. The result is kept (in $AOTLENS_HOME/distillations) and shown with the others."
)
_PICTURES = ("png", "svg")
_FIGURES = (*_PICTURES, "csv")


def layout(core: Core, service: Distillations, state: DistillationState) -> html.Div:
    """The page for an address; with nothing in it, the bundled results side by side."""
    asked = None if state.head is None else {"of": state.of, "layer": state.head[0], "head": state.head[1]}
    text = FIRST if state.text is None else state.text
    return html.Div(
        [
            html.H1("Distillation", className="sr-only"),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.ASKED, data=asked),
            dcc.Store(id=ids.PICKED),
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
    costs = [html.Ul(id=shell.caption(ids.COSTS), className="distillation-data"), figure(ids.COSTS, "graph-distilled")]
    table = grid(shell.table(ids.ALL), head_columns(()), key="id", height=500, header=64)
    big, high = figure(ids.GRID, "graph-distilled-grid"), "graph-distilled"
    return {
        "heads": ("Error by head", _panel(ids.GRID, "Error by head", _EXPLAIN_GRID, big)),
        "widths": ("Error by width", _panel(ids.WIDTHS, "Error by width", _EXPLAIN_WIDTHS, figure(ids.WIDTHS, high))),
        "attention": (
            "Against attention",
            _panel(
                ids.CLOUD, "Error against attention", _EXPLAIN_CLOUD, figure(ids.CLOUD, high), exports=_PICTURES,
                controls=_across(state),
            ),
        ),
        "replaced": ("Heads replaced", _panel(ids.COSTS, "Heads replaced by FFNs", _EXPLAIN_COSTS, costs)),
        "table": ("Table", _panel(ids.ALL, "All heads", _EXPLAIN_TABLE, table, exports=("csv",))),
    }  # fmt: skip


def _besides(core: Core, state: DistillationState, text: str) -> dict[str, tuple[str, Any]]:
    curve = figure(ids.CURVE, "graph-distilled-curve")
    return {
        "head": ("One head", _head_panel()),
        "curve": ("Learning curve", _panel(ids.CURVE, "Learning curve", _EXPLAIN_CURVE, curve)),
        "text": ("On a text", _text_panel(core, text)),
        "new": ("Distil a checkpoint", _distil_panel(core, state)),
    }


def _panel(
    id: str, title: str, explanation: str, content: Any, *, exports: tuple[str, ...] = _FIGURES, controls: Any = None
) -> html.Section:
    return panel(id, title, explanation, content, controls=controls, exports=(*exports, "python"), follows=ids.SHOWN)


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
            [html.Summary("What was measured, and on what"), html.Ul(id=ids.DATA, className="distillation-data")],
            className="caption",
        ),
    ]  # fmt: skip
    return panel(ids.PANEL, "Heads as feed-forward networks", _EXPLAIN, content)


def _across(state: DistillationState) -> dmc.Select:
    return dmc.Select(  # its data come with the first results: the library's motifs take seconds to import
        id=ids.ACROSS, data=[state.across], value=state.across, allowDeselect=False, size="xs", w=290,
        **{"aria-label": "Attention to"},
    )  # fmt: skip


def _head_panel() -> html.Section:
    content = [
        head_picker(ids.HEADS, ids.PICKED),
        html.P(id=shell.caption(ids.ONE), className="meaning", role="status"),
        figure(ids.ONE, "graph-distilled-classes"),
    ]
    return _panel(ids.ONE, "One head", _EXPLAIN_HEAD, content)


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
        *head_map(ids.ON_TEXT, "graph-distilled-map"),
    ]  # fmt: skip
    link = link_button(ids.OPEN, "Open in Heads", core.links.to("heads"))
    return _panel(ids.ON_TEXT, "On a text", _EXPLAIN_TEXT, content, controls=link)


def _distil_panel(core: Core, state: DistillationState) -> html.Section:
    corpora = core.corpora
    notice = None if corpora.names else html.P(words.NO_CORPUS, className="meaning")
    tokens = core.settings.distil_tokens
    form = html.Div(
        [
            checkpoint_choice(ids.FORM_CHECKPOINT, core.catalog, core.catalog.default(), reads_text=True),
            text_choice(ids.FORM_CORPUS, corpora, corpora.chosen(state.corpus), className="choice"),
            dmc.MultiSelect(
                id=ids.FORM_HIDDEN, label="Hidden units",
                data=[{"value": str(n), "label": words.units(n) if n == 0 else str(n)}
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
            dmc.Button("Distil", id=shell.start(ids.FORM), n_clicks=0, className="distil-start"),
        ],
        className="distil-form",
    )  # fmt: skip
    own = own_text(ids.FORM_CORPUS, ids.FORM_PASTED, core.settings)
    return panel(ids.FORM, "Distil a checkpoint", _EXPLAIN_DISTIL, [notice, form, own, job_bar(ids.FORM)])
