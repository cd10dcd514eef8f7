"""The tab in which a text is continued, with and without the heads that are switched off."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from app.core import Core
from app.core.address_values import dotted
from app.core.errors import RequestError
from app.core.files import File, json_file
from app.core.jobs import Job
from app.pages.heads.address import HeadsState
from app.pages.heads.asking import ask_without, says_ablated
from app.pages.heads.browser import DRAWS, SWITCHED
from app.pages.heads.continuations import Continuations, Continued, draws_of
from app.pages.heads.ids import ids
from app.shell import ids as shell
from app.shell.app import App
from app.shell.background import follow_job, job_bar
from app.shell.controls import whole_number
from app.shell.notices import empty
from app.shell.panel import about, panel
from app.shell.props import stores
from app.shell.sharing import save_files

#: Milliseconds from one look at the tokens to the next.
_EVERY = 300
_EXPLAIN = about(
    "The next token is drawn from what the model expects after the last, appended, and so on; beside it the same, from "
    "the same seed, with the heads that are ablated in the grid. Temperature 0 takes the likeliest token. A "
    "masked language model continues nothing: it fills each <|mask|> of the text, from left to right.",
    formula="p = softmax(logits ÷ temperature), over the k largest",
    source="Attention-only transformers, Algorithm 10",
)


def continue_panel(state: HeadsState) -> html.Section:
    """Lay out the form, how far it is, and both texts."""
    small: dict[str, Any] = {"size": "xs", "w": 88}
    form = [
        whole_number(ids.NEW, "New tokens", state.new, 1, 400, **small),
        dmc.NumberInput(
            id=ids.TEMPERATURE, label="Temperature", value=state.temperature, min=0, max=10, step=0.1, debounce=300,
            clampBehavior="blur", **small,
        ),
        whole_number(ids.TOP_K, "Top k", state.top_k, 1, 100_000, **small),
        whole_number(ids.SEED, "Seed", state.seed, 0, 999_999, **small),
        dmc.TextInput(
            id=ids.STOP, label="Stop token", value=state.stop or "", placeholder="none", debounce=300, **small
        ),
        dmc.Button("Run", id=shell.start(ids.CONTINUE), n_clicks=0, size="xs"),
    ]  # fmt: skip
    content = [
        html.Div(form, className="continue-form"),
        job_bar(ids.CONTINUE, every=_EVERY),
        html.Div(
            empty("There is no continuation yet: press Run."),
            id=shell.body(ids.CONTINUE), className="continued", tabIndex=0,
        ),
    ]  # fmt: skip
    return panel(ids.CONTINUE, "Continue the text", _EXPLAIN, content, exports=("json", "python"))


def register(app: App, core: Core, service: Continuations) -> None:
    """Register the callback that starts, follows and stops, and the file of what came of it."""
    form = stores(prompt=ids.PROMPT) | SWITCHED | DRAWS

    def start(session: str, prompt: Any, off: Any, how: Any, corpus: Any, **draws: Any) -> Job:
        return service.start(ask_without(core, prompt, off, how, corpus), draws_of(**draws), session)

    def shown(job: Job) -> dict[str, Any]:
        continued = service.so_far(job)
        return {} if continued is None or not continued.runs else {"body": texts(service, continued)}

    follow_job(
        app, service.jobs, ids.CONTINUE, form=form, start=start, done=shown, meanwhile=shown, units="tokens",
        failed="The text can't be continued", parts=("body",),
    )  # fmt: skip

    def saved(watched: str | None) -> File:
        job = service.jobs.get(watched) if watched else None
        continued = None if job is None else service.so_far(job)
        if continued is None or not continued.runs:
            raise RequestError("Nothing has been continued yet: press Run first.")
        return continued_json(service, continued)

    save_files(app, {shell.export(ids.CONTINUE, "json"): saved}, stores(watched=shell.watched(ids.CONTINUE)))


def texts(service: Continuations, continued: Continued) -> list[html.Section]:
    """Lay out both texts beside each other; what is new is marked."""
    titles = ["Full model", *([says_ablated(continued.of)] if continued.of.off else [])]
    return [
        html.Section(
            [
                html.H3(title, className="table-heading"),
                html.P(
                    [html.Mark(text) if is_new else html.Span(text) for text, is_new in service.pieces(continued, run)],
                    className="continued-text",
                ),
            ]
        )
        for run, title in enumerate(titles[: len(continued.runs)])
    ]


def continued_json(service: Continuations, continued: Continued) -> File:
    """Write what went in, and both texts with their tokens."""
    draws = vars(continued.draws)
    runs = {
        name: {"text": service.text(continued, run), "tokens": continued.runs[run]}
        for run, name in enumerate(("whole", "without")[: len(continued.runs)])
    }
    of = continued.of
    content = {
        "checkpoint": of.checkpoint,
        "off": [dotted(head) for head in of.off],
        "how": of.how,
        **draws,
        **runs,
    }
    return json_file(f"{of.checkpoint}-continued.json", content)
