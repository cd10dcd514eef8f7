"""Subspaces: tokens on noisy subspaces, layer by layer of MSSA, and the same measure of a trained model's layers."""

from __future__ import annotations

from typing import Any

from aotlens.views import subspaces as views
from app.shell.arrange import FORM_WIDTHS, Columns, Form, Linked, Rows, Tabs
from app.shell.moving import Steps
from app.shell.tables import height_of, value_table
from app.shell.view_page import view_page

_THREE = "minmax(0, 1.1fr) minmax(0, 1fr) minmax(0, 1fr)"
_AUDITED = ("checkpoint", "corpus", "draws")
#: The columns of the audit's table, by the titles and kinds of `value_table`.
_LAYERS = {
    "layer": "layer", "snr": "SNR before", "rotated_snr": "rotated subspaces", "p_snr": "p",
    "ratio": "after ÷ before", "null_least": "writes rotated: least", "null_largest": "largest", "p_above": "p above",
    "p_below": "p below",
}  # fmt: skip


def conditions(params: Any, result: Any) -> list[dict[str, Any]]:
    """Return the theorem's conditions: what the proof assumes, what is the case, and whether it is met."""
    titles = {"condition": "", "here": "number", "needed": "number", "met": "", "in the paper": ""}
    rows = [
        (row.statement, f"{row.value:.4g}", f"{row.bound:.4g}", "✓ met" if row.met else "✗ not met", row.source)
        for row in result.rows
    ]
    return [value_table([(title, "", kind) for title, kind in titles.items()], rows)]


def layers(params: Any, result: Any) -> list[dict[str, Any]]:
    """Return the audit's table: one row per grouping and layer, p to two digits and other numbers to three."""
    columns = [("tokens", "", ""), *((title, "", "number") for title in _LAYERS.values())]
    rows = [
        [row["grouping"], *(f"{row[name]:.{2 if name.startswith('p_') else 3}g}" for name in _LAYERS)]
        for row in result.to_frame().to_dict("records")
    ]
    return [value_table(columns, rows, height=height_of(rows))]


PAGE = view_page(
    views.FAMILY,
    "Subspaces",
    arranged=Tabs("tab", label="Subspace denoising", sections={
        "mixture": ("Synthetic tokens", Columns(
            Form(),
            Rows(
                Steps(views.MIXTURE, step="layer", sentences=views.by_layer),
                Columns(
                    Linked(views.CLOUD, frames="layer", controls=("picture",), captioned=False),
                    Linked(views.SNR, frames="layer", captioned=False),
                    Linked(
                        views.MEMBERSHIP, frames="layer", controls=("head",), captioned=False,
                        title=lambda params, result: f"Memberships φ in subspace {params.head}",
                    ),
                    widths=_THREE,
                ),
                Linked(views.CONDITIONS, lines=conditions),
            ),
            widths=FORM_WIDTHS,
        )),
        "models": ("Trained models", Rows(
            Linked(views.AUDIT, over=_AUDITED),
            Columns(Linked(views.PRINCIPAL, reads=_AUDITED), Linked(views.LAYERS, lines=layers, reads=_AUDITED)),
        )),
    }),
)  # fmt: skip
