"""The Skip-trigrams page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.trigram_captions import RULES, SCORES
from aotlens.views.trigrams import CHECK, CHOICE, FORCED, KINDS
from app.core import Core
from app.pages.trigrams.address import KINDS as ALL_KINDS
from app.pages.trigrams.address import MAX_COUNT, MAX_ROWS, VERDICTS, TrigramsState
from app.pages.trigrams.ids import VIEWS, ids
from app.pages.trigrams.service import Trigrams
from app.pages.trigrams.tables import bigrams_grid, forced_grid, heads_grid, rows_grid
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.controls import head_choice, labelled, segments, switch_of, whole_number
from app.shell.graph import caption
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.views import FILES, about_view, view_panel

_FOLDS = {"similar": "distinct", "sources": "sources grouped", "none": "all"}
_DISTANCES = {"none": "left out", "mean": "mean", "fixed": "tokens:"}


def layout(core: Core, service: Trigrams, state: TrigramsState) -> html.Div:
    """Return the page for an address; with nothing in it, rows that come checked."""
    checkpoint = service.first(state)
    return html.Div(
        [
            html.H1("Skip-trigrams", className="sr-only"),
            *(dcc.Store(id=id) for id in (ids.ASKED, ids.SHOWN, ids.FIRST, ids.DRAWN, ids.READ)),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.ROW, data=state.row),
            dcc.Store(id=ids.OPEN, data=[]),
            _choice_panel(core, state, checkpoint),
            html.Div(
                [
                    tabs(ids.TABS, state.tab, _views(state), label="Of the head"),
                    tabs(ids.BESIDES, state.beside, _besides(core, state, checkpoint), label="Of a row, and of text"),
                ],
                id=ids.BODY,
                className="trigrams-body",
            ),
        ],
        className="trigrams",
    )


def _views(state: TrigramsState) -> dict[str, tuple[str, Any]]:
    rules = html.Ul([html.Li([html.B(name), f": {rule}"]) for name, rule in RULES.items()], className="trigram-rules")
    forced = [caption(ids.FORCED), forced_grid(shell.table(ids.FORCED))]
    heads = [
        _started(ids.ALL_HEADS),
        caption(ids.ALL_HEADS),
        heads_grid(shell.table(ids.ALL_HEADS)),
    ]
    kinds = view_panel(
        ids.KINDS, KINDS, "graph-kinds", follows=ids.ASKED, before=[rules], exports=(*FILES, "json"),
    )  # fmt: skip
    return {
        "rows": ("Rows", _rows_panel(state)),
        "kinds": (KINDS.title, kinds),
        "forced": (FORCED.title, _panel(ids.FORCED, forced)),
        "heads": ("All heads", _panel(ids.ALL_HEADS, heads)),
        "direct": ("Direct path", _path_panel(state)),
    }


def _panel(id: str, content: Any, **rest: Any) -> html.Section:
    view = VIEWS.get(id) or {ids.EVIDENCE: CHECK, ids.CHOICE: CHOICE}[id]
    rest = {"exports": ("csv", "python"), **rest}
    return panel(id, view.title, about_view(view), content, follows=ids.ASKED, **rest)


def _started(id: str, **rest: Any) -> html.Div:
    """The button that starts a panel's view, and how far it is."""
    button = dmc.Button("Run", id=shell.start(id), n_clicks=0, size="compact-sm", **rest)
    return html.Div([button, job_bar(id), dcc.Store(id=shell.made(id))], className="view-start")


def _besides(core: Core, state: TrigramsState, checkpoint: str | None) -> dict[str, tuple[str, Any]]:
    row = html.Div(id=shell.body(ids.ONE), className="one-row", tabIndex=0)
    return {
        "one": ("One row", _panel(ids.ONE, row, exports=("python",))),
        "text": (CHECK.title, _evidence_panel(core, state, checkpoint)),
    }


def _path_panel(state: TrigramsState) -> html.Section:
    content = [
        html.Div(
            [
                dmc.TextInput(
                    id=ids.AFTER, label="last token", value=state.after, placeholder="any token", debounce=350,
                    size="xs", className="token-filter",
                ),
                dmc.Switch(
                    id=ids.OWN, label="with heads that attend to the token itself", checked=state.own, size="xs",
                ),
            ],
            className="trigram-filters",
        ),
        caption(ids.PATH),
        bigrams_grid(shell.table(ids.PATH)),
    ]  # fmt: skip
    return _panel(ids.PATH, content)


