"""Training: the maps of all heads at every step of a run, its measures, and what each circuit took off the loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dash import dcc, html

from aotlens.views.training import FAMILY, steps_of
from app.core import Core
from app.shell.browser import Browser
from app.shell.panel import panel
from app.shell.props import stores
from app.shell.view_page import Views, view_page

FILM, PLAYED = "training-film", "training-played"
ABOUT = (
    "The maps of all heads on the text, at the step of training that the slider stands at. Arrow keys move it by one "
    "snapshot, and Play goes through all of them; those that come next are fetched ahead. The links open that step on "
    "other pages."
)


def _film(core: Core, service: Views, chosen: Mapping[str, Any]) -> html.Section:
    """The player; its script needs to know the steps of every run."""
    runs = {name: steps_of(core.catalog.info(name)) for name in service.fitting()}
    player = html.Div(id=FILM, className="training-film", **{"data-runs": json.dumps(runs)})
    hidden = "" if runs else "hidden"
    content = [player, dcc.Store(id=PLAYED)]
    return panel(f"{FILM}-panel", "Heads over training", ABOUT, content, class_name=hidden)


PAGE = view_page(
    FAMILY, "Training", file=__file__, above=_film,
    browser=[Browser("play", inputs=stores(shown="training-shown"), outputs=stores(played=PLAYED))],
)  # fmt: skip
