"""The Distillation page's form: a new distillation in the background, its progress, its end."""

from __future__ import annotations

from typing import Any

from dash import ctx, no_update

from app.core import sessions
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.jobs import Job
from app.pages.distillation import words
from app.pages.distillation.address import MAX_RESULTS
from app.pages.distillation.callbacks import result_options
from app.pages.distillation.ids import ids
from app.pages.distillation.service import Distillations, Order, heads_of
from app.shell import own_texts
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.controls import progress_bar
from app.shell.notices import problem
from app.shell.props import children, props, stores, values


def register(app: App, service: Distillations) -> None:
    """The form's callbacks."""
    own_texts.register(app, ids.FORM, ids.FORM_CORPUS, ids.FORM_PASTED)

    @guarded(
        app,
        panel=ids.FORM,
        inputs=props("n_clicks", start=ids.START, stop=ids.STOP) | props("n_intervals", ticks=ids.TIMER),
        state=stores(watched=ids.WATCHED)
        | values(results=ids.RESULTS, checkpoint=ids.FORM_CHECKPOINT, corpus=ids.FORM_CORPUS, hidden=ids.FORM_HIDDEN)
        | values(pasted=ids.FORM_PASTED)
        | values(heads=ids.FORM_HEADS, seeds=ids.FORM_SEEDS, tokens=ids.FORM_TOKENS)
        | props("checked", costs=ids.FORM_COSTS),
        output=stores(watched=ids.WATCHED, options=ids.RESULTS)
        | children(progress=ids.PROGRESS)
        | props("className", stop=ids.STOP)
        | props("disabled", timer=ids.TIMER)
        | values(results=ids.RESULTS),
        empty={"watched": no_update, "options": no_update, "stop": "hidden", "timer": True, "results": no_update},
    )
    def follow(
        start: Any, stop: Any, ticks: Any, watched: str | None, results: list[str] | None, **form: Any
    ) -> Answer:
        session = sessions.current()
        clicked = set(ctx.triggered_prop_ids.values())  # a click may come together with a tick
        if ids.START in clicked:
            watched = service.start(order_of(service, **form), session=session).key
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
        value = [*(one for one in results or [] if one != job.result), job.result][-MAX_RESULTS:]
        return {**answer, "results": value, "options": result_options(service, value)}


def order_of(
    service: Distillations,
    checkpoint: Any,
    corpus: Any,
    hidden: Any,
    heads: Any,
    seeds: Any,
    tokens: Any,
    costs: Any,
    pasted: str | None = None,
) -> Order:
    """What the form says. Raises RequestError for what can't be done."""
    if not corpus:
        raise RequestError(words.NO_CORPUS)
    if corpus == PASTED:
        if not (pasted or "").strip():
            raise RequestError("There is no text to distil on: paste or upload one, or choose a corpus.")
        corpus = service.corpora.paste(pasted or "")
        service.corpora.keep_pasted(corpus)
    if not hidden:
        raise RequestError("Hidden units: choose at least one width.")
    allowed = service.settings.distil_tokens
    return Order(
        checkpoint=str(checkpoint),
        corpus=str(corpus),
        hidden=tuple(sorted({min(int(width), 1024) for width in hidden})),
        heads=heads_of(heads),
        seeds=min(max(int(seeds), 1), 10) if isinstance(seeds, int | float) else 3,
        tokens=min(int(tokens or allowed[0]), max(allowed)),
        costs=bool(costs),
    )


def _progress(job: Job, session: str) -> Any:
    if job.state == "done":
        return f"{job.label}: done. It is kept as {job.result}, and shown above."
    if job.state == "stopped":
        return "Stopped; nothing of it is kept."
    if job.state == "failed":
        return problem(job.error, "The heads could not be distilled")
    return progress_bar(job, words.progress(job), session)
