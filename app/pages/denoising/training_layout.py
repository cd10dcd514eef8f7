"""The tab of trained layers."""

from __future__ import annotations

from typing import get_args

import dash_mantine_components as dmc
from dash import html

from aotlens.views.denoising import RUNS
from app.pages.denoising import explanations
from app.pages.denoising.address import TRAINING, Attention, DenoisingState, TrainedTask
from app.pages.denoising.ids import PICTURES, ids
from app.pages.denoising.service import Denoising
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.controls import parameter_slider, segments
from app.shell.panel import panel
from app.shell.views import about_view, view_panel


def training_tab(service: Denoising, state: DenoisingState) -> html.Div:
    """Lay out stored trainings, and the form for new ones."""
    chosen = state.training or service.trainings.first()
    choices = [
        dmc.Select(
            id=ids.TRAINING, data=service.trainings.options(chosen), value=chosen, allowDeselect=False,
            label="Training", w=330, size="sm", placeholder="none is here yet", nothingFoundMessage="No such training",
        ),
        segments(ids.RUN, "Run whose matrices are shown (seed)", str(state.run), {str(state.run): str(state.run)}),
    ]  # fmt: skip
    pictures = PICTURES.items()
    return html.Div(
        [
            panel(
                ids.TRAINED, "Layers trained to denoise", explanations.TRAINED,
                [
                    html.Div(choices, className="denoising-choices"),
                    html.Div(id=shell.body(ids.TRAINED), className="meaning", role="status"),
                ],
            ),
            *(view_panel(id, view, "graph-trained", captioned=False, follows=ids.PICKED) for id, view in pictures),
            panel(
                ids.RUNS, RUNS.title, about_view(RUNS), html.Div(id=shell.body(ids.RUNS), className="runs-box"),
                exports=("csv", "python"), follows=ids.PICKED,
            ),
            _form(),
        ],
        className="denoising-training",
    )  # fmt: skip


def _form() -> html.Section:
    controls = [
        segments(ids.FORM_TASK, "Task", "spheres", {name: name for name in get_args(TrainedTask)}),
        segments(ids.FORM_ATTENTION, "Attention", "linear", {name: name for name in get_args(Attention)}),
        *(parameter_slider(getattr(ids, f"FORM_{name.upper()}"), each, each.first) for name, each in TRAINING.items()),
        dmc.Button("Train", id=shell.start(ids.FORM), n_clicks=0),
    ]
    content = [html.Div(controls, className="denoising-form"), job_bar(ids.FORM)]
    return panel(ids.FORM, "Train layers", explanations.FORM, content)
