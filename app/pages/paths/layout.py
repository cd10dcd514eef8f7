"""The Paths page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.core.address_values import dotted
from app.core.examples import EXAMPLES
from app.pages.paths.address import FIRST, MAX_K, PathsState
from app.pages.paths.ids import ids
from app.pages.paths.score_layout import score_section
from app.pages.paths.service import Paths
from app.shell import ids as shell
from app.shell.choices import one_of
from app.shell.controls import segments, whole_number
from app.shell.drawn import drawn
from app.shell.graph import caption, figure
from app.shell.panel import about, panel, tabs
from app.shell.prompt import checkpoint_choice, text_form
from app.shell.tables import grid

_EXAMPLES = {"A name that came before (induction)": FIRST, **EXAMPLES}

_FIGURES = ("png", "svg", "csv", "json")

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), path expansion"

_EXPLAIN_TEXT = about(
    "A logit is a sum over paths: a token (or position, or bias) and the heads that carry it to the output, one after "
    "another. Attention patterns and norm scales are frozen as they are on this text. Click a token to explain what is "
    "predicted there. Shading: what all paths that start at a token add to the chosen logit (blue) or take from it "
    "(orange). The address in your browser holds everything you choose here.",
    formula="logits = Π (Id + Σₕ Aʰ ⊗ W_OVʰ) applied to the tokens, then W_U",
    source=_FRAMEWORK,
)
_EXPLAIN_ORDERS = "All paths by the number of heads that they pass. The bars add up to the logit."
_EXPLAIN_TOP = about(
    "Single paths. Click a head to see its attention on this text, or “without” to run the model without the path. A "
    "path carries what is moved; where a head looks is frozen. So a head that only steers where a later one looks, as "
    "a previous-token head does for an induction head, is on no large path: take the head itself away to see it.",
    formula="A²(n, j) A¹(j, i) · x(i) W_OV¹ W_OV² W_U[target], for a path from token i through two heads",
    source=_FRAMEWORK,
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


def layout(core: Core, paths: Paths, state: PathsState) -> html.Div:
    """The page for an address; with nothing in it, the first checkpoint on the first example."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = FIRST if state.text is None else state.text
    return html.Div(
        [
            html.H1("Paths", className="sr-only"),
            dcc.Store(id=ids.PROMPT, data={"checkpoint": checkpoint, "text": text}),
            dcc.Store(
                id=ids.ASKED,
                data={"checkpoint": checkpoint, "text": text, "target": state.target, "versus": state.versus},
            ),
            dcc.Store(id=ids.POSITION, data=state.position),
            dcc.Store(id=ids.TAKEN, data=state.without),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.CELL, data={name: getattr(state, name) for name in ("head", "query", "key", "against")}),
            dcc.Store(id=ids.SCORE_SHOWN),
            _text_panel(core, state, checkpoint, text),
            tabs(
                ids.OF,
                state.of,
                {"logit": ("A logit", _logit(state)), "score": ("An attention score", score_section(state))},
                label="What is explained",
                when_open=("score",),
            ),
        ],
        className="paths-page",
        **{"data-max-characters": str(core.settings.max_characters)},
    )  # fmt: skip


def _logit(state: PathsState) -> html.Div:
    """The paths of a logit."""
    return html.Div(
        [
            tabs(ids.VIEWS, state.view, _views(), label="Paths and heads"),
            tabs(ids.BESIDES, state.beside, _besides(), label="Sums and effects"),
        ],
        id=ids.BODY,
        className="paths-body",
        **{"data-empty": ""},
    )


def _views() -> dict[str, tuple[str, Any]]:
    top = [caption(ids.TOP), html.Div(id=shell.body(ids.TOP), className="top-paths", tabIndex=0)]
    heads = grid(shell.table(ids.HEADS), key="head", height=400, header=46)
    flow = [caption(ids.FLOW), figure(ids.FLOW, "graph-flow")]
    return {
        "top": ("Largest paths", _panel(ids.TOP, "Largest paths", _EXPLAIN_TOP, top, ("csv", "json"))),
        "heads": ("Heads", _panel(ids.HEADS, "Heads", _EXPLAIN_HEADS, heads, ("csv",))),
        "flow": ("Flow", _panel(ids.FLOW, "Flow", _EXPLAIN_FLOW, flow, _FIGURES)),
    }


def _besides() -> dict[str, tuple[str, Any]]:
    title = "Without a head or a path"
    orders = [caption(ids.ORDERS), figure(ids.ORDERS, "graph-orders")]
    effect = html.Div(id=shell.body(ids.WITHOUT), className="effect-box", tabIndex=0)
    return {
        "orders": ("By number of heads", _panel(ids.ORDERS, "By number of heads", _EXPLAIN_ORDERS, orders, _FIGURES)),
        "without": (title, _panel(ids.WITHOUT, title, _EXPLAIN_WITHOUT, effect, ("csv", "json"))),
    }


def _panel(id: str, title: str, explanation: Any, content: Any, exports: tuple[str, ...]) -> html.Section:
    return panel(id, title, explanation, content, exports=(*exports, "python"), follows=ids.SHOWN)


def _text_panel(core: Core, state: PathsState, checkpoint: str | None, text: str) -> html.Section:
    chosen = checkpoint_choice(
        ids.CHECKPOINT,
        core.catalog,
        checkpoint,
        reads_text=True,
        note=lambda info: " (has MLPs)" if info.model.get("d_mlp") else "",
    )
    return panel(
        ids.PANEL,
        "Text and target",
        _EXPLAIN_TEXT,
        [
            text_form(
                chosen, _EXAMPLES, text, text=ids.TEXT, example=ids.EXAMPLE, run=ids.RUN,
                count=ids.COUNT, rows=2,
            ),
            html.Div(
                [
                    drawn(ids.STRIP, "strip", "Tokens"),
                    html.Div(_target_controls(state), className="target"),
                    html.P(id=ids.SUM, className="sum", role="status"),
                ],
                className="logit-only",
            ),
            html.Div(id=ids.NOTES),
        ],
    )  # fmt: skip


def _target_controls(state: PathsState) -> list[Any]:
    rankings = {"abs": "largest in size", "pos": "most for it", "neg": "most against it"}
    # The other heads come with the model; an address's own is shown from the start.
    head = dotted(state.through) or None
    through = dmc.Select(
        id=ids.THROUGH,
        label="Through head",
        placeholder="any",
        value=head,
        size="xs",
        w=104,
        data=[] if head is None else [head],
        searchable=True,
        clearable=True,
        nothingFoundMessage="No such head",
    )
    return [
        one_of(ids.TARGET, "Target: the logit of", "the model's first choice; type to search"),
        one_of(ids.VERSUS, "Minus the logit of", "nothing; type to contrast two tokens"),
        segments(ids.BY, "Paths", state.by, rankings, size="xs"),
        through,
        whole_number(ids.K, "How many", state.k, 1, MAX_K, step=10, size="xs", w=84),
    ]
