"""What the Skip-trigrams page does in the browser (assets/trigrams.js): pick, filter, write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State

from app import ids
from app.pages.shared import mark_head

_FILTERS = (
    Input(ids.TRIGRAM_SOURCE, "value"),
    Input(ids.TRIGRAM_DESTINATION, "value"),
    Input(ids.TRIGRAM_OUT, "value"),
    Input(ids.TRIGRAM_WITHIN, "value"),
    Input(ids.TRIGRAM_VERDICT, "value"),
    Input(ids.TRIGRAM_KIND, "value"),
)


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    mark_head(app, ids.TRIGRAMS_HEADS, ids.TRIGRAMS)
    app.clientside_callback(ClientsideFunction("trigrams", "list"), Input(ids.TRIGRAMS_FOUND, "data"), *_FILTERS)
    app.clientside_callback(
        ClientsideFunction("trigrams", "pick"),
        Output(ids.TRIGRAM_ROW, "data", allow_duplicate=True),
        Input(ids.TRIGRAM_GRID, "selectedRows"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("trigrams", "walk"),
        Input(ids.TRIGRAM_HEADS_TABLE, "cellClicked"),
        State(ids.TRIGRAM_HEADS_TABLE, "rowData"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("trigrams", "showPasted"),
        Output(ids.box(ids.EVIDENCE_PASTED), "className"),
        Input(ids.EVIDENCE_CORPUS, "value"),
    )
    app.clientside_callback(
        ClientsideFunction("trigrams", "writeAddress"),
        Input(ids.TRIGRAMS, "data"),
        *_FILTERS,
        Input(ids.EVIDENCE_CORPUS, "value"),
        Input(ids.EVIDENCE_TOKENS, "value"),
        Input(ids.TRIGRAM_ROW, "data"),
    )
