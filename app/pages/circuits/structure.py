"""The Circuits page's spectra, and the heads around the chosen one."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output

from aotlens.plots import Theme, composition_graph, eigenvalue_plane
from app import ids
from app.components import circuit_tables as tables
from app.components.graph import EMPTY
from app.pages.circuits.callbacks import chosen
from app.pages.guard import guarded
from app.services import Services, circuit_structure
from app.services import circuit_words as words
from app.urlstate import FIRST_Z


def register(app: Dash, services: Services) -> None:
    """The panels' callbacks."""
    circuits = services.circuits

    @app.callback(
        Output(ids.EIGENVALUES_GRAPH, "figure"),
        Output(ids.box(ids.EIGENVALUES_GRAPH), "className"),
        Output(ids.EIGENVALUES_CAPTION, "children"),
        Output(ids.notice(ids.EIGENVALUES), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "hidden", "")
    def draw_eigenvalues(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return EMPTY, "hidden", ""
        shown, found = circuits.circuit(choice), circuits.spectrum(choice)
        if found.eigenvalues is None:
            return EMPTY, "hidden", words.no_eigenvalues(shown)
        figure = eigenvalue_plane(found.eigenvalues, unit=words.quantity(shown), theme=theme or "light")
        figure.update_layout(meta={"name": f"{choice.name} · eigenvalues"})
        return figure, "graph-circuit", words.eigenvalues(shown, found)

    @app.callback(
        Output(ids.SINGULAR_TABLE, "children"),
        Output(ids.SINGULAR_CAPTION, "children"),
        Output(ids.notice(ids.SINGULAR), "children"),
        Input(ids.CIRCUIT, "data"),
    )
    @guarded(None, "")
    def list_singular(data: Any) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return None, ""
        shown, found = circuits.circuit(choice), circuits.spectrum(choice)
        records = circuit_structure.singular_pairs(shown, found)
        return tables.singular_table(shown, records), words.singular(shown, found)

    @app.callback(
        Output(ids.COMPOSITION_GRAPH, "figure"),
        Output(ids.box(ids.COMPOSITION_GRAPH), "className"),
        Output(ids.COMPOSITION_CAPTION, "children"),
        Output(ids.COMPOSITION_TABLE, "columnDefs"),
        Output(ids.COMPOSITION_TABLE, "rowData"),
        Output(ids.COMPOSITION_TABLE, "className"),
        Output(ids.notice(ids.COMPOSITION), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.COMPOSITION_Z, "value"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "hidden", "", [], [], "hidden")
    def draw_composition(data: Any, z: Any, theme: Theme | None) -> tuple[Any, ...]:
        if not data:
            return EMPTY, "hidden", "", [], [], "hidden"
        if data["layers"] == 1:
            return EMPTY, "hidden", words.ONE_LAYER, [], [], "hidden"
        head, level = (data["layer"], data["head"]), threshold(z)
        around = circuit_structure.around(circuits, data["checkpoint"], head)
        drawn = circuit_structure.above(around.edges, level)
        figure = composition_graph(drawn, head, data["layers"], data["heads"], theme=theme or "light")
        figure.update_layout(meta={"name": f"{data['checkpoint']} · composition of head {head[0]}.{head[1]}"})
        records = circuit_structure.edge_records(around.edges, head, around.compositions)
        return figure, "graph-composition", words.composed(around, level), tables.edge_columns(), records, "table"

    @app.callback(
        Output(ids.COPYING_TABLE, "columnDefs"),
        Output(ids.COPYING_TABLE, "rowData"),
        Output(ids.COPYING_CAPTION, "children"),
        Output(ids.notice(ids.COPYING), "children"),
        Input(ids.CIRCUIT, "data"),
    )
    @guarded([], [], "")
    def list_copying(data: Any) -> tuple[Any, ...]:
        if not data:
            return [], [], ""
        records, caption = circuit_structure.copying(circuits, data["checkpoint"], (data["layer"], data["head"]))
        return tables.copying_columns(), records, caption


def threshold(z: Any) -> float:
    """The number in the box, or the usual one where it is empty."""
    return float(z) if isinstance(z, int | float) else float(FIRST_Z)
