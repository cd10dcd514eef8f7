"""Python for the Circuits page's views."""

from __future__ import annotations

from collections.abc import Sequence

from app.core import Core
from app.pages.circuits import figures
from app.pages.circuits.address import CircuitsState
from app.pages.circuits.ids import PANELS, ids
from app.pages.circuits.line_callbacks import line_index
from app.pages.circuits.service import Circuits
from app.shell.page import python_of
from app.shell.python import loading


@python_of(*PANELS)
def python(core: Core, service: Circuits, state: CircuitsState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    choice = service.describe(state).choice
    head, k = (choice.layer, choice.head), core.settings.n_entries
    start = loading(choice.checkpoint)
    if panel == ids.COMPOSITION:
        return [
            *start,
            "compositions = aotlens.circuits.all_compositions(model, folded=True)",
            "# By mode, [earlier layer, earlier head, later layer, later head].",
            "result = {mode: found.values for mode, found in compositions.items()}",
        ]
    if panel == ids.COPYING:
        return [
            *start,
            f"rate = aotlens.circuits.copying_rate(model, {head})",
            f"spectrum = aotlens.circuits.spectrum(aotlens.circuits.ov_circuit(model, {head}))",
            "result = float(rate.top1), float(rate.top5), spectrum.copying_score",
        ]
    biases = ", biases=True" if choice.biases else ""
    distance = "" if choice.distance is None else f", distance={choice.distance}"
    sides = f"{choice.left!r}, {choice.right!r}{biases}{distance}"
    start = ["import torch", *start, f"circuit = aotlens.circuits.{choice.kind}_circuit(model, {head}, {sides})"]
    if panel == ids.TOP:
        return [
            *start,
            f"largest = aotlens.circuits.top_entries(circuit, {k})  # values, rows and columns",
            f"smallest = aotlens.circuits.top_entries(circuit, {k}, largest=False)",
            "result = largest.values",
        ]
    if panel == ids.OVERVIEW:
        n = core.settings.overview_blocks
        return [*start, f"result = aotlens.circuits.block_overview(circuit, {n}, {state.statistic!r}).values"]
    if panel in (ids.EIGENVALUES, ids.SINGULAR):
        numbers = "eigenvalues" if panel == ids.EIGENVALUES else "singular_values"
        return [*start, f"result = aotlens.circuits.spectrum(circuit).{numbers}"]
    if panel == ids.ROW:
        row = line_index(service, choice, "row", None if state.row is None else str(state.row))
        return [*start, _entries([row], None), "columns = entries[0].argsort()[::-1]", "result = entries[0, columns]"]
    if panel == ids.COLUMN:
        column = line_index(service, choice, "column", None if state.column is None else str(state.column))
        return [*start, _entries(None, [column]), "rows = entries[:, 0].argsort()[::-1]", "result = entries[rows, 0]"]
    if panel == ids.BLOCK:
        shown = figures.block(service, choice, state.block).map
    else:
        shown = figures.entries(service, choice, state.rows, state.columns)
    return [*start, _entries(shown.rows, shown.columns), "result = entries"]


def _entries(rows: Sequence[int] | None, columns: Sequence[int] | None) -> str:
    """Exact entries; None for all."""
    at = [
        f"torch.arange(circuit.shape[{axis}])" if given is None else f"torch.tensor({list(given)})"
        for axis, given in enumerate((rows, columns))
    ]
    return f"entries = aotlens.circuits.exact_block(circuit, {', '.join(at)})"
