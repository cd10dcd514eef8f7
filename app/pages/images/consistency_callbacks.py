"""Consistency on the Images page: measured in the background once images are shown, followed, stopped, begun again."""

from __future__ import annotations

from typing import Any

from dash import ctx, no_update

from app.core import sessions
from app.core.jobs import Job
from app.pages.images import captions, elements
from app.pages.images.ids import ids
from app.pages.images.request import ImageRequest
from app.pages.images.service_consistency import UNITS, Consistencies
from app.shell import ids as shell
from app.shell.app import App
from app.shell.background import said
from app.shell.callbacks import Answer, guarded
from app.shell.props import children, props, stores

_NOTHING: dict[str, Any] = {"ranking": None, "ranked": [], "caption": None}


def register(app: App, service: Consistencies) -> None:
    """The callback that starts, follows and stops the measurement, and shows what came of it."""

    @guarded(
        app,
        panel=ids.CONSISTENCY,
        inputs=stores(shown=ids.SHOWN)
        | props("n_clicks", start=shell.start(ids.CONSISTENCY), stop=shell.stop(ids.CONSISTENCY))
        | props("n_intervals", ticks=shell.timer(ids.CONSISTENCY)),
        output=stores(ranking=ids.RANKING, ranked=shell.drawn(ids.RANKED))
        | children(progress=shell.progress(ids.CONSISTENCY))
        | props("className", begin=shell.start(ids.CONSISTENCY), end=shell.stop(ids.CONSISTENCY))
        | props("disabled", timer=shell.timer(ids.CONSISTENCY)),
        parts=("caption",),
        empty={"begin": "hidden", "end": "hidden", "timer": True},
    )
    def follow(shown: Any, **_: Any) -> Answer:
        if shown is None:
            return None
        asked, session = ImageRequest.from_dict(shown), sessions.current()
        # A click may come together with a tick.
        clicked = set(ctx.triggered_prop_ids.values())
        job = service.job(asked)
        ticked = shell.timer(ids.CONSISTENCY) in clicked
        if shell.stop(ids.CONSISTENCY) in clicked:
            service.jobs.stop(session)
        elif shell.start(ids.CONSISTENCY) in clicked or (not ticked and (job is None or job.active)):
            job = service.start(asked, session)
        if job is None:  # what was measured long ago, and is kept no more
            job = service.start(asked, session)
        return answer(asked, job, session, anew=not ticked)


def answer(asked: ImageRequest, job: Job, session: str, *, anew: bool) -> dict[str, Any]:
    """What is shown of a job that is under way or has ended; `anew` where other images were shown before."""
    told = {
        "progress": said(job, session, UNITS, "Consistency can't be measured"),
        "begin": "" if job.state in ("stopped", "failed") else "hidden",
        "end": "" if job.active and session in job.sessions and not job.stop else "hidden",
        "timer": not job.active,
    }
    if job.state != "done":
        return told | (_NOTHING if anew else dict.fromkeys(_NOTHING, no_update))
    found = job.result
    return {
        **told,
        "ranking": {
            "checkpoint": asked.checkpoint,
            "data": asked.data,
            "heads": [list(head) for head in found.ranking()],
        },
        "ranked": elements.consistency_table(found),
        "caption": captions.of_consistency(found, asked.data),
    }
