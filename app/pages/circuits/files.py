"""What the Circuits page shows, as files: CSV of tables, JSON of figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from app.core.errors import RequestError
from app.core.files import File, csv_file, json_file
from app.pages.circuits import figures
from app.pages.circuits import service_structure as structure
from app.pages.circuits.service import Choice, Circuits, Ends, Shown
from app.pages.circuits.words import quantity


def map_csv(view: figures.MapView) -> File:
    """One row an entry of the map."""
    shown = view.shown
    records = (
        _entry(shown, row, column, view.values[i, j])
        for i, row in enumerate(view.rows)
        for j, column in enumerate(view.columns)
    )
    return _csv(shown.choice, "map", records)


def map_json(view: figures.MapView, what: str = "map") -> File:
    """The map as nested lists `[row][column]`."""
    shown = view.shown
    content = {
        **_about(shown),
        "rows": list(view.rows),
        "row_labels": [shown.rows.text(row) for row in view.rows],
        "columns": list(view.columns),
        "column_labels": [shown.columns.text(column) for column in view.columns],
        "values": view.values.tolist(),
    }
    return json_file(_name(shown.choice, what, "json"), content)


def overview_csv(view: figures.OverviewView) -> File:
    """One row a block."""
    found = view.overview
    records = (
        {
            "first_row": found.rows(i)[0],
            "last_row": found.rows(i)[-1],
            "first_column": found.columns(j)[0],
            "last_column": found.columns(j)[-1],
            found.statistic: float(found.values[i, j]),
        }
        for i, j in np.ndindex(found.values.shape)
    )
    return _csv(view.shown.choice, f"blocks-{found.statistic}", records)


def overview_json(view: figures.OverviewView) -> File:
    """The blocks as nested lists `[row block][column block]`."""
    found = view.overview
    content = {
        **_about(view.shown),
        "statistic": found.statistic,
        "rows_per_block": found.row_size,
        "columns_per_block": found.column_size,
        "n_rows": found.n_rows,
        "n_columns": found.n_columns,
        "values": found.values.tolist(),
    }
    return json_file(_name(view.shown.choice, f"blocks-{found.statistic}", "json"), content)


def ends_csv(shown: Shown, ends: Ends, what: str) -> File:
    """Both ends of the matrix, a row or a column, each best first."""
    records = []
    for end, entries, relative in (
        ("largest", ends.largest, ends.largest_relative),
        ("smallest", ends.smallest, ends.smallest_relative),
    ):
        for place, (row, column, value) in enumerate(
            zip(entries.rows.tolist(), entries.columns.tolist(), entries.values.tolist(), strict=True)
        ):
            record = _entry(shown, row, column, value)
            records.append({"end": end, "rank": place + 1, **record, "above_its_row": float(relative[place])})
    return _csv(shown.choice, what, records)


def block_csv(view: figures.BlockView) -> File:
    """A block's entries by size, as listed."""
    shown, (entries, relative) = view.map.shown, view.listed
    records = (
        {"rank": place + 1, **_entry(shown, row, column, value), "above_its_row": float(relative[place])}
        for place, (row, column, value) in enumerate(
            zip(entries.rows.tolist(), entries.columns.tolist(), entries.values.tolist(), strict=True)
        )
    )
    return _csv(shown.choice, f"block-{view.block[0]}.{view.block[1]}", records)


def eigenvalues_csv(circuits: Circuits, choice: Choice) -> File:
    """Real and imaginary parts, the largest in size first."""
    records = [{"real": z.real, "imaginary": z.imag} for z in _lambda(circuits, choice)]
    return _csv(choice, "eigenvalues", records)


def eigenvalues_json(circuits: Circuits, choice: Choice) -> File:
    """The same, with the copying score."""
    found = circuits.spectrum(choice)
    content = {
        **_about(circuits.circuit(choice)),
        "eigenvalues": [[z.real, z.imag] for z in _lambda(circuits, choice)],
        "copying_score": found.copying_score,
        "by_construction": found.by_construction,
        "singular_values": found.singular_values.tolist(),
    }
    return json_file(_name(choice, "eigenvalues", "json"), content)


def singular_csv(circuits: Circuits, choice: Choice) -> File:
    """Every token at both ends of every listed singular vector."""
    frame = circuits.spectrum(choice).to_frame()
    return csv_file(_name(choice, "singular", "csv"), frame)


def composition_csv(circuits: Circuits, checkpoint: str, head: tuple[int, int]) -> File:
    """Every pair that the head is in."""
    name = f"{checkpoint}-head-{head[0]}.{head[1]}-composition.csv"
    return csv_file(name, _edges(circuits, checkpoint, head))


def composition_json(circuits: Circuits, checkpoint: str, head: tuple[int, int], z: float) -> File:
    """The same, with the level above which a pair is drawn."""
    edges = _edges(circuits, checkpoint, head)
    content = {"checkpoint": checkpoint, "head": list(head), "drawn_from_z": z, "edges": edges}
    return json_file(f"{checkpoint}-head-{head[0]}.{head[1]}-composition.json", content)


def copying_csv(circuits: Circuits, checkpoint: str, head: tuple[int, int]) -> File:
    """The table of copying scores and rates."""
    records, _ = structure.copying(circuits, checkpoint, head)
    kept = ("head", "score", "by_construction", "top1", "top5")
    return csv_file(f"{checkpoint}-copying.csv", [{key: one[key] for key in kept} for one in records])


def _lambda(circuits: Circuits, choice: Choice) -> list[complex]:
    found = circuits.spectrum(choice).eigenvalues
    if found is None:
        raise RequestError("This circuit has no eigenvalues: its rows and columns are different things.")
    return [complex(z) for z in found]


def _edges(circuits: Circuits, checkpoint: str, head: tuple[int, int]) -> list[dict[str, Any]]:
    around = structure.around(circuits, checkpoint, head)
    records = structure.edge_records(around.edges, head, around.compositions)
    return [
        {name: value for name, value in one.items() if name not in ("goto", "key", "through", "turned")}
        for one in records
    ]


def _entry(shown: Shown, row: int, column: int, value: float) -> dict[str, Any]:
    return {
        "row": row,
        "row_label": shown.rows.text(row),
        "column": column,
        "column_label": shown.columns.text(column),
        quantity(shown).replace(" ", "_"): float(value),
    }


def _about(shown: Shown) -> dict[str, Any]:
    about, circuit = shown.choice.to_dict(), shown.circuit
    return {**about, "unit": circuit.unit, "exact": circuit.exact, "relative_because": circuit.relative}


def _name(choice: Choice, what: str, kind: str) -> str:
    sides = f"{choice.kind}-{choice.left}-{choice.right}"
    return f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-{sides}-{what}.{kind}"


def _csv(choice: Choice, what: str, records: Iterable[Mapping[str, Any]]) -> File:
    return csv_file(_name(choice, what, "csv"), records)
