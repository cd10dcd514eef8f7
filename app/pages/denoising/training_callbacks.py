"""Callbacks of the tab of trained layers: a training's pictures, and new trainings in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html, no_update

from aotlens.views.denoising import CURVES, RUNS
from app.core.errors import RequestError
from app.core.jobs import Job
from app.pages.denoising.address import ADDRESS, TRAINING, DenoisingState
from app.pages.denoising.ids import PICTURES, TRAINING_VIEWS, ids
from app.pages.denoising.service_training import Trainings, order_of
from app.shell import ids as shell
from app.shell.app import App
from app.shell.background import follow_job, kept_as
from app.shell.callbacks import Answer, guarded
from app.shell.notices import taken_instead
from app.shell.props import stores, values
from app.shell.sharing import save_files, show_values, when_seen
from app.shell.views import show_views, tables

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining

_FORM = {name: getattr(ids, f"FORM_{name.upper()}") for name in TRAINING}


def register(app: App, service: Trainings) -> None:
    """Register the tab's callbacks."""
    show_values(app, list(_FORM.values()))
    when_seen(app, ids.PICKED, (ids.RUNS,))
    _register_choice(app, service)
    show_views(app, service.workshop, PICTURES, service.values, shown=ids.PICKED, keys=ids.PICTURES, inputs={})
    _register_runs(app, service)
    _register_form(app, service)
    save_files(app, tables(service.workshop, TRAINING_VIEWS, service.values), stores(shown=ids.PICKED))


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
        picked = service.of(training, seed)
        captions = [view.caption(picked, record) for view in (CURVES, RUNS)]
        named = before is None and str(run) not in (str(seed), str(DenoisingState.run))
        expected = f"the seed of a run ({', '.join(map(str, seeds))})"
        return {
            "notice": taken_instead([ADDRESS.sentence("run", str(run), expected, seed)]) if named else None,
            "picked": {"training": training, "run": seed},
            "body": [html.Div(line) for line in captions if line],
            "runs": [{"value": str(each), "label": str(each)} for each in seeds],
            "run": str(seed),
        }


def _register_runs(app: App, service: Trainings) -> None:
    @guarded(app, panel=ids.RUNS, inputs=stores(picked=shell.seen(ids.RUNS)), parts=("body",))
    def list_runs(picked: Any) -> Answer:
        return picked and {"body": runs_table(service.record(picked["training"]))}


def _register_form(app: App, service: Trainings) -> None:
    def start(session: str, **form: Any) -> Job:
        return service.start(order_of(**form), session=session)

    def done(job: Job) -> dict[str, Any]:
        return {"training": job.result, "options": service.options(job.result), "progress": kept_as(job)}

    follow_job(
        app, service.jobs, ids.FORM,
        form=values(task=ids.FORM_TASK, attention=ids.FORM_ATTENTION, **_FORM), start=start,
        output=values(training=ids.TRAINING) | stores(options=ids.TRAINING), done=done,
        units="epochs", failed="The layers could not be trained",
    )  # fmt: skip


def runs_table(record: DenoiserTraining) -> html.Table:
    """Lay out a row a run."""
    frame = record.layers.to_frame()
    titles = ("seed", "α", "β", "αβ", "W_QK off diagonal", "W_OV off diagonal", "training loss", "test loss", "")
    head = html.Tr([html.Th(title, scope="col", className="number") for title in titles])
    return html.Table(
        [html.Thead(head), html.Tbody([_row(row) for row in frame.to_dict("records")])], className="effect"
    )


def _row(row: dict[str, Any]) -> html.Tr:
    numbers = [f"{row[name]:.4g}" for name in list(row)[1:-1]]
    cells = [html.Td(text, className="number") for text in (str(row["seed"]), *numbers)]
    return html.Tr([*cells, html.Td("stuck" if row["stuck"] else "", className="number stuck")])
