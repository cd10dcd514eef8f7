"""Training: the maps of all heads at every step of a run, its measures, and what each circuit took off the loss."""

from __future__ import annotations

import json
from typing import Any

from dash import dcc, html

from aotlens.views import training as views
from app.shell.arrange import Form, Panel, Rows, Tabs
from app.shell.browser import Browser
from app.shell.moving import Custom
from app.shell.panel import panel
from app.shell.props import stores
from app.shell.view_page import view_page

FILM, PLAYED = "training-film", "training-played"
ABOUT = (
    "The maps of all heads on the text, at the step of training that the slider stands at. Arrow keys move it by one "
    "snapshot, and Play goes through all of them; those that come next are fetched ahead. The links open that step on "
    "other pages."
)


def _film(page: Any) -> html.Section:
    """The player; its script needs to know the steps of every run."""
    runs = {name: views.steps_of(page.core.catalog.info(name)) for name in page.available}
    player = html.Div(id=FILM, className="training-film", **{"data-runs": json.dumps(runs)})
    hidden = "" if runs else "hidden"
    content = [player, dcc.Store(id=PLAYED)]
    return panel(f"{FILM}-panel", "Heads over training", ABOUT, content, class_name=hidden)


PAGE = view_page(
    views.FAMILY,
    "Training",
    arranged=Rows(
        Form(),
        Custom(_film),
        Tabs("tab", label="Of the run", sections={
            "measures": (views.FILM.title, Panel(views.FILM, controls=("measure",))),
            "ledger": (views.LEDGER.title, views.LEDGER),
            "influence": ("Influential sequences", Rows(
                views.INFLUENCE, Panel(views.WINDOWS, controls=("influence_on",)), views.CHECK
            )),
        }),
    ),
    file=__file__,
    browser=[Browser("play", inputs=stores(shown="training-shown"), outputs=stores(played=PLAYED))],
)  # fmt: skip
