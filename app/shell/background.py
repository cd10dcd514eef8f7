"""Work in the background from a panel: what starts and stops it, how far it is, and what is shown when it is done.

The panel has a button `ids.start(panel)` and a `job_bar`; `follow_job` is their callback. Whose work a Stop ends is
said in app/core/jobs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ctx, dcc, html, no_update
from dash.development.base_component import Component

from app.core import sessions
from app.core.jobs import Job, Jobs
from app.shell import ids
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.notices import problem
from app.shell.props import Props, children, props, stores

#: Milliseconds from one look at a job to the next.
_EVERY = 900


def stop_bar(panel: str, *kept: Component, every: int = _EVERY) -> html.Div:
    """Lay out the work's progress, the button that ends it, and what asks for both, every so many milliseconds."""
    button = dmc.Button(
        "Stop", id=ids.stop(panel), n_clicks=0, size="compact-sm", variant="default", className="hidden"
    )
    timer = dcc.Interval(id=ids.timer(panel), interval=every, disabled=True)
    return html.Div([html.Div(id=ids.progress(panel), role="status"), button, timer, *kept], className="progress")


def job_bar(panel: str, *, every: int = _EVERY) -> html.Div:
    """Lay out the bar of `stop_bar` for `follow_job`, which watches one job."""
    return stop_bar(panel, dcc.Store(id=ids.watched(panel)), every=every)


def follow_job(
    app: App,
    jobs: Jobs,
    panel: str,
    *,
    form: Props,
    start: Callable[..., Job],
    done: Callable[..., dict[str, Any]],
    units: str,
    failed: str,
    meanwhile: Callable[[Job], dict[str, Any]] | None = None,
    kept: Props | None = None,
    output: Props | None = None,
    parts: Sequence[str] = (),
) -> None:
    """Register the callback of a panel's job.

    `start(session=…, **form)` starts one, `units` are what is counted of it, `failed` is the title where it fails.
    `done(job, **kept)` answers, by the names of `output` and `parts`, what is shown when it is done; under `progress`,
    what is said of it. `meanwhile(job)` answers what is shown of one of the session's own that is under way, or ended
    before it was done.
    """
    app.asked.declare({ids.watched(panel): "key"})
    outputs = {
        **stores(watched=ids.watched(panel)),
        **children(progress=ids.progress(panel)),
        **props("className", stop=ids.stop(panel)),
        **props("disabled", timer=ids.timer(panel)),
    }

    @guarded(
        app,
        panel=panel,
        inputs=props("n_clicks", start=ids.start(panel), stop=ids.stop(panel))
        | props("n_intervals", ticks=ids.timer(panel)),
        state={**stores(watched=ids.watched(panel)), **form, **(kept or {})},
        output={**outputs, **(output or {})},
        parts=parts,
        empty={**dict.fromkeys((*parts, *(output or {}), "watched"), no_update), "stop": "hidden", "timer": True},
    )
    def follow(watched: str | None, **given: Any) -> Answer:
        session = sessions.current()
        clicked = set(ctx.triggered_prop_ids.values())  # a click may come together with a tick
        if ids.start(panel) in clicked:
            watched = start(session=session, **{name: given[name] for name in form}).key
        elif ids.stop(panel) in clicked:
            jobs.stop(session)
        job = jobs.watched(watched, session)
        if job is None:
            return {"watched": None, "progress": None, "stop": "hidden", "timer": True}
        own = job.active and session in job.sessions
        answer = {
            "watched": job.key if own else None,
            "progress": said(job, session, units, failed),
            "stop": "" if own else "hidden",
            "timer": not job.active,
        }
        if job.state == "done":
            return answer | done(job, **{name: given[name] for name in kept or {}})
        return answer | meanwhile(job) if meanwhile is not None and session in job.sessions else answer


def said(job: Job, session: str, units: str, failed: str) -> Any:
    """Say how far a job is, for `session`; or how it ended, which for one that is done its panel says."""
    if job.state == "done":
        return None
    if job.state == "stopped":
        return "Stopped; nothing of it is kept."
    if job.state == "failed":
        return problem(job.error, failed)
    return _bar(job, session, units)


def progress_text(job: Job, units: str) -> str:
    """Say how far a job is that has not ended."""
    if job.state == "waiting":
        return f"{job.label}: waiting for what is under way before it."
    share = f", {job.done:,} of {job.total:,} {units}" if job.total else ""
    return f"{job.label}: {job.phase or 'starting'}{share}."


def _bar(job: Job, session: str, units: str) -> html.Span:
    """Lay out a job's progress in words and as a bar; and whose it is, where `session` doesn't wait for it."""
    text = progress_text(job, units)
    text = text if session in job.sessions else f"For somebody else: {text}"
    share = job.done / job.total if job.total else 0
    bar = html.Span(className="progress-bar", style={"width": f"{100 * share:.1f}%"})
    return html.Span([text, html.Span(bar, className="progress-track")], className="progress")
