"""The Distillation page's form: a new distillation in the background, its progress, its end."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, html, no_update

from app import ids
from app.components.notices import problem
from app.pages.distillation.callbacks import result_options
from app.pages.guard import guarded
from app.services import Services
from app.services import distillation_words as words
from app.services.distillation import Order, heads_of
from app.services.errors import RequestError
from app.services.jobs import Job
from app.urlstate import MAX_RESULTS


def register(app: Dash, services: Services) -> None:
    """The form's callback."""
    page = services.distillations

    @app.callback(
        Output(ids.DISTIL_WATCHED, "data"),
        Output(ids.DISTIL_PROGRESS, "children"),
        Output(ids.DISTIL_STOP, "className"),
        Output(ids.DISTIL_TIMER, "disabled"),
        Output(ids.DISTILLATION_RESULTS, "data"),
        Output(ids.DISTILLATION_RESULTS, "value"),
        Output(ids.notice(ids.DISTIL), "children"),
        Input(ids.DISTIL_START, "n_clicks"),
        Input(ids.DISTIL_STOP, "n_clicks"),
        Input(ids.DISTIL_TIMER, "n_intervals"),
        State(ids.DISTIL_WATCHED, "data"),
        State(ids.DISTILLATION_RESULTS, "value"),
        State(ids.DISTIL_CHECKPOINT, "value"),
        State(ids.DISTIL_CORPUS, "value"),
        State(ids.DISTIL_HIDDEN, "value"),
        State(ids.DISTIL_HEADS, "value"),
        State(ids.DISTIL_SEEDS, "value"),
        State(ids.DISTIL_TOKENS, "value"),
        State(ids.DISTIL_COSTS, "checked"),
    )
    @guarded(no_update, "", "hidden", True, no_update, no_update)
    def follow(
        start: Any, stop: Any, ticks: Any, watched: str | None, results: list[str] | None, *form: Any
    ) -> tuple[Any, ...]:
        asked = set(ctx.triggered_prop_ids.values())  # a click may come together with a tick
        if ids.DISTIL_START in asked:
            watched = page.start(order_of(services, *form)).key
        elif ids.DISTIL_STOP in asked:
            page.jobs.stop()
        job = page.jobs.get(watched) if watched else page.jobs.running()
        if job is None:
            return None, "", "hidden", True, no_update, no_update
        options = value = no_update
        if job.state == "done":
            value = [*(one for one in results or [] if one != job.result), job.result][-MAX_RESULTS:]
            options = result_options(services, value)
        hidden = "" if job.active else "hidden"
        return job.key if job.active else None, _progress(job), hidden, not job.active, options, value


def order_of(
    services: Services, checkpoint: Any, corpus: Any, hidden: Any, heads: Any, seeds: Any, tokens: Any, costs: Any
) -> Order:
    """What the form says. Raises RequestError for what can't be done."""
    if not corpus:
        raise RequestError(words.NO_CORPUS)
    if not hidden:
        raise RequestError("Hidden units: choose at least one width.")
    allowed = services.settings.distil_tokens
    return Order(
        checkpoint=str(checkpoint),
        corpus=str(corpus),
        hidden=tuple(sorted({min(int(width), 1024) for width in hidden})),
        heads=heads_of(heads),
        seeds=min(max(int(seeds), 1), 10) if isinstance(seeds, int | float) else 3,
        tokens=min(int(tokens or allowed[0]), max(allowed)),
        costs=bool(costs),
    )


def _progress(job: Job) -> Any:
    if job.state == "done":
        return f"{job.label}: done. It is kept as {job.result}, and shown above."
    if job.state == "stopped":
        return "Stopped; nothing of it is kept."
    if job.state == "failed":
        return problem(job.error, "The heads could not be distilled")
    share = job.done / job.total if job.total else 0
    bar = html.Span(className="progress-bar", style={"width": f"{100 * share:.1f}%"})
    return html.Span([words.progress(job), html.Span(bar, className="progress-track")], className="progress")
