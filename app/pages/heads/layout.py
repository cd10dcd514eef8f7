"""The Heads page's layout."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html

from app import ids
from app.components.examples import EXAMPLES, FIRST
from app.components.graph import graph
from app.components.head_grid import head_grid
from app.components.panel import panel
from app.components.prompt import checkpoint_choice, text_form
from app.pages.heads.callbacks import EXPLAIN_MAP
from app.services import Services
from app.urlstate import CircuitsState, HeadsState, PathsState, format_circuits, format_paths, parse_heads

_EXPLAIN_PROMPT = (
    "The text goes through the model once, with the start token <|endoftext|> before it. The address in your browser "
    "holds everything you choose here: copy it to come back to this view, or to share it."
)
_EXPLAIN_TOKENS = (
    "Point at a token to shade the others by the chosen head's values; click to lock it. · is a space, ⏎ a newline, "
    "→ a tab; <0xE2> is one byte of a character that takes several tokens."
)
_EXPLAIN_GRID = (
    "Row = layer, column = head; in each map, queries go down and keys across. A vertical stripe is one token that "
    "many attend to, a diagonal is a fixed distance back. Each map has its own colour scale, up to its largest value. "
    "Click one, or move with the arrow keys."
)
_EXPLAIN_NEXT = (
    "What the model expects after the locked token, or after the last one; a masked language model, which sees both "
    "sides: at it. Probabilities are over the whole vocabulary."
)


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the first checkpoint on the first example."""
    state = parse_heads(search)
    checkpoint = state.checkpoint or services.catalog.default()
    text = FIRST if state.text is None else state.text
    return html.Div(
        [
            html.H1("Heads", className="sr-only"),
            dcc.Store(id=ids.PROMPT, data={"checkpoint": checkpoint, "text": text}),
            dcc.Store(id=ids.ANALYSIS),
            dcc.Store(id=ids.MOTIFS),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.POSITION, data=state.position),
            dcc.Download(id=ids.DOWNLOAD),
            _prompt_panel(services, checkpoint, text),
            _view_bar(state),
            html.Div(
                [_tokens_panel(state), _grid_panel(), _map_panel(), _next_panel()],
                id=ids.COLUMNS,
                className="heads-columns",
                **{"data-empty": ""},
            ),
        ],
        className="heads",
        **{"data-max-characters": str(services.settings.max_characters)},
    )


def _prompt_panel(services: Services, checkpoint: str | None, text: str) -> html.Section:
    chosen = checkpoint_choice(ids.CHECKPOINT, services.catalog, checkpoint, reads_text=True)
    form = text_form(chosen, EXAMPLES, text, text=ids.TEXT, example=ids.EXAMPLE, run=ids.RUN, count=ids.COUNT)
    return panel(ids.PROMPT_PANEL, "Text", _EXPLAIN_PROMPT, form)


def _tokens_panel(state: HeadsState) -> html.Section:
    direction = dmc.SegmentedControl(
        id=ids.DIRECTION,
        data=[{"value": "to", "label": "where it attends"}, {"value": "from", "label": "who attends to it"}],
        value=state.direction,
        size="xs",
        **{"aria-label": "What the shading of tokens shows"},
    )
    strip = html.Div(id=ids.STRIP, className="strip", role="group", **{"aria-label": "Tokens"})
    return panel(ids.TOKENS, "Tokens", _EXPLAIN_TOKENS, strip, controls=direction)


def _next_panel() -> html.Section:
    table = html.Div(id=ids.NEXT_TABLE, className="next-box")
    return panel(ids.NEXT, "Predicted token", _EXPLAIN_NEXT, table, exports=("csv", "json"))


def _view_bar(state: HeadsState) -> html.Div:
    return html.Div(
        [
            dmc.SegmentedControl(
                id=ids.VIEW,
                data=[
                    {"value": "attention", "label": "Attention"},
                    {"value": "weighted", "label": "Value-weighted (A·‖v‖)"},
                    {"value": "scores", "label": "Scores"},
                ],
                value=state.view,
                size="xs",
                **{"aria-label": "What the maps show"},
            ),
            dmc.Switch(
                id=ids.HIDE_FIRST,
                label="Hide position 0",
                checked=state.hide_first,
                size="sm",
                **{"data-help": "Attention to the first token drowns the rest of a colour scale"},
            ),
        ],
        className="view-bar",
    )


def _grid_panel() -> html.Section:
    return panel(ids.GRID, "All heads", _EXPLAIN_GRID, head_grid(), exports=("png", "npz"))


def _map_panel() -> html.Section:
    content = [html.P(id=ids.MOTIFS_LINE, className="motifs"), graph(ids.MAP_GRAPH, "graph-map")]
    explanation = EXPLAIN_MAP["attention"]
    address = format_circuits(CircuitsState())
    links = [
        dcc.Link("Its circuits", id=ids.OPEN_CIRCUITS, href=address, className="button-link"),
        dcc.Link("Paths through it", id=ids.OPEN_PATHS, href=format_paths(PathsState()), className="button-link"),
    ]
    return panel(ids.MAP, "One head", explanation, content, controls=links, exports=("png", "svg", "csv", "json"))
