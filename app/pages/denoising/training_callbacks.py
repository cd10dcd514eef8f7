"""What the tab of trained layers asks of the server: a training's pictures, and new trainings in the background."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
from dash import html, no_update

from aotlens.plots import Theme
from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.core.jobs import Job
from app.pages.denoising import training_figures as figures
from app.pages.denoising import training_words as words
from app.pages.denoising.address import ADDRESS, TRAINING, DenoisingState
from app.pages.denoising.ids import PANELS, ids
from app.pages.denoising.service_training import Trainings, order_of
from app.pages.denoising.tables import runs_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.background import follow_job, kept_as
from app.shell.callbacks import Answer, guarded
from app.shell.notices import taken_instead
from app.shell.props import stores, values
from app.shell.sharing import save_files, show_values, when_seen

_FORM = {name: getattr(ids, f"FORM_{name.upper()}") for name in TRAINING}
_PICTURES = {
    ids.CURVES: figures.curves_figure,
    ids.MATRICES: figures.matrices_figure,
    ids.SCALES: figures.scales_figure,
}


def register(app: App, service: Trainings) -> None:
    """The tab's callbacks."""
    show_values(app, list(_FORM.values()))
    when_seen(app, ids.PICKED, PANELS)
    _register_choice(app, service)
    _register_pictures(app, service)
    _register_form(app, service)
    entries = [shell.export(panel, "csv") for panel in PANELS]
    save_files(app, {entry: partial(make_file, service, entry) for entry in entries}, stores(picked=ids.PICKED))


def _register_choice(app: App, service: Trainings) -> None:
    @guarded(
        app,
        panel=ids.TRAINED,
        inputs=values(training=ids.TRAINING, run=ids.RUN),
        state=stores(before=ids.PICKED),
        parts=("body",),
        output=stores(picked=ids.PICKED, runs=ids.RUN) | values(run=ids.RUN),
        empty={"runs": no_update, "run": no_update},
    )
    def choose(training: str | None, run: Any, before: Any) -> Answer:
        if not training:
            raise RequestError("No training is here. Train layers below.")
        record = service.record(training)
        seeds = record.layers.seeds
        seed = int(run) if str(run).isdigit() and int(run) in seeds else seeds[0]
        named = before is None and str(run) not in (str(seed), str(DenoisingState.run))
        expected = f"the seed of a run ({', '.join(map(str, seeds))})"
        return {
            "notice": taken_instead([ADDRESS.sentence("run", str(run), expected, seed)]) if named else None,
            "picked": {"training": training, "run": seed},
            "body": [html.Div(line) for line in words.meaning(record)],
            "runs": [{"value": str(each), "label": str(each)} for each in seeds],
            "run": str(seed),
        }


def _register_pictures(app: App, service: Trainings) -> None:
    for panel, make in _PICTURES.items():

        @guarded(
            app, panel=panel, inputs=stores(picked=shell.seen(panel), theme=shell.THEME), parts=("figure",)
        )  # fmt: skip
        def draw(picked: Any, theme: Theme, make: Any = make) -> Answer:
            return picked and {"figure": make(service, picked["training"], picked["run"], theme)}

    @guarded(app, panel=ids.RUNS, inputs=stores(picked=shell.seen(ids.RUNS)), parts=("body",))
    def list_runs(picked: Any) -> Answer:
        return picked and {"body": runs_table(service.record(picked["training"]))}


def _register_form(app: App, service: Trainings) -> None:
    def start(session: str, **form: Any) -> Job:
        return service.start(order_of(**form), session=session)

    def done(job: Job) -> dict[str, Any]:
        return {"training": job.result, "options": words.options(service, job.result), "progress": kept_as(job)}

    follow_job(
        app, service.jobs, ids.FORM,
        form=values(task=ids.FORM_TASK, attention=ids.FORM_ATTENTION, **_FORM), start=start,
        output=values(training=ids.TRAINING) | stores(options=ids.TRAINING), done=done,
        units="epochs", failed="The layers could not be trained",
    )  # fmt: skip


def make_file(service: Trainings, entry: str, picked: Any) -> File:
    """The file for an entry of an export menu."""
    if not picked:
        raise RequestError("Nothing is shown, so there is nothing to save: choose a training first.")
    record, name = service.record(picked["training"]), picked["training"]
    layers = record.layers
    panel = shell.exporting(entry)
    if panel == ids.CURVES:
        frame = pd.DataFrame({"epoch": range(layers.test_loss.shape[1])})
        for place, seed in enumerate(layers.seeds):
            frame[f"train_loss_seed_{seed}"] = [None, *layers.train_loss[place].tolist()]
            frame[f"test_loss_seed_{seed}"] = layers.test_loss[place].tolist()
    elif panel == ids.MATRICES:
        place = layers.seeds.index(picked["run"])
        matrices = {"W_QK": layers.plain[0][place], "W_OV": layers.plain[1][place]}
        frame = pd.concat([pd.DataFrame(matrix.numpy()).assign(matrix=name) for name, matrix in matrices.items()])
    elif panel == ids.SCALES:
        shown = service.landscape(name)
        frame = pd.DataFrame(shown.loss.numpy(), index=shown.alphas.tolist(), columns=shown.betas.tolist())
        frame = frame.rename_axis("alpha").reset_index()
    else:
        frame = record.to_frame()
    return csv_file(f"{name}-{panel.partition('-')[2]}.csv", frame)
