"""The Distillation page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app import ids
from app.components.choices import head_picker
from app.components.distillation_parts import heads_table
from app.components.examples import FIRST
from app.components.graph import graph
from app.components.panel import panel
from app.components.prompt import checkpoint_choice
from app.pages.distillation.callbacks import result_options
from app.services import Services
from app.services import distillation_words as words
from app.urlstate import MAX_RESULTS, DistillationState, HeadsState, format_heads, parse_distillation

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


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the bundled results side by side."""
    state = parse_distillation(search)
    figures = ("png", "svg", "csv")
    asked = None if state.head is None else {"of": state.of, "layer": state.head[0], "head": state.head[1]}
    text = FIRST if state.text is None else state.text
    return html.Div(
        [
            html.H1("Distillation", className="sr-only"),
            dcc.Store(id=ids.DISTILLATION),
            dcc.Store(id=ids.DISTILLATION_ASKED, data=asked),
            dcc.Store(id=ids.DISTILLATION_PICKED),
            dcc.Store(id=ids.DISTILLATION_PROMPT, data={"text": text}),
            dcc.Store(id=ids.DISTIL_WATCHED),
            dcc.Interval(id=ids.DISTIL_TIMER, interval=900, disabled=True),
            dcc.Download(id=ids.DISTILLATION_DOWNLOAD),
            _choice_panel(services, state),
            html.Div(
                [
                    panel(
                        ids.DISTILLED_GRID, "Error by head", _EXPLAIN_GRID,
                        graph(ids.DISTILLED_GRID_GRAPH, "graph-distilled-grid"), exports=figures,
                    ),
                    _head_panel(),
                    panel(
                        ids.DISTILLED_WIDTHS, "Error by width", _EXPLAIN_WIDTHS,
                        graph(ids.DISTILLED_WIDTHS_GRAPH, "graph-distilled"), exports=figures,
                    ),
                    panel(
                        ids.DISTILLED_CURVE, "Learning curve", _EXPLAIN_CURVE,
                        graph(ids.DISTILLED_CURVE_GRAPH, "graph-distilled-curve"), exports=figures,
                    ),
                    _text_panel(text),
                    panel(
                        ids.DISTILLED_CLOUD, "Error against attention", _EXPLAIN_CLOUD,
                        graph(ids.DISTILLED_CLOUD_GRAPH, "graph-distilled"), controls=_across(state),
                        exports=("png", "svg"),
                    ),
                    panel(
                        ids.DISTILLED_COSTS, "Heads replaced by FFNs", _EXPLAIN_COSTS,
                        [
                            html.Ul(id=ids.DISTILLED_COSTS_CAPTION, className="distillation-data"),
                            graph(ids.DISTILLED_COSTS_GRAPH, "graph-distilled"),
                        ],
                        exports=figures,
                    ),
                    panel(
                        ids.DISTILLED_TABLE, "All heads", _EXPLAIN_TABLE, heads_table(ids.DISTILLED_TABLE_GRID),
                        exports=("csv",),
                    ),
                ],
                id=ids.DISTILLATION_BODY,
                className="distillation-body",
                **{"data-empty": ""},
            ),
            _distil_panel(services),
        ],
        className="distillation-page",
        **{"data-max-characters": str(services.settings.max_characters), "data-first": FIRST},
    )  # fmt: skip


def _choice_panel(services: Services, state: DistillationState) -> html.Section:
    chosen = list(state.results or services.distillations.first())
    width = "" if state.width is None else str(state.width)
    content = [
        html.Div(
            [
                dmc.MultiSelect(
                    id=ids.DISTILLATION_RESULTS, label=f"Results (up to {MAX_RESULTS})", maxValues=MAX_RESULTS,
                    data=result_options(services, chosen), value=chosen, searchable=True, className="choose-results",
                    placeholder="choose", nothingFoundMessage="No such result",
                ),
                html.Div(
                    [
                        html.Span("Hidden units of the FFN", className="field-label"),
                        dmc.SegmentedControl(
                            id=ids.DISTILLATION_WIDTH, data=[width or "16"], value=width, size="sm",
                            **{"aria-label": "Hidden units"},
                        ),
                    ]
                ),
            ],
            className="distillation-choices",
        ),
        html.P(id=ids.DISTILLATION_MEANING, className="meaning"),
        html.Ul(id=ids.DISTILLATION_DATA, className="distillation-data"),
    ]  # fmt: skip
    return panel(ids.DISTILLATION_PANEL, "Heads as feed-forward networks", words.MEANING, content)