def _choice_panel(core: Core, state: TrigramsState, checkpoint: str | None) -> html.Section:
    kind = "none" if state.distance is None else "mean" if state.distance == "mean" else "fixed"
    content = [
        html.Div(
            [
                checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True),
                head_choice(ids.HEADS, ids.HEAD),
                segments(
                    ids.SCORE, "Ranked by", state.score,
                    SCORES,
                ),
                segments(ids.END, "End", state.end, {"top": "promotes", "bottom": "suppresses"}),
                labelled(
                    "Distance to the source",
                    html.Div(
                        [
                            switch_of(ids.DISTANCE, "Distance", kind, _DISTANCES, size="sm"),
                            whole_number(
                                ids.DELTA, None, state.distance if kind == "fixed" else 1, 1, 999_999, debounce=400,
                                className="number", **{"aria-label": "Distance in tokens"},
                            ),
                        ],
                        className="distance",
                    ),
                ),
                html.Div(
                    [
                        whole_number(ids.K, "Rows", state.k, 1, MAX_ROWS, step=100, debounce=400, className="number"),
                        whole_number(
                            ids.LEAST, "Training count from", state.least, 0, MAX_COUNT, step=5000, debounce=400,
                            className="number count", thousandSeparator=",",
                        ),
                    ],
                    className="how-many",
                ),
            ],
            className="trigram-choices",
        ),
        html.P(id=ids.MEANING, className="meaning"),
        html.Div(id=ids.RELATIVE),
    ]  # fmt: skip
    return _panel(ids.CHOICE, content, exports=())


def _rows_panel(state: TrigramsState) -> html.Section:
    fields = (
        (ids.SOURCE, "source", state.source),
        (ids.DESTINATION, "destination", state.destination),
        (ids.OUT, "predicted token", state.out),
    )
    filters = [
        *(
            dmc.TextInput(
                id=id, label=label, value=value, placeholder="any token", debounce=350, size="xs",
                className="token-filter",
            )
            for id, label, value in fields
        ),
        segments(ids.WITHIN, "Search in", state.within, {"table": "these rows", "all": "all triples"}, size="xs"),
        _select(ids.VERDICT, "verdict", state.verdict, list(VERDICTS)),
        _select(ids.KIND, "kind", state.kind, list(ALL_KINDS)),
    ]  # fmt: skip
    content = html.Div(
        [
            html.Div(filters, className="trigram-filters"),
            _started(ids.ROWS, className="hidden"),
            caption(ids.ROWS),
            rows_grid(shell.table(ids.ROWS)),
        ],
    )
    fold = switch_of(ids.FOLD, "Rows that say nearly the same", state.fold, _FOLDS)
    return _panel(ids.ROWS, content, controls=fold)


def _evidence_panel(core: Core, state: TrigramsState, checkpoint: str | None) -> html.Section:
    corpora, settings = core.corpora, core.settings
    known = {info.name: info for info in core.catalog.list()}
    info = known.get(checkpoint or "")
    tokens = sorted({*settings.evidence_tokens, min(state.tokens, max(settings.evidence_tokens))})
    content = [
        html.Div(
            [
                text_choice(ids.CORPUS, corpora, corpora.chosen(state.corpus, info), size="xs", className="choice"),
                dmc.Select(
                    id=ids.TOKENS, label="At most", allowDeselect=False, size="xs", w=150,
                    data=[{"value": str(n), "label": f"{n:,} tokens"} for n in tokens],
                    value=str(min(state.tokens, max(tokens))),
                ),
            ],
            className="evidence-choices",
        ),
        own_text(ids.CORPUS, ids.PASTED, settings),
        caption(ids.EVIDENCE),
        _started(ids.EVIDENCE),
        html.Details(
            [html.Summary("Meaning of the verdicts"), html.P(id=ids.RULE, className="caption")],
            className="caption",
        ),
    ]  # fmt: skip
    return _panel(ids.EVIDENCE, content, exports=())


def _select(id: str, label: str, value: str | None, data: list[str]) -> dmc.Select:
    return dmc.Select(
        id=id, label=label, data=data, value=value, placeholder="any", clearable=True, size="xs", className="choice"
    )
