"""In-context denoising: attention as one step down the energy of its context, and layers trained to denoise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.views import denoising as views
from app.shell import ids as shell
from app.shell.arrange import Columns, Form, Linked, Panel, Preset, Rows, Tabs
from app.shell.browser import Browser
from app.shell.props import props
from app.shell.tables import pick, value_table
from app.shell.view_page import view_page

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining

#: The parameters of a training.
_TRAINING = ("training", "trained_on", "attention", "epochs", "rate", "context", "prompts", "runs")
_COLUMNS = ("seed", "α", "β", "αβ", "W_QK off diagonal", "W_OV off diagonal", "training loss", "test loss")


def _runs(params: views.DenoisingParameters, record: DenoiserTraining) -> list[dict[str, Any]]:
    """List one row per run; a click on its seed shows its matrices."""
    rows = []
    for row in record.layers.to_frame().to_dict("records"):
        seed, *numbers, stuck = row.values()
        name = pick(str(seed), f"Show the matrices of seed {seed}", {"run": seed})
        rows.append([name, *(f"{number:.4g}" for number in numbers), "stuck" if stuck else ""])
    return [value_table([*((title, "", "number") for title in _COLUMNS), ("", "", "here")], rows)]


PAGE = view_page(
    views.FAMILY,
    "Denoising",
    arranged=Tabs("tab", label="In-context denoising", sections={
        "energy": ("Energy of a context", Columns(
            Form(reads=_TRAINING),
            Panel(views.PLANE, size="tall", controls=("query",), presets=[Preset("Query as drawn", {"query": None})]),
            Panel(views.ERRORS, size="tall", reads=("query",)),
            widths="245px minmax(0, 1.2fr) minmax(0, 1fr)",
        )),
        "training": ("Trained layers", Rows(
            Columns(
                Panel(views.CURVES, over=_TRAINING),
                Panel(views.MATRICES, controls=("run",), reads=_TRAINING),
                Panel(views.SCALES, reads=("run", *_TRAINING)),
                widths="repeat(3, minmax(0, 1fr))",
            ),
            Linked(views.RUNS, lines=_runs, reads=_TRAINING),
        )),
    }),
    file=__file__,
    browser=[Browser("show", inputs=props("figure", plane=shell.graph("denoising-plane")))],
)  # fmt: skip
