"""Heads: type text, and see what every head of a model does with it."""

from __future__ import annotations

from typing import Any, cast

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from aotlens.plots import Theme, data_uri
from app import ids
from app.components.examples import EXAMPLES, FIRST
from app.components.graph import EMPTY, graph
from app.components.head_grid import grid_style, head_cells, head_grid, motif_labels
from app.components.panel import BUSY, CLASS, panel
from app.components.predictions import predictions_table
from app.components.token_strip import token_strip
from app.pages import heads_export
from app.pages.guard import guarded
from app.services import Services, views
from app.services.inference import PromptResult
from app.urlstate import HeadsState, View, parse_heads

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
_EXPLAIN_MAP: dict[View, str] = {
    "attention": (
        "The entry at (query, key) is how much of the key's value vector the head moves to the query. Point at it for "
        "the exact value; click it to lock that query among the tokens."
    ),
    "weighted": (
        "Attention times the length of the key's value vector, ‖v‖: how much the head really moves. Heads often rest "
        "on a token whose value is nearly zero; here such attention disappears."
    ),
    "scores": (
        "What the head computes before it chooses: query · key, scaled, in nats. A softmax depends on differences "
        "within a row only, so compare along rows, not down columns."
    ),
}
_EXPLAIN_NEXT = (
    "What the model expects after the locked token, or after the last one. Probabilities are over the whole vocabulary."
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
    choices = [
        {
            "value": info.name,
            "label": info.name if services.catalog.reads_text(info) else f"{info.name} (can't be shown here)",
            "disabled": not services.catalog.reads_text(info),
        }
        for info in services.catalog.list()
    ]
    return panel(
        ids.PROMPT_PANEL,
        "Text",
        _EXPLAIN_PROMPT,
        html.Div(
            [
                dmc.Select(
                    id=ids.CHECKPOINT, label="Checkpoint", data=choices, value=checkpoint, allowDeselect=False,
                    className="prompt-checkpoint",
                ),
                dmc.Select(
                    id=ids.EXAMPLE, label="Take an example", placeholder="Choose one",
                    data=[{"value": text, "label": name} for name, text in EXAMPLES.items()],
                    className="prompt-example",
                ),
                dmc.Textarea(
                    id=ids.TEXT, label="Your text", value=text, autosize=True, minRows=2, maxRows=8, spellCheck=False,
                    className="prompt-text",
                ),
                html.Div(
                    [
                        dmc.Button("Run", id=ids.RUN, n_clicks=0, rightSection=dmc.Kbd("Ctrl ⏎", size="xs")),
                        html.Span(id=ids.COUNT, className="count"),
                    ],
                    className="prompt-run",
                ),
            ],
            className="prompt",
        ),
    )  # fmt: skip


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
    return panel(ids.NEXT, "Next token", _EXPLAIN_NEXT, table, exports=("csv", "json"))


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
    return panel(ids.MAP, "One head", _EXPLAIN_MAP["attention"], content, exports=("png", "svg", "csv", "json"))


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    _register_browser(app)
    heads_export.register(app, services)

    @app.callback(
        Output(ids.ANALYSIS, "data"),
        Output(ids.STRIP, "children"),
        Output(ids.GRID_CELLS, "children"),
        Output(ids.GRID_BOX, "style"),
        Output(ids.HEAD, "data"),
        Output(ids.POSITION, "data"),
        Output(ids.COUNT, "children"),
        Output(ids.notice(ids.PROMPT_PANEL), "children"),
        Input(ids.PROMPT, "data"),
        State(ids.ANALYSIS, "data"),
        State(ids.HEAD, "data"),
        State(ids.POSITION, "data"),
        running=[(Output(ids.PROMPT_PANEL, "className"), BUSY, CLASS), (Output(ids.GRID, "className"), BUSY, CLASS)],
    )
    @guarded(None, [], [], {}, no_update, None, "")
    def analyse(prompt: dict[str, Any], shown: dict[str, Any] | None, head: Any, position: Any) -> tuple[Any, ...]:
        result = ask(services, prompt)
        patterns = result.patterns
        shape = [patterns.n_layers, patterns.n_heads]
        same_grid = shown is not None and [shown["layers"], shown["heads"]] == shape
        same_text = shown is None or shown["tokens"] == patterns.tokens.tolist()
        return (
            {"key": result.key, "layers": shape[0], "heads": shape[1], "tokens": patterns.tokens.tolist()},
            token_strip(patterns.tokens.tolist(), patterns.str_tokens),
            no_update if same_grid else head_cells(*shape),
            no_update if same_grid else grid_style(*shape),
            _within(head, shape),
            position if same_text and position is not None and position < patterns.n_pos else None,
            count(services, result),
        )

    @app.callback(
        Output(ids.GRID_PICTURE, "src"),
        Output(ids.GRID_PICTURE, "alt"),
        Output(ids.notice(ids.GRID), "children"),
        Input(ids.ANALYSIS, "data"),
        Input(ids.VIEW, "value"),
        Input(ids.HIDE_FIRST, "checked"),
        Input(ids.THEME, "data"),
        State(ids.PROMPT, "data"),
        running=[(Output(ids.GRID, "className"), BUSY, CLASS)],
    )
    @guarded("", "")
    def draw_grid(shown: Any, view: View, hide_first: bool, theme: Theme, prompt: dict[str, Any]) -> tuple[Any, ...]:
        if shown is None:
            return "", ""
        result = ask(services, prompt)
        picture = views.grid_picture(result, view, hide_first, theme or "light")
        heads = f"{result.patterns.n_layers} layers × {result.patterns.n_heads} heads"
        return data_uri(picture), f"Maps of {views.QUANTITIES[view]} of {heads}"

    @app.callback(
        Output(ids.MAP_GRAPH, "figure"),
        Output(ids.title(ids.MAP), "children"),
        Output(ids.explanation(ids.MAP), "children"),
        Output(ids.notice(ids.MAP), "children"),
        Input(ids.ANALYSIS, "data"),
        Input(ids.HEAD, "data"),
        Input(ids.VIEW, "value"),
        Input(ids.HIDE_FIRST, "checked"),
        Input(ids.THEME, "data"),
        State(ids.PROMPT, "data"),
        running=[(Output(ids.MAP, "className"), BUSY, CLASS)],
    )
    @guarded(EMPTY, "One head", no_update)
    def draw_head(
        shown: Any, head: list[int] | None, view: View, hide_first: bool, theme: Theme, prompt: dict[str, Any]
    ) -> tuple[Any, ...]:
        if shown is None or head is None:
            return EMPTY, "One head", no_update
        figure = views.head_figure(ask(services, prompt), *whole(head), view, hide_first, theme or "light")
        return figure, f"Head {head[0]}.{head[1]}", _EXPLAIN_MAP[view]

    @app.callback(
        Output(ids.MOTIFS, "data"),
        Output(ids.notice(ids.GRID), "children", allow_duplicate=True),
        Input(ids.ANALYSIS, "data"),
        State(ids.MOTIFS, "data"),
        State(ids.PROMPT, "data"),
        prevent_initial_call=True,
    )
    @guarded(None)
    def score_motifs(shown: Any, known: dict[str, Any] | None, prompt: dict[str, Any]) -> tuple[Any, ...]:
        if shown is None or (known is not None and known["checkpoint"] == prompt["checkpoint"]):
            raise PreventUpdate
        scores = services.inference.motifs(prompt["checkpoint"])
        return ({"checkpoint": prompt["checkpoint"], **motif_labels(scores)},)

    @app.callback(
        Output(ids.NEXT_TABLE, "children"),
        Output(ids.notice(ids.NEXT), "children"),
        Input(ids.ANALYSIS, "data"),
        Input(ids.POSITION, "data"),
        State(ids.PROMPT, "data"),
        running=[(Output(ids.NEXT, "className"), BUSY, CLASS)],
    )
    @guarded(None)
    def predict(shown: Any, position: int | None, prompt: dict[str, Any]) -> tuple[Any, ...]:
        if shown is None:
            return (None,)
        result = ask(services, prompt)
        predictions = services.inference.predictions(prompt["checkpoint"], prompt["text"], position)
        return (predictions_table(predictions, result.patterns.str_tokens[predictions.position]),)


def ask(services: Services, prompt: dict[str, Any]) -> PromptResult:
    """The result for a submitted prompt, from memory unless it is new."""
    return services.inference.analyse(prompt.get("checkpoint"), prompt.get("text") or "", length=prompt.get("length"))


def whole(head: list[Any]) -> tuple[int, int]:
    """A head as the browser sends it."""
    layer, index = head
    return int(layer), int(index)


def count(services: Services, result: PromptResult) -> str:
    """How many tokens of how many."""
    limit = services.inference.token_limit(services.catalog.load(result.checkpoint))
    return f"{result.patterns.n_pos} of at most {limit} tokens"


def _within(head: Any, shape: list[int]) -> list[int]:
    """The chosen head, or the first one where the model has no such head."""
    if isinstance(head, list) and len(head) == 2 and head[0] < shape[0] and head[1] < shape[1]:
        return cast("list[int]", head)
    return [0, 0]


def _register_browser(app: Dash) -> None:
    """What the browser does by itself (assets/heads.js): submit, shade, mark, and write the address."""
    app.clientside_callback(
        ClientsideFunction("heads", "submit"),
        Output(ids.PROMPT, "data"),
        Output(ids.TEXT, "value"),
        Output(ids.EXAMPLE, "value"),
        Input(ids.RUN, "n_clicks"),
        Input(ids.CHECKPOINT, "value"),
        Input(ids.EXAMPLE, "value"),
        State(ids.TEXT, "value"),
        State(ids.PROMPT, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("heads", "show"),
        Input(ids.ANALYSIS, "data"),
        Input(ids.HEAD, "data"),
        Input(ids.POSITION, "data"),
        Input(ids.DIRECTION, "value"),
        Input(ids.MOTIFS, "data"),
    )
    app.clientside_callback(ClientsideFunction("heads", "showMap"), Input(ids.MAP_GRAPH, "figure"))
    app.clientside_callback(
        ClientsideFunction("heads", "lockFromMap"),
        Input(ids.MAP_GRAPH, "clickData"),
        State(ids.DIRECTION, "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("heads", "writeAddress"),
        Input(ids.PROMPT, "data"),
        Input(ids.HEAD, "data"),
        Input(ids.POSITION, "data"),
        Input(ids.VIEW, "value"),
        Input(ids.DIRECTION, "value"),
        Input(ids.HIDE_FIRST, "checked"),
    )
