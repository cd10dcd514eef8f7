"""The Heads page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.core.examples import EXAMPLES
from app.pages.heads.address import HeadsState
from app.pages.heads.callbacks import how_options
from app.pages.heads.continuing import continue_panel
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.why import why_button, why_panel
from app.shell import ids as shell
from app.shell.controls import switch_of
from app.shell.graph import PLOTLY, caption
from app.shell.page_links import leading
from app.shell.panel import QUIET, about, panel, tabs
from app.shell.prompt import checkpoint_choice, text_form
from app.shell.tables import value_tables
from app.shell.views import about_view

_EXPLAIN_PROMPT = (
    "The text goes through the model once, with the start token <|endoftext|> before it. The address in your browser "
    "holds everything you choose here."
)
_EXPLAIN_TOKENS = (
    "Point at a token to shade the others by the chosen head's values; click to lock it. · is a space, ⏎ a newline, "
    "→ a tab; <0xE2> is one byte of a character that takes several tokens."
)
_EXPLAIN_GRID = about(
    "Row = layer, column = head; in each map, queries go down and keys across. A vertical stripe is one token that "
    "many attend to, a diagonal is a fixed distance back. Each map has its own colour scale, up to its largest value. "
    "Where entries are smaller than pixels, a pixel is the largest of them. "
    "Click one, or move with the arrow keys. Badges name a head's strongest motif, and heads are ranked by the motif "
    "that you choose: mean attention to its keys on repeated random tokens. The best five are numbered, where they are "
    "at least 0.1. The corner beside a map's name (or the key x) ablates its head: the maps are then those of a run "
    "with the ablation. Means and other outputs are those of the head on 32 windows of a corpus, as long as this text.",
    source="Induction heads: In-context Learning and Induction Heads (Olsson et al. 2022)",
)


def layout(core: Core, service: None, state: HeadsState) -> html.Div:
    """Lay out the page for an address; with nothing in it, the first checkpoint on the first example."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = core.inference.opening(checkpoint, state.text)
    return html.Div(
        [
            html.H1("Heads", className="sr-only"),
            dcc.Store(id=ids.PROMPT, data={"checkpoint": checkpoint, "text": text}),
            dcc.Store(id=ids.ANALYSIS),
            dcc.Store(id=ids.SCORED),
            dcc.Store(id=ids.MOTIFS),
            dcc.Store(id=ids.PREDICTED),
            *(dcc.Store(id=each) for each in (ids.LISTED, ids.MEASURED, ids.EXPLAINED)),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.POSITION, data=state.position),
            dcc.Store(id=ids.CELL, data={"cell": state.cell, "against": state.against}),
            dcc.Store(id=ids.WHY_OF),
            dcc.Store(id=ids.OFF, data=state.off),
            dcc.Store(id=ids.RUN_OF),
            _prompt_panel(core, checkpoint, text),
            html.Div(
                [
                    _tokens_panel(state),
                    _grid_panel(core, state),
                    tabs(
                        ids.TABS,
                        state.tab,
                        _tabs(core, state),
                        label="Of the head, the token and the text",
                    ),
                ],
                id=ids.COLUMNS,
                className="heads-columns",
                **{"data-empty": "", **QUIET},
            ),
        ],
        className="heads",
        **{"data-max-characters": str(core.settings.max_characters)},
    )


def _tabs(core: Core, state: HeadsState) -> dict[str, tuple[str, Any]]:
    maps, predictions = [_map_panel(core), _map_off_panel()], [_next_panel(), _next_off_panel()]
    return {
        "map": ("Map", html.Div(maps, className="beside")),
        "why": ("Why", why_panel()),
        "predictions": ("Predicted token", html.Div(predictions, className="beside")),
        "loss": ("Loss", _losses_panel()),
        "continue": ("Continue", continue_panel(state)),
    }


def _prompt_panel(core: Core, checkpoint: str | None, text: str) -> html.Section:
    chosen = checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True)
    form = text_form(chosen, EXAMPLES, text, text=ids.TEXT, example=ids.EXAMPLE, run=ids.RUN, count=ids.COUNT)
    return panel(ids.PROMPT_PANEL, "Text", _EXPLAIN_PROMPT, form)


def _tokens_panel(state: HeadsState) -> html.Section:
    ways = {"to": "from this token", "from": "to this token"}
    direction = switch_of(ids.DIRECTION, "Tokens are shaded by attention", state.direction, ways)
    strip = html.Div(id=ids.STRIP, className="strip", role="group", **{"aria-label": "Tokens", **QUIET})
    return panel(ids.TOKENS, "Tokens", _EXPLAIN_TOKENS, strip, controls=direction)


def _next_panel() -> html.Section:
    about = about_view(VIEWS[ids.NEXT])
    content = [caption(ids.NEXT), value_tables(ids.NEXT_LINES, "Predicted tokens")]
    return panel(ids.NEXT, "Predicted token", about, content, exports=("csv", "json", "python"), follows=ids.PREDICTED)


