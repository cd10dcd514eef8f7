"""The Circuits page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.circuits import CIRCUIT, KINDS, STATISTICS
from app.core import Core
from app.pages.circuits.address import MAX_CHOSEN, CircuitsState
from app.pages.circuits.ids import VIEWS, ids
from app.pages.circuits.service import Circuits
from app.shell.choices import one_of, some_of
from app.shell.controls import head_choice, link_button, segments, switch_of, whole_number
from app.shell.drawn import drawn
from app.shell.graph import caption
from app.shell.panel import panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.tables import value_tables
from app.shell.views import FILES, about_view, view_panel


def layout(core: Core, service: Circuits, state: CircuitsState) -> html.Div:
    """Lay out the page for an address; with nothing in it, the first head of the first checkpoint."""
    checkpoint = state.checkpoint or core.catalog.default()
    asked = {
        "left": state.left,
        "right": state.right,
        "rows": list(state.rows),
        "columns": list(state.columns),
        "row": state.row,
        "column": state.column,
        "text": state.text,
    }
    return html.Div(
        [
            html.H1("Circuits", className="sr-only"),
            dcc.Store(id=ids.ASKED, data=asked),
            *(dcc.Store(id=id) for id in (ids.CHOSEN, ids.SHOWN, ids.DRAWN, ids.COPIED)),
            # Without `data` where there is none: a store that is laid out with None changes as it is mounted, and asks.
            *(
                dcc.Store(id=id, **({} if value is None else {"data": value}))
                for id, value in ((ids.HEAD, state.head), (ids.BLOCK_AT, state.block))
            ),
            _choice_panel(core, state, checkpoint),
            html.Div(
                [
                    tabs(ids.VIEWS, state.view, _views(state), label="Of the circuit and the head"),
                    tabs(ids.BESIDES, state.beside, _besides(), label="Entries of the circuit"),
                ],
                id=ids.BODY,
                className="circuits-body",
                **{"data-problem": "loading"},
            ),
        ],
        className="circuits",
    )  # fmt: skip


def _views(state: CircuitsState) -> dict[str, tuple[str, Any]]:
    statistic = switch_of(ids.OVERVIEW_STATISTIC, "Summary of a block", state.statistic, STATISTICS)
    pairs = value_tables(ids.COMPOSITION_PAIRS, "Pairs that the head is in")
    return {
        "map": _tab(ids.MAP, "graph-circuit", captioned=False, before=[_map()], is_matrix=True),
        "whole": _tab(ids.OVERVIEW, "graph-circuit", controls=statistic, is_matrix=True),
        "eigenvalues": _tab(ids.EIGENVALUES, "graph-circuit"),
        "composition": _tab(
            ids.COMPOSITION, "graph-composition", controls=_threshold(state), before=[caption(ids.COMPOSITION)],
            after=[pairs],
        ),
    }  # fmt: skip


def _besides() -> dict[str, tuple[str, Any]]:
    lines = [_line(ids.ROW, ids.ROW_CHOICE, ids.ROW_ENTRIES), _line(ids.COLUMN, ids.COLUMN_CHOICE, ids.COLUMN_ENTRIES)]
    entries = value_tables(ids.BLOCK_ENTRIES, "The block's entries by size")
    pairs = drawn(ids.SINGULAR_PAIRS, "singular-box", "Singular pairs", tabIndex=0)
    heads = value_tables(ids.COPYING_HEADS, "Copying of every head")
    return {
        "top": _listed(ids.TOP, [value_tables(ids.TOP_ENTRIES, "Top entries", "two")]),
        "lines": ("Row and column", html.Div(lines, className="lines")),
        "block": _tab(ids.BLOCK, "graph-block", before=[caption(ids.BLOCK)], after=[entries], is_matrix=True),
        "singular": _listed(ids.SINGULAR, [caption(ids.SINGULAR), pairs]),
        "copying": _listed(ids.COPYING, [caption(ids.COPYING), heads]),
    }


def _tab(id: str, size: str, **rest: Any) -> tuple[str, Any]:
    """A view's title and its panel, with its figure."""
    exports = (*FILES, "json")
    return VIEWS[id].title, view_panel(id, VIEWS[id], size, follows=ids.CHOSEN, exports=exports, **rest)


def _listed(id: str, content: Any) -> tuple[str, Any]:
    """The same of one without a figure."""
    view = VIEWS[id]
    section = panel(id, view.title, about_view(view), content, exports=("csv", "python"), follows=ids.CHOSEN)
    return view.title, section


def _choice_panel(core: Core, state: CircuitsState, checkpoint: str | None) -> html.Section:
    return panel(
        ids.CHOICE,
        "Circuit",
        about_view(CIRCUIT),
        [
            html.Div(
                [
                    checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint),
                    head_choice(ids.HEADS, ids.HEAD),
                    segments(ids.KIND, "Circuit", state.kind, KINDS),
                    _side(ids.LEFT, "Rows", state.left),
                    _side(ids.RIGHT, "Columns", state.right),
                    dmc.Switch(
                        id=ids.BIASES, label="With biases", checked=state.biases, size="sm", className="biases"
                    ),
                    whole_number(  # seen where scores depend on the distance
                        ids.DISTANCE, "Distance back", state.distance, 0, None, placeholder="mean of all",
                        className="side", style={"display": "none"},
                    ),
                ],
                className="circuit-choices",
            ),
            html.P(id=ids.MEANING, className="meaning"),
            html.Div(id=ids.EXACTNESS),
        ],
        controls=[
            link_button(ids.OPEN_ATLAS, "In the atlas", core.links.to("atlas"), hidden=True),
            link_button(ids.OPEN_HEADS, "This head on text", core.links.to("heads"), hidden=True),
        ],
        follows=ids.CHOSEN,
        always=True,
    )  # fmt: skip


def _side(id: str, label: str, value: str | None) -> dmc.Select:
    """Lay out the choice of what the rows or columns are; the other options come with the model."""
    data = [] if value is None else [value]
    return dmc.Select(id=id, label=label, data=data, value=value, allowDeselect=False, className="side")


def _map() -> html.Div:
    choices = [some_of(ids.MAP_ROWS, "Rows", MAX_CHOSEN), some_of(ids.MAP_COLUMNS, "Columns", MAX_CHOSEN)]
    return html.Div(choices, className="two")


def _line(id: str, choice: str, entries: str) -> html.Section:
    label = VIEWS[id].title.removeprefix("One ").capitalize()
    chosen = one_of(choice, label, "that of the largest entry; type to choose")
    _, section = _listed(id, [chosen, caption(id), value_tables(entries, f"{label}: its largest and smallest", "two")])
    return section


def _threshold(state: CircuitsState) -> html.Label:
    field = whole_number(ids.COMPOSITION_Z, None, state.z, 0, 999, size="xs", w=70)
    return html.Label(["z from", field], className="threshold")