def _across(state: DistillationState) -> dmc.Select:
    data = [{"value": value, "label": f"attention {text}"} for value, text in words.ATTENTION.items()]
    return dmc.Select(
        id=ids.DISTILLATION_ACROSS, data=data, value=state.across, allowDeselect=False, size="xs", w=290,
        **{"aria-label": "Attention to"},
    )  # fmt: skip


def _head_panel() -> html.Section:
    content = [
        head_picker(ids.DISTILLATION_HEADS, ids.DISTILLATION_PICKED),
        html.P(id=ids.DISTILLED_SAID, className="meaning", role="status"),
        graph(ids.DISTILLED_CLASSES_GRAPH, "graph-distilled-classes"),
    ]
    return panel(ids.DISTILLED, "One head", _EXPLAIN_HEAD, content, exports=("png", "svg", "csv"))


def _text_panel(text: str) -> html.Section:
    link = dcc.Link("Open in Heads", id=ids.DISTILLED_OPEN, href=format_heads(HeadsState()), className="button-link")
    content: list[Any] = [
        html.Div(
            [
                dmc.Textarea(
                    id=ids.DISTILLATION_TEXT, label="Your text", value=text, autosize=True, minRows=2, maxRows=6,
                    spellCheck=False, className="prompt-text",
                ),
                dmc.Button("Run", id=ids.DISTILLATION_RUN, n_clicks=0, rightSection=dmc.Kbd("Ctrl ⏎", size="xs")),
            ],
            className="distillation-prompt",
        ),
        html.P(id=ids.DISTILLED_TEXT_SAID, className="caption", role="status"),
        html.Div(id=ids.DISTILLED_STRIP, className="strip", role="group", **{"aria-label": "Tokens"}),
        graph(ids.DISTILLED_MAP_GRAPH, "graph-distilled-map"),
    ]  # fmt: skip
    return panel(
        ids.DISTILLED_TEXT_PANEL, "On a text", _EXPLAIN_TEXT, content, controls=link, exports=("png", "svg", "csv")
    )


def _distil_panel(services: Services) -> html.Section:
    corpora = services.distillations.corpora.names
    if not corpora:
        notice: Any = html.P(words.NO_CORPUS, className="meaning")
    else:
        notice = None
    tokens = services.settings.distil_tokens
    form = html.Div(
        [
            checkpoint_choice(ids.DISTIL_CHECKPOINT, services.catalog, services.catalog.default(), reads_text=True),
            dmc.Select(
                id=ids.DISTIL_CORPUS, label="Text", data=corpora, value=next(iter(corpora), None), allowDeselect=False,
                placeholder="none was given", disabled=not corpora, className="choice",
            ),
            dmc.MultiSelect(
                id=ids.DISTIL_HIDDEN, label="Hidden units",
                data=[{"value": str(n), "label": words.units(n) if n == 0 else str(n)}
                      for n in (0, 2, 4, 8, 16, 32, 64, 128)],
                value=["0", "4", "16"], className="choice-units", maxValues=5,
            ),
            dmc.TextInput(
                id=ids.DISTIL_HEADS, label="Heads", placeholder="all; or 0.1, 1.3", value="", className="choice-short"
            ),
            dmc.NumberInput(
                id=ids.DISTIL_SEEDS, label="Seeds", value=3, min=1, max=10, allowDecimal=False, allowNegative=False,
                className="number",
            ),
            dmc.Select(
                id=ids.DISTIL_TOKENS, label="Trained on at most", allowDeselect=False, w=170,
                data=[{"value": str(n), "label": f"{n:,} tokens"} for n in tokens], value=str(tokens[1]),
            ),
            dmc.Switch(
                id=ids.DISTIL_COSTS, label="measure what replacing heads costs", checked=True, className="distil-costs"
            ),
            dmc.Button("Distil", id=ids.DISTIL_START, n_clicks=0, disabled=not corpora, className="distil-start"),
        ],
        className="distil-form",
    )  # fmt: skip
    progress = html.Div(
        [
            html.Div(id=ids.DISTIL_PROGRESS, role="status"),
            dmc.Button(
                "Stop", id=ids.DISTIL_STOP, n_clicks=0, size="compact-sm", variant="default", className="hidden"
            ),
        ],
        className="progress",
    )
    return panel(ids.DISTIL, "Distil a checkpoint", _EXPLAIN_DISTIL, [notice, form, progress])
