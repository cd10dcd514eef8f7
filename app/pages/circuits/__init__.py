"""Circuits: what a head attends to and what it writes, read from the weights."""

from __future__ import annotations

from typing import Any

from aotlens.views import circuits as views
from aotlens.views.circuit_parameters import CircuitsParameters
from aotlens.views.circuits import LINE_ENDS, LINE_TITLES, exact_because
from app.core import address
from app.core.labels import Labels, labels_of
from app.pages.circuits import tables
from app.shell.arrange import Columns, Form, Linked, Matrix, Rows, Tabs, link
from app.shell.notices import exact, relative
from app.shell.view_page import view_page
from app.shell.view_service import Views

#: A click on an entry lists its row and its column.
_ENTRY = {"row": "rows", "column": "columns", "beside": "=lines"}


def _row_labels(service: Views, params: CircuitsParameters) -> Labels:
    return _labels(service, params, 0)


def _column_labels(service: Views, params: CircuitsParameters) -> Labels:
    return _labels(service, params, 1)


def _labels(service: Views, params: CircuitsParameters, axis: int) -> Labels:
    circuit, loaded = service.workshop.result(views.CIRCUIT, params), service.core.catalog.load(params.checkpoint)
    side, n = (circuit.left, circuit.right)[axis], circuit.shape[axis]
    labels: Labels = service.workshop.keep(("labels", loaded.key, side, n), lambda: labels_of(side, n, loaded.model))
    return labels


def _exactness(params: CircuitsParameters, circuit: Any) -> Any:
    return relative(circuit.reasons, "entries") if circuit.reasons else exact(exact_because(circuit))


def _reads_tokens(params: CircuitsParameters) -> bool:
    return params.config.read_in == "tokens"


def _line(axis: str) -> Linked:
    def title(params: CircuitsParameters, result: Any) -> str:
        this = result.rows if axis == "row" else result.columns
        return LINE_TITLES[params.kind, axis].format(it=f"‹{tables.full_labels(this)[0]}›")

    return Linked(
        views.ROW if axis == "row" else views.COLUMN, over=(axis,), pairs=True, title=title,
        lines=lambda params, result: tables.ends(result, LINE_ENDS[params.kind, axis], but=axis, height="low"),
    )  # fmt: skip


PAGE = view_page(
    views.FAMILY, "Circuits", around="head", carries={"text": address.prompt()},
    labels={"rows": _row_labels, "columns": _column_labels, "row": _row_labels, "column": _column_labels},
    arranged=Rows(
        Form(
            views.CIRCUIT, body=_exactness,
            links=[
                link("In the atlas", "atlas", "checkpoint", "head", tab="head", when=_reads_tokens),
                link("This head on text", "heads", "checkpoint", "head", "text", when=_reads_tokens),
            ],
        ),
        Columns(
            Tabs("view", label="Of the circuit and the head", sections={
                "map": ("Map", Matrix(
                    views.MAP, size="fill", over=("rows", "columns"), picks=_ENTRY, captioned=False,
                    title=lambda params, result: f"Map of {params.kind.upper()} of head {params.name}",
                )),
                "whole": ("Whole matrix", Matrix(
                    views.OVERVIEW, size="fill", controls=("statistic",), marks="block",
                    picks={"block": "place", "beside": "=block"},
                )),
                "eigenvalues": ("Eigenvalues", Linked(views.EIGENVALUES, size="fill")),
                "composition": ("Composition", Linked(
                    views.COMPOSITION, size="low", controls=("z",), lines=lambda params, result: tables.pairs(result),
                )),
            }),
            Tabs("beside", label="Entries of the circuit", sections={
                "top": ("Top entries", Linked(
                    views.TOP, pairs=True,
                    lines=lambda params, result: tables.ends(result, ("Largest", "Smallest"), height="fill"),
                )),
                "lines": ("Row and column", Rows(_line("row"), _line("column"))),
                "block": ("One block", Matrix(
                    views.BLOCK, size="low", reads=("block",), picks=_ENTRY,
                    lines=lambda params, result: tables.by_size(result.entries),
                )),
                "singular": ("Singular pairs", Linked(
                    views.SINGULAR, lines=lambda params, result: tables.singular(result),
                )),
                "copying": ("Copying", Linked(
                    views.COPYING, by=("head",), lines=lambda params, result: tables.copying(result, params.head),
                )),
            }),
        ),
    ),
)  # fmt: skip
