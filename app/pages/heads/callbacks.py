"""What the Heads page asks of the server: one result per text, and what is shown of it."""

from __future__ import annotations

from typing import Any, cast

from dash import Dash, Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from aotlens.checkpoints import CheckpointError
from aotlens.plots import Theme, data_uri
from app import ids
from app.components.graph import EMPTY
from app.components.head_grid import grid_style, head_cells, motif_labels
from app.components.predictions import predictions_table
from app.components.token_strip import token_strip
from app.pages.guard import guarded
from app.services import Services, views
from app.services.errors import RequestError
from app.services.inference import PromptResult
from app.urlstate import View

EXPLAIN_MAP: dict[View, str] = {
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


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""

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

    # Beside `analyse` and not after it, so that the picture comes one round trip sooner; the text runs once for both.
    @app.callback(
        Output(ids.GRID_PICTURE, "src"),
        Output(ids.GRID_PICTURE, "alt"),
        Output(ids.notice(ids.GRID), "children"),
        Input(ids.PROMPT, "data"),
        Input(ids.VIEW, "value"),
        Input(ids.HIDE_FIRST, "checked"),
        Input(ids.THEME, "data"),
    )
    @guarded("", "")
    def draw_grid(prompt: dict[str, Any], view: View, hide_first: bool, theme: Theme | None) -> tuple[Any, ...]:
        try:
            result = ask(services, prompt)
        except (RequestError, CheckpointError):
            return "", ""  # said beside the text
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
    )
    @guarded(EMPTY, "One head", no_update)
    def draw_head(
        shown: Any, head: list[int] | None, view: View, hide_first: bool, theme: Theme, prompt: dict[str, Any]
    ) -> tuple[Any, ...]:
        if shown is None or head is None:
            return EMPTY, "One head", no_update
        figure = views.head_figure(ask(services, prompt), *whole(head), view, hide_first, theme or "light")
        return figure, f"Head {head[0]}.{head[1]}", EXPLAIN_MAP[view]

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
