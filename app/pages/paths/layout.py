"""The Paths page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app import ids
from app.components.choices import one_of
from app.components.examples import EXAMPLES
from app.components.graph import graph
from app.components.panel import panel
from app.components.path_tables import heads_grid
from app.components.prompt import checkpoint_choice, text_form
from app.services import Services
from app.urlstate import MAX_K, PathsState, parse_paths

#: Ends where a name that came before goes on, so that the model's first choice is worth explaining.
FIRST = "Miss Harriet Smith danced with Mr. Elton. Then Harriet"
_EXAMPLES = {"A name that came before (induction)": FIRST, **EXAMPLES}

_EXPLAIN_TEXT = (
    "A logit is a sum over paths: a token (or position, or bias) and the heads that carry it to the output, one after "
    "another. Attention patterns and norm scales are frozen as they are on this text. The address in your browser "
    "holds everything you choose here."
)
_EXPLAIN_STRIP = (
    "Click a token to explain what is predicted there. Shading: what all paths that start at a token add to the "
    "chosen logit (blue) or take from it (orange)."
)
_EXPLAIN_ORDERS = "All paths by the number of heads that they pass. The bars add up to the logit."
_EXPLAIN_TOP = (
    "Single paths. Click a head to see its attention on this text, or “without” to run the model without the path. A "
    "path carries what is moved; where a head looks is frozen. So a head that only steers where a later one looks, as "
    "a previous-token head does for an induction head, is on no large path: take the head itself away to see it."
)
_EXPLAIN_HEADS = (
    "Sums of paths by head. Click a head to run the model without it (again: with it), or its sum to list the paths "
    "through it; on the keyboard, arrow keys and Enter."
)
_EXPLAIN_WITHOUT = (
    "The model is run again without the head (its output is zero at every position) or the path (each head on it reads "
    "the stream without it). This forward pass computes patterns and norm scales anew; the linear estimate keeps them "
    "frozen. Where the two differ, the effect goes through patterns (where heads look) and scales."
)
_EXPLAIN_FLOW = (
    "The same paths, joined: tokens on the left, heads by layer, the logit on the right. The width of a link is the "
    "size of all paths that use it; blue adds to the logit, orange takes away. Flows of both signs can cancel."
)


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the first checkpoint on the first example."""
    state = parse_paths(search)
    checkpoint = state.checkpoint or services.catalog.default()
    text = FIRST if state.text is None else state.text
    figures = ("png", "svg", "csv", "json")
    return html.Div(
        [
            html.H1("Paths", className="sr-only"),
            dcc.Store(id=ids.PATHS_PROMPT, data={"checkpoint": checkpoint, "text": text}),
            dcc.Store(
                id=ids.PATHS_ASKED,
                data={"checkpoint": checkpoint, "text": text, "target": state.target, "versus": state.versus},
            ),
            dcc.Store(id=ids.PATHS_POSITION, data=state.position),
            dcc.Store(id=ids.PATHS_WITHOUT, data=state.without),
            dcc.Store(id=ids.PATHS),
            dcc.Download(id=ids.PATHS_DOWNLOAD),
            _text_panel(services, state, checkpoint, text),
            html.Div(
                [
                    panel(
                        ids.TOP_PATHS, "Largest paths", _EXPLAIN_TOP,
                        [html.P(id=ids.TOP_PATHS_CAPTION, className="caption"), html.Div(id=ids.TOP_PATHS_TABLE)],
                        exports=("csv", "json"),
                    ),
                    panel(
                        ids.ORDERS, "By number of heads", _EXPLAIN_ORDERS,
                        [html.P(id=ids.ORDERS_CAPTION, className="caption"), graph(ids.ORDERS_GRAPH, "graph-orders")],
                        exports=figures,
                    ),
                    panel(
                        ids.PATH_HEADS, "Heads", _EXPLAIN_HEADS, heads_grid(ids.PATH_HEADS_TABLE), exports=("csv",)
                    ),
                    panel(
                        ids.WITHOUT, "Without a head or a path", _EXPLAIN_WITHOUT, html.Div(id=ids.WITHOUT_BODY),
                        exports=("csv", "json"),
                    ),
                    panel(
                        ids.FLOW, "Flow", _EXPLAIN_FLOW,
                        [html.P(id=ids.FLOW_CAPTION, className="caption"), graph(ids.FLOW_GRAPH, "graph-flow")],
                        exports=figures,
                    ),
                ],
                id=ids.PATHS_BODY,
                className="paths-body",
                **{"data-empty": ""},
            ),
        ],
        className="paths-page",
        **{"data-max-characters": str(services.settings.max_characters)},
    )  # fmt: skip


def _text_panel(services: Services, state: PathsState, checkpoint: str | None, text: str) -> html.Section:
    chosen = checkpoint_choice(
        ids.PATHS_CHECKPOINT,
        services.catalog,
        checkpoint,
        reads_text=True,
        note=lambda info: " (has MLPs)" if info.model.get("d_mlp") else "",
    )
    return panel(
        ids.PATHS_PANEL,
        "Text and target",
        _EXPLAIN_TEXT,
        [
            text_form(
                chosen, _EXAMPLES, text, text=ids.PATHS_TEXT, example=ids.PATHS_EXAMPLE, run=ids.PATHS_RUN,
                count=ids.PATHS_COUNT, rows=2,
            ),
            html.P(_EXPLAIN_STRIP, className="panel-explanation strip-help"),
            html.Div(id=ids.PATHS_STRIP, className="strip", role="group", **{"aria-label": "Tokens"}),
            html.Div(_target_controls(state), className="target"),
            html.P(id=ids.PATHS_SUM, className="sum", role="status"),
            html.Div(id=ids.PATHS_NOTES),
        ],
    )  # fmt: skip


def _target_controls(state: PathsState) -> list[Any]:
    by = dmc.SegmentedControl(
        id=ids.PATHS_BY,
        data=[
            {"value": "abs", "label": "largest in size"},
            {"value": "pos", "label": "most for it"},
            {"value": "neg", "label": "most against it"},
        ],
        value=state.by,
        size="xs",
        **{"aria-label": "Which paths come first"},
    )
    # The other heads come with the model; an address's own is shown from the start.
    through = dmc.Select(
        id=ids.PATHS_THROUGH,
        label="Through head",
        placeholder="any",
        value=state.through,
        size="xs",
        w=104,
        data=[] if state.through is None else [state.through],
        searchable=True,
        clearable=True,
        nothingFoundMessage="No such head",
    )
    k = dmc.NumberInput(
        id=ids.PATHS_K, label="How many", value=state.k, min=1, max=MAX_K, step=10, allowDecimal=False, size="xs", w=84,
        debounce=300, clampBehavior="blur",
    )  # fmt: skip
    return [
        one_of(ids.PATHS_TARGET, "Target: the logit of", "the model's first choice; type to search"),
        one_of(ids.PATHS_VERSUS, "Minus the logit of", "nothing; type to contrast two tokens"),
        html.Div([html.Span("Paths", className="field-label"), by]),
        through,
        k,
    ]
