"""Ids of the In-context denoising page, and what it does in the browser (denoising.js): drag the query."""

from __future__ import annotations

from aotlens.views.denoising import CURVES, ERRORS, MATRICES, PARAMETERS, PLANE, RUNS, SCALES
from app.shell import ids as shell
from app.shell.browser import Browser, Source
from app.shell.ids import Ids
from app.shell.props import inside, props, stores, values

ids = Ids(
    "denoising",
    "page tab panel task energy tokens noise components alpha beta share steps seed best drawn plane errors",
    "training run trained curves matrices scales runs",
    "form form-task form-attention form-epochs form-rate form-context form-prompts form-runs",
    "shown",  # store: what the plane shows, an address's state without its query; None when nothing is
    "query",  # store: [x, y], where somebody has put the query, or None
    "picked",  # store: {training, run}, what of the trainings is shown; None when nothing is
    "pictures",  # store: what the pictures of a training are of
)

#: Fields of the address that the plane shows, but for the query.
FORM = ("task", "energy", *PARAMETERS)
#: Views of a prompt in the plane, and pictures of a training, which are asked for once they are in view.
PLANE_VIEWS = {ids.PLANE: PLANE, ids.ERRORS: ERRORS}
PICTURES = {ids.CURVES: CURVES, ids.MATRICES: MATRICES, ids.SCALES: SCALES}
TRAINING_VIEWS = {**PICTURES, ids.RUNS: RUNS}

WRITES: dict[str, Source] = {
    **inside(ids.SHOWN, *FORM),
    "query": (ids.QUERY, "data"),
    **values(tab=ids.TAB),
    **inside(ids.PICKED, "training", "run"),
}

BROWSER = (
    Browser("show", inputs=stores(shown=ids.SHOWN) | props("figure", plane=shell.graph(ids.PLANE))),
    Browser(
        "asDrawn",
        inputs=props("n_clicks", clicks=ids.DRAWN) | values(task=ids.TASK, seed=ids.SEED),
        outputs=stores(query=ids.QUERY),
        at_first=False,
    ),
)
