"""The Circuits page's spectra, and the heads around the chosen one."""

from __future__ import annotations

from functools import partial
from typing import Any

from aotlens.plots import Theme, composition_graph, eigenvalue_plane
from app.pages.circuits import service_structure as structure
from app.pages.circuits import tables, words
from app.pages.circuits.address import FIRST_Z
from app.pages.circuits.callbacks import chosen
from app.pages.circuits.ids import ids
from app.pages.circuits.service import Choice, Circuits
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.graph import EMPTY
from app.shell.props import props, stores, values


def register(app: App, circuits: Circuits) -> None:
    """The panels' callbacks."""
    of_choice = partial(guarded, app, reads={"choice": chosen})

    @guarded(
        app,
        panel=ids.EIGENVALUES,
        inputs=stores(choice=shell.seen(ids.EIGENVALUES), theme=shell.THEME),
        reads={"choice": chosen},
        parts=("figure", "caption"),
        output=props("className", box=shell.box(shell.graph(ids.EIGENVALUES))),
        empty={"box": "hidden"},
    )
    def draw_eigenvalues(choice: Choice, theme: Theme) -> Answer:
        shown, spectrum = circuits.circuit(choice), circuits.spectrum(choice)
        if spectrum.eigenvalues is None:
            return {"figure": EMPTY, "box": "hidden", "caption": words.no_eigenvalues(shown)}
        figure = eigenvalue_plane(spectrum.eigenvalues, unit=words.quantity(shown), theme=theme)
        figure.update_layout(meta={"name": f"{choice.name} · eigenvalues"})
        return {"figure": figure, "box": "graph-circuit", "caption": words.eigenvalues(shown, spectrum)}

    @of_choice(panel=ids.SINGULAR, inputs=stores(choice=shell.seen(ids.SINGULAR)), parts=("body", "caption"))
    def list_singular(choice: Choice) -> Answer:
        shown, spectrum = circuits.circuit(choice), circuits.spectrum(choice)
        records = structure.singular_pairs(shown, spectrum)
        return {"body": tables.singular_table(shown, records), "caption": words.singular(shown, spectrum)}

    @guarded(
        app,
        panel=ids.COMPOSITION,
        inputs=stores(data=shell.seen(ids.COMPOSITION), theme=shell.THEME) | values(z=ids.COMPOSITION_Z),
        parts=("figure", "caption", "columns", "rows"),
        output=props("className", box=shell.box(shell.graph(ids.COMPOSITION)), table=shell.table(ids.COMPOSITION)),
        empty={"box": "hidden", "table": "hidden"},
    )
    def draw_composition(data: Any, z: Any, theme: Theme) -> Answer:
        if not data:
            return None
        if data["layers"] == 1:
            return {
                "figure": EMPTY, "box": "hidden", "caption": words.ONE_LAYER, "columns": [], "rows": [],
                "table": "hidden",
            }  # fmt: skip
        head, level = (data["layer"], data["head"]), threshold(z)
        around = structure.around(circuits, data["checkpoint"], head)
        drawn = structure.above(around.above_null, level)
        figure = composition_graph(drawn, head, data["layers"], data["heads"], theme=theme)
        figure.update_layout(meta={"name": f"{data['checkpoint']} · composition of head {head[0]}.{head[1]}"})
        return {
            "figure": figure,
            "box": "graph-composition",
            "caption": words.composed(around, level),
            "columns": tables.edge_columns(),
            "rows": structure.edge_records(around.edges, head, around.compositions),
            "table": "table",
        }

    @guarded(app, panel=ids.COPYING, inputs=stores(data=shell.seen(ids.COPYING)), parts=("columns", "rows", "caption"))
    def list_copying(data: Any) -> Answer:
        if not data:
            return None
        records, caption = structure.copying(circuits, data["checkpoint"], (data["layer"], data["head"]))
        return {"columns": tables.copying_columns(), "rows": records, "caption": caption}


def threshold(z: Any) -> float:
    """The number in the box, or the usual one where it is empty."""
    return float(z) if isinstance(z, int | float) else float(FIRST_Z)
