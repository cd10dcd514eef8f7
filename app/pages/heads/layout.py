"""The Heads page's layout."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.core.examples import EXAMPLES, FIRST
from app.pages.heads.address import HeadsState
from app.pages.heads.callbacks import EXPLAIN_MAP
from app.pages.heads.head_grid import head_grid
from app.pages.heads.ids import ids
from app.shell import ids as shell
from app.shell.controls import link_button, switch_of
from app.shell.drawn import drawn
from app.shell.head_map import head_map
from app.shell.panel import about, panel, tabs
from app.shell.prompt import checkpoint_choice, text_form

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
    "Click one, or move with the arrow keys. Badges name a head's strongest motif, and heads are ranked by the motif "
    "that you choose: mean attention to its keys on repeated random tokens. The best five are numbered in the picture, "
    "where they score at least 0.1.",
    source="Induction heads: In-context Learning and Induction Heads (Olsson et al. 2022)",
)
_EXPLAIN_NEXT = (
    "What the model expects after the locked token, or after the last one; a masked language model, which sees both "
    "sides: at it. Probabilities are over the whole vocabulary."
)


def layout(core: Core, service: None, state: HeadsState) -> html.Div:
    """The page for an address; with nothing in it, the first checkpoint on the first example."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = FIRST if state.text is None else state.text
    return html.Div(
        [
            html.H1("Heads", className="sr-only"),
            dcc.Store(id=ids.PROMPT, data={"checkpoint": checkpoint, "text": text}),
            dcc.Store(id=ids.ANALYSIS),
            dcc.Store(id=ids.MOTIFS),
            dcc.Store(id=ids.PREDICTED),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.POSITION, data=state.position),
            _prompt_panel(core, checkpoint, text),
            html.Div(
                [
                    _tokens_panel(state),
                    _grid_panel(state),
                    tabs(
                        ids.TABS,
                        state.tab,
                        {"map": ("Map", _map_panel(core)), "predictions": ("Predicted token", _next_panel())},
                        label="Of the head and the token",
                    ),
                ],
                id=ids.COLUMNS,
                className="heads-columns",
                **{"data-empty": ""},
            ),
        ],
        className="heads",
        **{"data-max-characters": str(core.settings.max_characters)},
    )


def _prompt_panel(core: Core, checkpoint: str | None, text: str) -> html.Section:
    chosen = checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True)
    form = text_form(chosen, EXAMPLES, text, text=ids.TEXT, example=ids.EXAMPLE, run=ids.RUN, count=ids.COUNT)
    return panel(ids.PROMPT_PANEL, "Text", _EXPLAIN_PROMPT, form)


def _tokens_panel(state: HeadsState) -> html.Section:
    directions = {"to": "where it attends", "from": "who attends to it"}
    direction = switch_of(ids.DIRECTION, "What the shading of tokens shows", state.direction, directions)
    strip = drawn(ids.STRIP, "strip", "Tokens")
    return panel(ids.TOKENS, "Tokens", _EXPLAIN_TOKENS, strip, controls=direction)


def _next_panel() -> html.Section:
    table = html.Div(id=shell.body(ids.NEXT), className="next-box", tabIndex=0)
    return panel(
        ids.NEXT, "Predicted token", _EXPLAIN_NEXT, table, exports=("csv", "json", "python"), follows=ids.PREDICTED
    )


def _grid_panel(state: HeadsState) -> html.Section:
    views = {"attention": "Attention", "weighted": "Value-weighted", "scores": "Scores"}
    controls = [
        switch_of(ids.VIEW, "What the maps show", state.view, views),
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
        id=ids.RANK, label="Heads ranked by", data=[state.rank], value=state.rank, allowDeselect=False, size="xs",
    )  # fmt: skip
    ranking = html.Div(id=ids.RANKING, className="ranking", role="group", **{"aria-label": "Heads, best first"})
    content = [
        html.Div([head_grid(), html.Div([rank, ranking], className="ranked")], className="grid-row"),
        html.Div(dcc.Store(id=shell.paper(ids.GRID)), className="paper-figure"),
    ]
    exports = ("png", "svg", "npz", "python")
    return panel(ids.GRID, "All heads", _EXPLAIN_GRID, content, controls=controls, exports=exports)


def _map_panel(core: Core) -> html.Section:
    content = [html.P(id=ids.MOTIFS_LINE, className="motifs"), *head_map(ids.MAP, "graph-map")]
    explanation = EXPLAIN_MAP["attention"]
    links = [
        link_button(ids.OPEN_CIRCUITS, "Its circuits", core.links.to("circuits")),
        link_button(ids.OPEN_PATHS, "Paths through it", core.links.to("paths")),
    ]
    return panel(
        ids.MAP, "One head", explanation, content, controls=links, exports=("png", "svg", "csv", "json", "python")
    )
