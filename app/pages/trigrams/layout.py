"""The Skip-trigrams page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.pages.trigrams.address import KINDS, MAX_COUNT, MAX_ROWS, VERDICTS, TrigramsState
from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import Trigrams
from app.pages.trigrams.tables import bigrams_grid, forced_grid, heads_grid, rows_grid
from app.pages.trigrams.words import RULES
from app.shell import ids as shell
from app.shell.background import stop_bar
from app.shell.controls import head_choice, labelled, segments, switch_of, whole_number
from app.shell.graph import caption, figure
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import about, panel, tabs
from app.shell.prompt import checkpoint_choice

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"

_EXPLAIN_CHOICE = about(
    "A skip-trigram [source] … [destination] → [out]: with the source earlier in the text and the destination as the "
    "current token, the head moves the logit of the out as the next token. Read from the weights, over all triples of "
    "the vocabulary. The address in your browser holds everything you choose here.",
    formula="z = QK[destination, source] − log-mean-exp over training tokens;  effect = attention(z) · OV[source, out]",
    source=f"Structures in Transformers, Section 5; {_FRAMEWORK}",
)
_EXPLAIN_ROWS = (
    "A row stands for those that differ from it in the source or the destination only (sources folded: in the source "
    "only, so rows are grouped by destination and out); + unfolds them. The raw order lists all. "
    "Search by part of a token, or = and all of it (· is a space, ⏎ a line end). Click a column's name to sort, a row "
    "to explain it; on the keyboard, arrow keys and Enter."
)
_EXPLAIN_EVIDENCE = about(
    "A row read from weights need not be true of language, nor matter where it is. Held against text, each row gets a "
    "verdict, and places to read. Places are compared within stretches of one document, since a source may only tell "
    "which document it is.",
    formula="lift within = places that the out follows ÷ those expected, were source and out independent in a stretch",
)
_EXPLAIN_ONE = (
    "What the row says in numbers and, once the rows are held against text, how often it is so and where it happens. "
    "A place opens in Heads."
)
_EXPLAIN_KINDS = "What sort of thing the rows are, by rules that read their strings; the first that holds counts."
_EXPLAIN_FORCED = about(
    "A head's score factors, so with keep … in → mind and keep … at → bay it also says keep … in → bay: what two "
    "confirmed rows with one source force, and how often the text has it.",
    formula="effect(in → bay) · effect(at → mind) = effect(in → mind) · effect(at → bay)",
    source=f"Skip-trigram bugs: {_FRAMEWORK}",
)
_EXPLAIN_HEADS = (
    "Every head's table with these same choices, where it has been searched for. “Check every head” fills in the rest."
)

_EXPLAIN_PATH = about(
    "What the last token alone predicts, through no head: bigrams. Heads that attend to the token itself write bigrams "
    "too, and can be added. Beside them, how often the text chosen at the right has them. Search by part of the "
    "last token, or = and all of it.",
    formula="W_E W_U + Σ W_E W_V W_O W_U over these heads  [last, next], each row less its mean, in logits",
    source="Structures in Transformers, Section 4: zero-layer transformers",
)

_FOLDS = {"similar": "varied", "sources": "sources folded", "none": "raw order"}
_DISTANCES = {"none": "left out", "mean": "mean", "fixed": "tokens:"}


def layout(core: Core, service: Trigrams, state: TrigramsState) -> html.Div:
    """The page for an address; with nothing in it, the first head of the first checkpoint."""
    checkpoint = state.checkpoint or core.catalog.default()
    return html.Div(
        [
            html.H1("Skip-trigrams", className="sr-only"),
            dcc.Store(id=ids.ASKED),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.READING),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.HEARD),
            dcc.Store(id=ids.ROW, data=state.row),
            dcc.Store(id=ids.OPEN, data=[]),
            dcc.Store(id=ids.ASKED_PATH),
            _choice_panel(core, state, checkpoint),
            html.Div(
                [
                    tabs(ids.TABS, state.tab, _views(state), label="Of the head"),
                    tabs(ids.BESIDES, state.beside, _besides(core, state), label="Of a row, and of text"),
                ],
                id=ids.BODY,
                className="trigrams-body",
                **{"data-empty": ""},
            ),
        ],
        className="trigrams",
    )


def _views(state: TrigramsState) -> dict[str, tuple[str, Any]]:
    rules = html.Ul([html.Li([html.B(name), f": {rule}"]) for name, rule in RULES.items()], className="trigram-rules")
    kinds = html.Div([caption(ids.KINDS), figure(ids.KINDS, "graph-kinds"), rules], className="needs-rows")
    forced = [caption(ids.FORCED), forced_grid(shell.table(ids.FORCED))]
    check_all = dmc.Button("Check every head", id=ids.CHECK_ALL, n_clicks=0, size="compact-sm", variant="light")
    return {
        "rows": ("Rows", _rows_panel(state)),
        "kinds": (
            "Kinds",
            panel(
                ids.KINDS, "Kinds", _EXPLAIN_KINDS, kinds, exports=("png", "svg", "csv", "json", "python"),
                follows=ids.SHOWN,
            ),
        ),
        "forced": (
            "What true rows force",
            panel(
                ids.FORCED, "What true rows force", _EXPLAIN_FORCED, forced, exports=("csv", "python"),
                follows=ids.SHOWN,
            ),
        ),
        "heads": (
            "All heads",
            panel(
                ids.ALL_HEADS, "All heads", _EXPLAIN_HEADS, heads_grid(shell.table(ids.ALL_HEADS)),
                controls=check_all, exports=("csv", "python"),
            ),
        ),
        "direct": ("Direct path", _path_panel(state)),
    }  # fmt: skip


def _besides(core: Core, state: TrigramsState) -> dict[str, tuple[str, Any]]:
    one = html.Div(id=shell.body(ids.ONE), className="needs-rows one-row", tabIndex=0)
    return {
        "one": ("One row", panel(ids.ONE, "One row", _EXPLAIN_ONE, one, exports=("python",), follows=ids.SHOWN)),
        "text": ("Check against text", _evidence_panel(core, state)),
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
    return panel(ids.PATH, "Direct path", _EXPLAIN_PATH, content, exports=("csv", "python"), follows=ids.ASKED_PATH)


def _choice_panel(core: Core, state: TrigramsState, checkpoint: str | None) -> html.Section:
    kind = "none" if state.distance is None else "mean" if state.distance == "mean" else "fixed"
    content = [
        html.Div(
            [
                checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True),
                head_choice(ids.HEADS, ids.HEAD),
                segments(
                    ids.SCORE, "Ranked by", state.score,
                    {"effect": "effect", "sum": "z + ov", "product": "z × ov"},
                ),
                segments(ids.END, "End", state.end, {"top": "raised", "bottom": "suppressed"}),
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
        stop_bar(ids.CHOICE),
    ]  # fmt: skip
    return panel(ids.CHOICE, "Skip-trigrams", _EXPLAIN_CHOICE, content)


def _rows_panel(state: TrigramsState) -> html.Section:
    fields = (
        (ids.SOURCE, "source", state.source),
        (ids.DESTINATION, "destination", state.destination),
        (ids.OUT, "out", state.out),
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
        _select(ids.KIND, "kind", state.kind, list(KINDS)),
    ]  # fmt: skip
    content = html.Div(
        [
            html.Div(filters, className="trigram-filters"),
            caption(ids.ROWS),
            rows_grid(shell.table(ids.ROWS)),
        ],
    )
    fold = switch_of(ids.FOLD, "Rows that say nearly the same", state.fold, _FOLDS)
    return panel(ids.ROWS, "Rows", _EXPLAIN_ROWS, content, controls=fold, exports=("csv", "python"))


def _evidence_panel(core: Core, state: TrigramsState) -> html.Section:
    corpora, settings = core.corpora, core.settings
    known = {info.name: info for info in core.catalog.list()}
    info = known.get(state.checkpoint or core.catalog.default() or "")
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
                dmc.Button("Check the rows", id=ids.CHECK, n_clicks=0, size="xs"),
            ],
            className="evidence-choices",
        ),
        own_text(ids.CORPUS, ids.PASTED, settings),
        caption(ids.EVIDENCE),
        html.Div(id=shell.notice(ids.CHECK), className="panel-notice", role="status"),
        html.Details(
            [html.Summary("What the verdicts mean"), html.P(id=ids.RULE, className="caption")],
            className="caption",
        ),
    ]  # fmt: skip
    return panel(ids.EVIDENCE, "Check against text", _EXPLAIN_EVIDENCE, content)


def _select(id: str, label: str, value: str | None, data: list[str]) -> dmc.Select:
    return dmc.Select(
        id=id, label=label, data=data, value=value, placeholder="any", clearable=True, size="xs", className="choice"
    )
