"""The tab of trained layers."""

from __future__ import annotations

from typing import get_args

import dash_mantine_components as dmc
from dash import html

from app.pages.denoising import explanations
from app.pages.denoising import training_words as words
from app.pages.denoising.address import TRAINING, Attention, DenoisingState, TrainedTask
from app.pages.denoising.ids import ids
from app.pages.denoising.service import Denoising
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.controls import parameter_slider, segments
from app.shell.graph import figure
from app.shell.panel import panel


def training_tab(service: Denoising, state: DenoisingState) -> html.Div:
    """Stored trainings, and the form for new ones."""
    files = ("png", "svg", "csv", "python")
    chosen = state.training or service.trainings.first()
    choices = [
        dmc.Select(
            id=ids.TRAINING, data=words.options(service.trainings, chosen), value=chosen, allowDeselect=False,
            label="Training", w=330, size="sm", placeholder="none is here yet", nothingFoundMessage="No such training",
        ),
        segments(ids.RUN, "Run whose matrices are shown (seed)", str(state.run), {str(state.run): str(state.run)}),
    ]  # fmt: skip
    return html.Div(
        [
            panel(
                ids.TRAINED, "Layers trained to denoise", explanations.TRAINED,
                [
                    html.Div(choices, className="denoising-choices"),
                    html.Div(id=shell.body(ids.TRAINED), className="meaning", role="status"),
                ],
            ),
            panel(
                ids.CURVES, "Loss by epoch", explanations.CURVES, figure(ids.CURVES, "graph-trained"), exports=files,
                follows=ids.PICKED,
            ),
            panel(
                ids.MATRICES, "Learned matrices", explanations.MATRICES, figure(ids.MATRICES, "graph-trained"),
                exports=files, follows=ids.PICKED,
            ),
            panel(
                ids.SCALES, "Loss over α and β", explanations.SCALES, figure(ids.SCALES, "graph-trained"),
                exports=files, follows=ids.PICKED,
            ),
            panel(
                ids.RUNS, "All runs", explanations.RUNS,
                html.Div(id=shell.body(ids.RUNS), className="runs-box"), exports=("csv", "python"), follows=ids.PICKED,
            ),
            _form(),
        ],
        className="denoising-training",
    )  # fmt: skip


def _form() -> html.Section:
    controls = [
        segments(ids.FORM_TASK, "Task", "spheres", {name: words.TASKS[name] for name in get_args(TrainedTask)}),
        segments(ids.FORM_ATTENTION, "Attention", "linear", {name: name for name in get_args(Attention)}),
        *(parameter_slider(getattr(ids, f"FORM_{name.upper()}"), each, each.first) for name, each in TRAINING.items()),
        dmc.Button("Train", id=shell.start(ids.FORM), n_clicks=0),
    ]
    content = [html.Div(controls, className="denoising-form"), job_bar(ids.FORM)]
    return panel(ids.FORM, "Train layers", explanations.FORM, content)
