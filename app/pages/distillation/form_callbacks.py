"""The Distillation page's form: a new distillation in the background, its progress, its end."""

from __future__ import annotations

from typing import Any

from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.jobs import Job
from app.core.parameters import whole_within
from app.pages.distillation import captions
from app.pages.distillation.address import MAX_RESULTS
from app.pages.distillation.callbacks import result_options
from app.pages.distillation.ids import ids
from app.pages.distillation.service import DistillationRequest, Distillations, heads_of
from app.shell import own_texts
from app.shell.app import App
from app.shell.background import follow_job, kept_as
from app.shell.props import props, stores, values


def register(app: App, service: Distillations) -> None:
    """Register the form's callbacks."""
    own_texts.register(app, ids.FORM, ids.FORM_CORPUS, ids.FORM_PASTED)

    def start(session: str, **form: Any) -> Job:
        return service.start(order_of(service, **form), session=session)

    def done(job: Job, results: list[str] | None) -> dict[str, Any]:
        value = [*(each for each in results or [] if each != job.result), job.result][-MAX_RESULTS:]
        return {"results": value, "options": result_options(service, value), "progress": kept_as(job)}

    follow_job(
        app, service.jobs, ids.FORM, start=start, done=done,
        form=values(checkpoint=ids.FORM_CHECKPOINT, corpus=ids.FORM_CORPUS, hidden=ids.FORM_HIDDEN)
        | values(pasted=ids.FORM_PASTED, heads=ids.FORM_HEADS, seeds=ids.FORM_SEEDS, tokens=ids.FORM_TOKENS)
        | props("checked", costs=ids.FORM_COSTS),
        kept=values(results=ids.RESULTS), output=values(results=ids.RESULTS) | stores(options=ids.RESULTS),
        units=captions.UNITS, failed="The heads could not be distilled",
    )  # fmt: skip


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
) -> DistillationRequest:
    """Read the request from the form. Raises RequestError for what can't be done."""
    if not corpus:
        raise RequestError(captions.NO_CORPUS)
    if corpus == PASTED:
        if not (pasted or "").strip():
            raise RequestError("There is no text to distil on: paste or upload one, or choose a corpus.")
        corpus = service.corpora.paste(pasted or "")
        service.corpora.keep_pasted(corpus)
    if not hidden:
        raise RequestError("Hidden units: choose at least one width.")
    allowed = service.settings.distil_tokens
    return DistillationRequest(
        checkpoint=str(checkpoint),
        corpus=str(corpus),
        hidden=tuple(sorted({min(int(width), 1024) for width in hidden})),
        heads=heads_of(heads),
        seeds=whole_within(seeds, 3, 1, 10),
        tokens=min(int(tokens or allowed[0]), max(allowed)),
        costs=bool(costs),
    )
