"""The Checkpoints page's layout."""

from __future__ import annotations

from dash import dcc, html

from app.core import Core
from app.core.catalog import GET_ONE
from app.pages.checkpoints.address import CheckpointsState
from app.pages.checkpoints.ids import ids
from app.pages.checkpoints.service import Checkpoints
from app.pages.checkpoints.tables import checkpoints_table
from app.shell import ids as shell
from app.shell.graph import caption, figure
from app.shell.notices import empty
from app.shell.page_links import leading
from app.shell.panel import about, panel, tabs
from app.shell.tables import value_tables

_EXPLAIN_CATALOG = about(
    "Every model at hand: those given with --checkpoints, your own, and the bundled ones. Losses are nats per token on "
    "held-out text; the baseline is a smoothed bigram model on the same text, so the difference is what the model gets "
    "from more than the token before. †: of a masked model, per hidden token, beside a unigram model's; of a model of "
    "images, per image, beside the classes' shares; of in-context regression, the error beside that of least squares. "
    "Choose a row.",
    formula="loss = −(1/n) Σ log p(token i | tokens before i)",
)
_EXPLAIN_CARD = "The model card: what the model was trained on, how, and what it is for."
_EXPLAIN_CURVE = (
    "Losses over training in nats per token, and, where they were logged, the best score of any head for a motif."
)
_EXPLAIN_PARAMETERS = "Every tensor of the checkpoint's file, with its shape and how its numbers are stored."


def layout(core: Core, service: Checkpoints, state: CheckpointsState) -> html.Div:
    """Return the page for an address; with nothing in it, the first checkpoint is chosen."""
    rows = service.rows()
    chosen = state.checkpoint or (rows[0]["name"] if rows else None)
    none = [] if rows else [empty(f"There are no checkpoints. {GET_ONE}")]
    table = value_tables(ids.TABLE, "Checkpoints", data=[checkpoints_table(rows)] if rows else [])
    curve = [
        figure(ids.CURVE, "graph-curve"),
        html.Div("No training curve was kept with this checkpoint.", id=ids.CURVE_EMPTY, className="hidden"),
    ]
    training = panel(ids.CURVE, "Training", _EXPLAIN_CURVE, curve, exports=("png", "svg", "python"), follows=ids.CHOSEN)
    parameters = panel(
        ids.PARAMETERS,
        "Parameters",
        _EXPLAIN_PARAMETERS,
        html.Div([caption(ids.PARAMETERS), value_tables(ids.TENSORS, "Tensors")], className="card-box", tabIndex=0),
        exports=("python",),
        follows=ids.CHOSEN,
    )
    details = [
        panel(
            ids.CARD,
            "Card",
            _EXPLAIN_CARD,
            html.Div(id=shell.body(ids.CARD), className="card-box", tabIndex=0),
            controls=leading("Open in Heads", core.links.to("heads"), id=ids.OPEN),
            exports=("python",),
        ),
        tabs(
            ids.TABS,
            state.tab,
            {"training": ("Training", training), "parameters": ("Parameters", parameters)},
            label="Of the checkpoint",
        ),
    ]
    return html.Div(
        [
            html.H1("Checkpoints", className="sr-only"),
            dcc.Store(id=ids.CHOSEN, data=chosen),
            panel(ids.CATALOG, "Checkpoints", _EXPLAIN_CATALOG, [*none, table], exports=("python",)),
            html.Div(details, className="columns columns-card"),
        ],
        className="checkpoints",
    )
