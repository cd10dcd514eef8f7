"""Callbacks of the tab of trained models: the stored audit of a model, or a new one in the background."""

from __future__ import annotations

from functools import partial
from typing import Any

import plotly.graph_objects as go

from aotlens.plots import Theme, plot
from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.core.jobs import Job
from app.pages.subspaces import captions
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service_audit import AuditResult, Audits
from app.pages.subspaces.tables import audit_table
from app.shell import ids as shell
from app.shell import own_texts
from app.shell.app import App
from app.shell.background import follow_job
from app.shell.callbacks import Answer, Together, guarded
from app.shell.props import stores, values
from app.shell.sharing import save_files, show_values, when_seen

_PANELS = (ids.RATIOS, ids.PRINCIPAL, ids.LAYERS_TABLE)


def register(app: App, service: Audits) -> None:
    """Register the tab's callbacks."""
    show_values(app, [ids.DRAWS])
    own_texts.register(app, ids.AUDIT, ids.SOURCE, ids.TEXT)
    when_seen(app, ids.AUDITED, _PANELS)
    _register_form(app, service)
    _register_choice(app, service)
    panels = Together(app, ids.AUDIT_KEYS, reads={"audited": service.shown})
    for panel in _PANELS[:2]:

        @panels.of(panel=panel, inputs=stores(audited=shell.seen(panel), theme=shell.THEME), parts=("figure",))
        def draw(audited: AuditResult, theme: Theme, principal: bool = panel == ids.PRINCIPAL) -> Answer:
            return {"figure": _figure(audited, principal, theme)}

    @panels.of(panel=ids.LAYERS_TABLE, inputs=stores(audited=shell.seen(ids.LAYERS_TABLE)), parts=("body",))
    def list_layers(audited: AuditResult) -> Answer:
        return {"body": audit_table(audited.audit.to_frame().to_dict("records"))}

    panels.register()
    entries = [shell.export(panel, "csv") for panel in _PANELS]
    save_files(app, {entry: partial(make_file, service, entry) for entry in entries}, stores(audited=ids.AUDITED))


def _figure(result: AuditResult, principal: bool, theme: Theme) -> go.Figure:
    """Draw the SNR after ÷ before every layer of a trained model."""
    figure = plot(result.audit, principal=principal, theme=theme)
    figure.layout.meta = {
        "name": f"{'Principal directions' if principal else 'Subspaces'} of {result.order.checkpoint}"
    }
    return figure


def _register_form(app: App, service: Audits) -> None:
    def start(session: str, draws: Any, **form: Any) -> Job:
        return service.start(service.order(**form, draws=int(draws)), session=session)

    def done(job: Job) -> dict[str, Any]:
        return {"made": job.result.order.to_dict()}

    follow_job(
        app, service.jobs, ids.AUDIT,
        form=values(checkpoint=ids.CHECKPOINT, source=ids.SOURCE, text=ids.TEXT, draws=ids.DRAWS), start=start,
        output=stores(made=ids.MADE), done=done,
        units="layers", failed="The model could not be audited",
    )  # fmt: skip


def _register_choice(app: App, service: Audits) -> None:
    @guarded(
        app,
        panel=ids.AUDIT,
        inputs=values(checkpoint=ids.CHECKPOINT) | stores(made=ids.MADE),
        output=stores(audited=ids.AUDITED),
        parts=("body",),
        shares_notice=True,
    )
    def choose(checkpoint: str | None, made: dict[str, Any] | None) -> Answer:
        if checkpoint is None:
            return None
        choice = service.choose(checkpoint, made)
        gone = bool(made) and made["checkpoint"] == checkpoint and service.made(made) is None
        return {"audited": choice, "body": captions.audited(service.shown(choice), checkpoint, gone=gone)}


def make_file(service: Audits, entry: str, audited: Any) -> File:
    """Make the file for an entry of an export menu."""
    result = service.shown(audited)
    if result is None:
        raise RequestError("There is no audit here to save: press Audit first.")
    principal = shell.exporting(entry) == ids.PRINCIPAL
    frame = result.audit.pca_frame() if principal else result.audit.to_frame()
    name = f"{result.order.checkpoint}-audit-{'principal' if principal else 'subspaces'}.csv"
    return csv_file(name, frame)
