"""The Skip-trigrams page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app import ids
from app.components.choices import head_picker
from app.components.graph import graph
from app.components.panel import panel
from app.components.prompt import checkpoint_choice
from app.components.trigram_tables import bugs_grid, heads_grid, rows_grid
from app.services import Services
from app.services.corpora import PASTED
from app.urlstate import MAX_ROWS, TRIGRAM_KINDS, TrigramsState, parse_trigrams
from app.urlstate.trigrams import MAX_COUNT

_EXPLAIN_CHOICE = (
    "A skip-trigram [source] … [destination] → [out]: with the source earlier in the text and the destination as the "
    "current token, the head moves the logit of the out as the next token. Read from the weights, over all triples of "
    "the vocabulary. The address in your browser holds everything you choose here."
)
_EXPLAIN_ROWS = (
    "Search by part of a token, or = and all of it (· is a space, ⏎ a line end). Click a column's name to sort, a row "
    "to explain it; on the keyboard, arrow keys and Enter."
)
_EXPLAIN_EVIDENCE = (
    "A row read from weights need not be true of language, nor matter where it is. Held against text, each row gets a "
    "verdict, and places to read."
)
_EXPLAIN_KINDS = "What sort of thing the rows are, by rules that read their strings; the first that holds counts."
_EXPLAIN_BUGS = (
    "A head's score factors into f(source, destination) · f(source, out). So with keep … in → mind and keep … at → bay "
    "it also says keep … in → bay: what two confirmed rows with one source force, and how often the text has it."
)
_EXPLAIN_HEADS = (
    "Every head's table with these same choices, where it has been searched for. Check every head fills in the rest."
)


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the first head of the first checkpoint."""
    state = parse_trigrams(search)
    checkpoint = state.checkpoint or services.catalog.default()
    return html.Div(
        [
            html.H1("Skip-trigrams", className="sr-only"),
            dcc.Store(id=ids.TRIGRAMS),
            dcc.Store(id=ids.TRIGRAMS_FOUND),
            dcc.Store(id=ids.TRIGRAMS_READING),
            dcc.Store(id=ids.TRIGRAMS_HEAD, data=state.head),
            dcc.Store(id=ids.TRIGRAM_ROW, data=state.row),
            dcc.Interval(id=ids.TRIGRAMS_TIMER, interval=700, disabled=True),
            dcc.Download(id=ids.TRIGRAMS_DOWNLOAD),
            _choice_panel(services, state, checkpoint),
            html.Div(
                [
                    _rows_panel(state),
                    _evidence_panel(services, state),
                    panel(
                        ids.TRIGRAM, "One row", "What the row says, and where it happens.",
                        html.Div(id=ids.TRIGRAM_BODY, className="needs-rows"),
                    ),
                    panel(
                        ids.TRIGRAM_KINDS, "Kinds", _EXPLAIN_KINDS,
                        html.Div(
                            [
                                html.P(id=ids.TRIGRAM_KINDS_CAPTION, className="caption"),
                                graph(ids.TRIGRAM_KINDS_GRAPH, "graph-kinds"),
                                html.Ul(id=ids.TRIGRAM_KINDS_RULES, className="trigram-rules"),
                            ],
                            className="needs-rows",
                        ),
                        exports=("png", "svg", "csv", "json"),
                    ),
                    panel(
                        ids.TRIGRAM_BUGS, "What true rows force", _EXPLAIN_BUGS,
                        [
                            html.P(id=ids.TRIGRAM_BUGS_CAPTION, className="caption"),
                            bugs_grid(ids.TRIGRAM_BUGS_TABLE),
                        ],
                        exports=("csv",),
                    ),
                    panel(
                        ids.TRIGRAM_HEADS, "All heads", _EXPLAIN_HEADS, heads_grid(ids.TRIGRAM_HEADS_TABLE),
                        controls=dmc.Button(
                            "Check every head", id=ids.EVIDENCE_CHECK_ALL, n_clicks=0, size="compact-sm",
                            variant="light",
                        ),
                    ),
                ],
                id=ids.TRIGRAMS_BODY,
                className="trigrams-body",
                **{"data-empty": ""},
            ),
        ],
        className="trigrams",
    )  # fmt: skip


