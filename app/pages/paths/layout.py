"""The Paths page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.core.address_values import dotted
from app.core.examples import EXAMPLES
from app.pages.paths.address import FIRST, MAX_K, PathsState
from app.pages.paths.ids import SCORE_VIEWS, VIEWS, ids
from app.pages.paths.service import Paths
from app.shell import ids as shell
from app.shell.choices import one_of
from app.shell.controls import segments, whole_number
from app.shell.drawn import drawn
from app.shell.graph import caption, figure
from app.shell.panel import panel, tabs
from app.shell.prompt import checkpoint_choice, text_form
from app.shell.tables import grid
from app.shell.views import about_view, view_panel

_EXAMPLES = {"A name that came before (induction)": FIRST, **EXAMPLES}


def layout(core: Core, paths: Paths, state: PathsState) -> html.Div:
    """Return the page for an address; with nothing in it, the first checkpoint on the first example."""
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
            # Without `data` where there is none: a store that is laid out with None changes as it is mounted, and asks.
            *(
                dcc.Store(id=id, **({} if value is None else {"data": value}))
                for id, value in ((ids.POSITION, state.position), (ids.TAKEN, state.without), (ids.SHOWN, None))
            ),
            dcc.Store(id=ids.CELL, data={name: getattr(state, name) for name in ("head", "query", "key", "against")}),
            dcc.Store(id=ids.SCORE_PROMPT),
            dcc.Store(id=ids.DRAWN),
            dcc.Store(id=ids.SCORED),
            _text_panel(core, state, checkpoint, text),
            tabs(
                ids.OF,
                state.of,
                {"logit": ("A logit", _logit(state)), "score": ("An attention score", _score(state))},
                label="Quantity that is decomposed",
                when_open=("score",),
            ),
        ],
        className="paths-page",
        **{"data-max-characters": str(core.settings.max_characters)},
    )  # fmt: skip


def _logit(state: PathsState) -> html.Div:
    """The paths of a logit."""
    views = {
        "top": _panel(ids.TOP, [caption(ids.TOP), drawn(ids.PATHS, "top-paths", "Largest paths", tabIndex=0)]),
        "heads": _panel(ids.HEADS, grid(shell.table(ids.HEADS), key="head", height=400, header=46), json=False),
        "flow": _panel(ids.FLOW, size="graph-flow"),
    }
    besides = {
        "orders": _panel(ids.ORDERS, size="graph-orders"),
        "without": _panel(ids.WITHOUT, html.Div(id=shell.body(ids.WITHOUT), className="effect-box", tabIndex=0)),
    }
    return _side_by_side(
        tabs(ids.VIEWS, state.view, views, label="Paths and heads"),
        tabs(ids.BESIDES, state.beside, besides, label="Sums and effects"),
        id=ids.BODY,
    )


def _score(state: PathsState) -> html.Div:
    """The tab of a score: which one, its pairs and trace at the left, sums at the right."""
    pairs = [caption(ids.PAIRS), drawn(ids.PAIR_LINES, "pair-lines", "Largest pairs of paths")]
    # The files are the library's own drawing and page, so the browser saves no picture of the figure.
    boxes = [figure(ids.TRACE, "graph-layers"), drawn(ids.TRACE_LINES, "trace-lines", "The cells of the trace")]
    trace = [caption(ids.TRACE), html.Div(boxes, className="graph-trace paper-figure", tabIndex=0)]
    views = {
        "pairs": _panel(ids.PAIRS, pairs),
        "trace": _panel(ids.TRACE, trace, exports=("svg", "html", "csv", "json", "python")),
    }
    sums = {
        by: _panel(id, size="graph-sums")
        for by, id in (("heads", ids.BY_HEADS), ("sources", ids.BY_SOURCES), ("orders", ids.BY_ORDERS))
    }
    _, score = _panel(ids.SCORE, drawn(ids.SCORE_TOP, "score-top", "Which score"), exports=())
    return html.Div(
        [
            score,
            _side_by_side(
                tabs(ids.SCORE_VIEWS, state.part, views, label="Pairs and trace"),
                tabs(ids.SCORE_SUMS, state.sums, sums, label="Sums of pairs"),
                id=ids.SCORE_BODY,
            ),
        ]
    )


def _side_by_side(*columns: Any, id: str) -> html.Div:
    return html.Div(columns, id=id, className="paths-body")


def _panel(
    id: str, content: Any = None, *, size: str = "", json: bool = True, exports: tuple[str, ...] | None = None
) -> tuple[str, html.Section]:
    """A view's title and its panel: its figure of a `size`, or what the page draws itself."""
    view, data = {**VIEWS, **SCORE_VIEWS}[id], ("json",) if json else ()
    follows = ids.PROMPT if id in VIEWS else ids.SCORE_PROMPT
    if content is None:
        drawn_by_view = view_panel(id, view, size, follows=follows, exports=("png", "svg", "csv", *data, "python"))
        return view.title, drawn_by_view
    exports = ("csv", *data, "python") if exports is None else exports
    return view.title, panel(id, view.title, about_view(view), content, exports=exports, follows=follows)


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
        about_view(VIEWS[ids.PANEL]),
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
        follows=ids.PROMPT,
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
