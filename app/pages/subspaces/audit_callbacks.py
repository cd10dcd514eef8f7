"""What the tab of trained models asks of the server: an audit in the background, and its pictures."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import Output, State, ctx, no_update

from aotlens.plots import Theme
from app.core import sessions
from app.core.errors import RequestError
from app.core.files import File, text_file
from app.core.jobs import Job
from app.pages.subspaces import words
from app.pages.subspaces.figures import audit_figure
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service_audit import Audits
from app.pages.subspaces.tables import audit_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.controls import progress_bar
from app.shell.notices import problem
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, show_values, when_seen

_PANELS = (ids.RATIOS, ids.PRINCIPAL, ids.LAYERS_TABLE)


def register(app: App, service: Audits) -> None:
    """The tab's callbacks."""
    show_values(app, [ids.DRAWS])
    when_seen(app, ids.AUDITED, _PANELS)
    _register_form(app, service)
    for panel in _PANELS[:2]:

        @guarded(app, panel=panel, inputs=stores(audited=shell.seen(panel), theme=shell.THEME), parts=("figure",))
        def draw(audited: Any, theme: Theme, principal: bool = panel == ids.PRINCIPAL) -> Answer:
            found = service.done((audited or {}).get("key"))
            return found and {"figure": audit_figure(found, principal, theme)}

    @guarded(app, panel=ids.LAYERS_TABLE, inputs=stores(audited=shell.seen(ids.LAYERS_TABLE)), parts=("body",))
    def list_layers(audited: Any) -> Answer:
        found = service.done((audited or {}).get("key"))
        return found and {"body": audit_table(found.audit.to_frame().to_dict("records"))}

    entries = [shell.export(panel, "csv") for panel in _PANELS]
    save_files(
        app, {entry: partial(make_file, service, entry) for entry in entries}, {"audited": State(ids.AUDITED, "data")}
    )


def _register_form(app: App, service: Audits) -> None:
    @guarded(
        app,
        panel=ids.AUDIT,
        inputs=props("n_clicks", start=ids.START, stop=ids.STOP) | props("n_intervals", ticks=ids.TIMER),
        state=stores(watched=ids.WATCHED)
        | values(checkpoint=ids.CHECKPOINT, source=ids.SOURCE, text=ids.TEXT, draws=ids.DRAWS),
        output=stores(watched=ids.WATCHED, audited=ids.AUDITED)
        | children(progress=ids.PROGRESS)
        | props("className", stop=ids.STOP)
        | {"timer": Output(ids.TIMER, "disabled")},
        parts=("body",),
        empty={"watched": no_update, "audited": no_update, "stop": "hidden", "timer": True, "body": no_update},
    )
    def follow(start: Any, stop: Any, ticks: Any, watched: str | None, draws: Any, **form: Any) -> Answer:
        session = sessions.current()
        clicked = set(ctx.triggered_prop_ids.values())  # a click may come together with a tick
        if ids.START in clicked:
            watched = service.start(service.order(**form, draws=int(draws)), session=session).key
        elif ids.STOP in clicked:
            service.jobs.stop(session)
        job = service.jobs.watched(watched, session)
        if job is None:
            return {"watched": None, "progress": None, "stop": "hidden", "timer": True}
        own = job.active and session in job.sessions
        answer = {
            "watched": job.key if own else None,
            "progress": _progress(job, session),
            "stop": "" if own else "hidden",
            "timer": not job.active,
        }
        if job.state != "done":
            return answer
        return {**answer, "audited": {"key": job.key}, "body": words.audited(job.result)}


def make_file(service: Audits, entry: str, audited: Any) -> File:
    """The file for an entry of an export menu."""
    found = service.done((audited or {}).get("key"))
    if found is None:
        raise RequestError("There is no audit here to save: press Audit first.")
    principal = shell.exporting(entry) == ids.PRINCIPAL
    frame = found.audit.pca_frame() if principal else found.audit.to_frame()
    name = f"{found.order.checkpoint}-audit-{'principal' if principal else 'subspaces'}.csv"
    return text_file(name, frame.to_csv(index=False), "text/csv")


def _progress(job: Job, session: str) -> Any:
    if job.state == "done":
        return None
    if job.state == "stopped":
        return "Stopped; nothing of it is kept."
    if job.state == "failed":
        return problem(job.error, "The model could not be audited")
    return progress_bar(job, words.progress(job), session)