def _choice_panel(services: Services, state: TrigramsState, checkpoint: str | None) -> html.Section:
    heads = head_picker(ids.TRIGRAMS_HEADS, ids.TRIGRAMS_HEAD)
    kind = "none" if state.distance is None else "mean" if state.distance == "mean" else "fixed"
    content = [
        html.Div(
            [
                checkpoint_choice(ids.TRIGRAMS_CHECKPOINT, services.catalog, checkpoint),
                html.Div([html.Span("Head (layer.head)", className="field-label"), heads]),
                _segments(
                    ids.TRIGRAMS_SCORE, "Ranked by", state.score,
                    {"effect": "effect", "sum": "z + ov", "product": "z × ov"},
                ),
                _segments(ids.TRIGRAMS_END, "End", state.end, {"top": "raised", "bottom": "suppressed"}),
                html.Div(
                    [
                        html.Span("Distance to the source", className="field-label"),
                        html.Div(
                            [
                                dmc.SegmentedControl(
                                    id=ids.TRIGRAMS_DISTANCE, value=kind, size="sm",
                                    data=[
                                        {"value": "none", "label": "left out"},
                                        {"value": "mean", "label": "mean"},
                                        {"value": "fixed", "label": "tokens:"},
                                    ],
                                    **{"aria-label": "Distance"},
                                ),
                                dmc.NumberInput(
                                    id=ids.TRIGRAMS_DELTA, value=state.distance if kind == "fixed" else 1, min=1,
                                    max=999_999, allowDecimal=False, allowNegative=False, debounce=400,
                                    className="number", **{"aria-label": "Distance in tokens"},
                                ),
                            ],
                            className="distance",
                        ),
                    ]
                ),
                html.Div(
                    [
                        dmc.NumberInput(
                            id=ids.TRIGRAMS_K, label="Rows", value=state.k, min=1, max=MAX_ROWS, step=100,
                            allowDecimal=False, allowNegative=False, debounce=400, className="number",
                        ),
                        dmc.NumberInput(
                            id=ids.TRIGRAMS_LEAST, label="Training count from", value=state.least, min=0,
                            max=MAX_COUNT, step=5000, allowDecimal=False, allowNegative=False, debounce=400,
                            className="number count", thousandSeparator=",",
                        ),
                    ],
                    className="how-many",
                ),
            ],
            className="trigram-choices",
        ),
        html.P(id=ids.TRIGRAMS_MEANING, className="meaning"),
        html.Div(id=ids.TRIGRAMS_RELATIVE),
        html.Div(
            [
                html.Div(id=ids.TRIGRAMS_PROGRESS, role="status"),
                dmc.Button(
                    "Stop", id=ids.TRIGRAMS_STOP, n_clicks=0, size="compact-sm", variant="default", className="hidden"
                ),
            ],
            className="progress",
        ),
    ]  # fmt: skip
    return panel(ids.TRIGRAMS_PANEL, "Skip-trigrams", _EXPLAIN_CHOICE, content)


def _rows_panel(state: TrigramsState) -> html.Section:
    fields = (
        (ids.TRIGRAM_SOURCE, "source", state.source),
        (ids.TRIGRAM_DESTINATION, "destination", state.destination),
        (ids.TRIGRAM_OUT, "out", state.out),
    )
    filters = [
        *(
            dmc.TextInput(
                id=id, label=label, value=value, placeholder="any token", debounce=350, size="xs",
                className="token-filter",
            )
            for id, label, value in fields
        ),
        _segments(
            ids.TRIGRAM_WITHIN, "Search in", state.within, {"table": "these rows", "all": "all triples"}, size="xs"
        ),
        _select(
            ids.TRIGRAM_VERDICT, "verdict", state.verdict, ["confirmed", "not confirmed", "too rare"]
        ),
        _select(ids.TRIGRAM_KIND, "kind", state.kind, list(TRIGRAM_KINDS)),
    ]  # fmt: skip
    content = html.Div(
        [
            html.Div(filters, className="trigram-filters"),
            html.P(id=ids.TRIGRAM_COUNT, className="trigram-count", role="status"),
            rows_grid(ids.TRIGRAM_GRID),
        ],
    )
    return panel(ids.TRIGRAM_ROWS, "Rows", _EXPLAIN_ROWS, content, exports=("csv",))


def _evidence_panel(services: Services, state: TrigramsState) -> html.Section:
    corpora = services.trigrams.corpora
    known = {info.name: info for info in services.catalog.list()}
    info = known.get(state.checkpoint or services.catalog.default() or "")
    settings = services.settings
    tokens = sorted({*settings.evidence_tokens, min(state.tokens, max(settings.evidence_tokens))})
    content = [
        html.Div(
            [
                dmc.Select(
                    id=ids.EVIDENCE_CORPUS, label="Text", data=[*corpora.names, PASTED], allowDeselect=False, size="xs",
                    value=corpora.chosen(state.corpus, info) or PASTED, className="choice",
                ),
                dmc.Select(
                    id=ids.EVIDENCE_TOKENS, label="At most", allowDeselect=False, size="xs", w=150,
                    data=[{"value": str(n), "label": f"{n:,} tokens"} for n in tokens],
                    value=str(min(state.tokens, max(tokens))),
                ),
                dmc.Button("Check the rows", id=ids.EVIDENCE_CHECK, n_clicks=0, size="xs"),
            ],
            className="evidence-choices",
        ),
        html.Div(
            dmc.Textarea(
                id=ids.EVIDENCE_PASTED, label="Your text", placeholder="Paste a text: a few pages or more",
                value="", minRows=3, maxRows=6, autosize=True, size="xs", spellCheck=False, debounce=500,
            ),
            id=ids.box(ids.EVIDENCE_PASTED),
            className="evidence-pasted hidden",
        ),
        html.P(id=ids.EVIDENCE_ABOUT, className="caption"),
        html.Div(id=ids.notice(ids.EVIDENCE_CHECK), className="panel-notice", role="status"),
        html.Details(
            [html.Summary("What the verdicts mean"), html.P(id=ids.EVIDENCE_RULE, className="caption")],
            className="caption",
        ),
    ]  # fmt: skip
    return panel(ids.EVIDENCE, "Check against text", _EXPLAIN_EVIDENCE, content)


def _segments(id: str, label: str, value: str, data: dict[str, str], size: Any = "sm") -> html.Div:
    control = dmc.SegmentedControl(
        id=id,
        data=[{"value": one, "label": text} for one, text in data.items()],
        value=value,
        size=size,
        **{"aria-label": label},
    )
    return html.Div([html.Span(label, className=f"field-label field-label-{size}"), control])


def _select(id: str, label: str, value: str | None, data: list[str]) -> dmc.Select:
    return dmc.Select(
        id=id, label=label, data=data, value=value, placeholder="any", clearable=True, size="xs", className="choice"
    )
