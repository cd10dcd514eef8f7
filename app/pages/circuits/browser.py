"""What the Circuits page does in the browser (assets/circuits.js): pick tokens and blocks, walk, write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State

from app import ids
from app.pages.shared import mark_head

#: Tables whose tokens can be clicked.
PICKED_FROM = (
    ids.TOP_LARGEST,
    ids.TOP_SMALLEST,
    ids.ROW_LARGEST,
    ids.ROW_SMALLEST,
    ids.COLUMN_LARGEST,
    ids.COLUMN_SMALLEST,
    ids.BLOCK_TABLE,
)


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    mark_head(app, ids.CIRCUITS_HEADS, ids.CIRCUIT)
    app.clientside_callback(
        ClientsideFunction("circuits", "show"),
        Output(ids.OPEN_HEADS, "href"),
        Output(ids.OPEN_HEADS, "className"),
        Input(ids.CIRCUIT, "data"),
        State(ids.CIRCUITS_ASKED, "data"),
    )
    for table in PICKED_FROM:
        app.clientside_callback(
            ClientsideFunction("circuits", "pickFromTable"),
            Input(table, "cellClicked"),
            State(table, "rowData"),
            prevent_initial_call=True,
        )
    for graph in (ids.ENTRIES_GRAPH, ids.BLOCK_GRAPH):
        app.clientside_callback(
            ClientsideFunction("circuits", "pickFromMap"),
            Input(graph, "clickData"),
            State(graph, "figure"),
            prevent_initial_call=True,
        )
    app.clientside_callback(
        ClientsideFunction("circuits", "pickBlock"),
        Input(ids.OVERVIEW_GRAPH, "clickData"),
        State(ids.OVERVIEW_GRAPH, "figure"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("circuits", "frameBlock"),
        Input(ids.BLOCK_GRAPH, "figure"),
        Input(ids.OVERVIEW_GRAPH, "figure"),
    )
    app.clientside_callback(
        ClientsideFunction("circuits", "walk"),
        Input(ids.COMPOSITION_GRAPH, "clickData"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("circuits", "walkFromTable"),
        Input(ids.COMPOSITION_TABLE, "cellClicked"),
        State(ids.COMPOSITION_TABLE, "rowData"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("circuits", "walkFromTable"),
        Input(ids.COPYING_TABLE, "cellClicked"),
        State(ids.COPYING_TABLE, "rowData"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("circuits", "writeAddress"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.ENTRIES_ROWS, "value"),
        Input(ids.ENTRIES_COLUMNS, "value"),
        Input(ids.ROW_CHOICE, "value"),
        Input(ids.COLUMN_CHOICE, "value"),
        Input(ids.OVERVIEW_STATISTIC, "value"),
        Input(ids.BLOCK, "data"),
        Input(ids.COMPOSITION_Z, "value"),
        State(ids.CIRCUITS_ASKED, "data"),
    )