def _next_off_panel() -> html.Section:
    content = [caption(ids.NEXT_OFF), value_tables(ids.NEXT_OFF_LINES, "Predicted tokens with heads ablated")]
    return panel(ids.NEXT_OFF, "Ablation", "", content, exports=("csv", "json", "python"), follows=ids.PREDICTED)


def _losses_panel() -> html.Section:
    content = [
        caption(ids.LOSSES),
        value_tables(ids.LOSSES_WHOLE, "Tokens with their losses", "strip-losses"),
        html.P(id=ids.LOSSES_CHANGE_HEADING, className="caption"),
        value_tables(ids.LOSSES_CHANGE, "Tokens with the change of their losses", "strip-losses"),
    ]
    exports = ("csv", "json", "python")
    about = about_view(VIEWS[ids.LOSSES])
    return panel(ids.LOSSES, "Loss of each token", about, content, exports=exports, follows=ids.RUN_OF)


def _off_line(core: Core, state: HeadsState) -> html.Div:
    """Lay out which heads are ablated, by what, from which corpus, and a button that restores them."""
    texts = core.corpora.choices()
    small: dict[str, Any] = {"size": "xs", "comboboxProps": {"width": "max-content"}}
    how = dmc.Select(
        id=ids.HOW, data=how_options(state.corpus), value=state.how, allowDeselect=False, w=180,
        **{"aria-label": "Replace head output with"}, **small,
    )  # fmt: skip
    corpus = dmc.Select(
        id=ids.CORPUS, data=texts, value=state.corpus, clearable=True, disabled=not texts, w=160,
        placeholder="choose a corpus" if texts else "no corpus here",
        **{"aria-label": "Corpus of the replacement"}, **small,
    )  # fmt: skip
    says = html.Span(className="off-says", role="status")
    parts = [says, html.Span("· ablate by"), how, html.Span("from"), corpus]
    all_on = dmc.Button(
        "Restore all", id=ids.ALL_ON, n_clicks=0, size="compact-xs", variant="default", className="all-on"
    )
    beside = leading("Compare with full model", core.links.to("compare"), id=ids.OPEN_COMPARE)
    return html.Div([*parts, all_on, beside], id=ids.OFF_LINE, className="off-line")


def _grid_panel(core: Core, state: HeadsState) -> html.Section:
    views = {"attention": "Attention", "weighted": "Value-weighted", "scores": "Scores"}
    controls = [
        switch_of(ids.VIEW, "Quantity shown in the maps", state.view, views),
        dmc.Switch(
            id=ids.HIDE_FIRST,
            label="Hide position 0",
            checked=state.hide_first,
            size="sm",
            **{"data-tip": "Attention to the first token drowns the rest of a colour scale."},
        ),
    ]
    # The other motifs come with the scores: the library's take seconds to import.
    rank = dmc.Select(
        id=ids.RANK, label="Ranked by, on synthetic tokens", data=[state.rank], value=state.rank, allowDeselect=False,
        size="xs",
    )  # fmt: skip
    ranking = html.Div(
        id=ids.RANKING, className="ranking", role="group", **{"aria-label": "Heads, best first", **QUIET}
    )  # fmt: skip
    grid = html.Div(id=ids.GRID_CELLS, className="grid", role="group", **{"aria-label": "Heads", **QUIET})
    content = [
        _off_line(core, state),
        html.Div([grid, html.Div([rank, ranking], className="ranked")], className="grid-row"),
        html.Div(dcc.Store(id=shell.paper(ids.GRID)), className="paper-figure", **{"data-plotly": PLOTLY}),
    ]
    exports = ("png", "svg", "npz", "python")
    return panel(ids.GRID, "All heads", _EXPLAIN_GRID, content, controls=controls, exports=exports)


def _map_panel(core: Core) -> html.Section:
    content = [html.P(id=ids.MOTIFS_LINE, className="motifs"), html.Div(id=ids.MAP_CANVAS, className="large", **QUIET)]
    explanation = about_view(VIEWS[ids.MAP])
    links = [
        why_button(),
        leading("In the atlas", core.links.to("atlas"), id=ids.OPEN_ATLAS),
        leading("Its circuits", core.links.to("circuits"), id=ids.OPEN_CIRCUITS),
        leading("Paths through it", core.links.to("paths"), id=ids.OPEN_PATHS),
    ]
    return panel(
        ids.MAP, "One head", explanation, content, controls=links, exports=("png", "svg", "csv", "json", "python")
    )


def _map_off_panel() -> html.Section:
    content = [
        html.P(id=shell.caption(ids.MAP_OFF), className="motifs"),
        html.Div(id=ids.MAP_OFF_CANVAS, className="large", **QUIET),
    ]
    return panel(ids.MAP_OFF, "Ablation", "", content, exports=("png", "svg", "csv", "json", "python"))
