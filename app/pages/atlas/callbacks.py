"""Callbacks of the Atlas page: the atlas that is shown, all its heads, one of them closely, a new atlas."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import no_update

from aotlens.plots.atlas import column_title, score_columns
from aotlens.views.atlas import AtlasParameters
from app.core import Core
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.jobs import Job
from app.pages.atlas import captions, summary
from app.pages.atlas.address import AtlasState
from app.pages.atlas.ids import GUIDED, VIEWS, ids
from app.pages.atlas.layout import TOKENS
from app.pages.atlas.service import Atlases, AtlasRequest
from app.pages.atlas.tables import columns_of, head_columns, head_rows
from app.shell import ids as shell
from app.shell import own_texts
from app.shell.app import App
from app.shell.background import follow_job
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons
from app.shell.page import python_of
from app.shell.props import props, stores, values
from app.shell.sharing import mark_head, save_files
from app.shell.views import Own, follow_views, python_lines, show_views, tables


def register(app: App, service: Atlases) -> None:
    """Register the callbacks of the form, of all heads and of one."""
    own_texts.register(app, ids.FORM, ids.CORPUS, ids.PASTED)
    mark_head(app, ids.HEADS, ids.CHOSEN)
    _register_form(app, service)
    _register_choice(app, service)
    core, chosen = service.core, values(where=ids.SEARCH, x=ids.X, y=ids.Y, bin=ids.BIN)
    bins = {"outputs": props("data", bins=ids.BIN) | values(bin=ids.BIN), "empty": {"bins": no_update}}
    panels = {
        ids.TABLE: _own(ids.TABLE, list_heads, parts=("columns", "rows", "caption"), empty={"columns": no_update}),
        ids.SCATTER: VIEWS[ids.SCATTER],
        ids.SHAPLEY: _own(
            ids.SHAPLEY, list_shapley, parts=("figure", "caption", "columns", "rows"), empty={"columns": no_update}
        ),
        ids.SUMMARY: _own(ids.SUMMARY, summary.sentence, parts=("body", "title"), empty={"title": "One head"}),
        ids.EXAMPLES: _own(ids.EXAMPLES, partial(summary.passages, core), parts=("body", "caption"), **bins),
        ids.MOTIFS: _own(ids.MOTIFS, summary.motifs),
        ids.LOSSES: _own(ids.LOSSES, summary.losses),
        ids.PARTNERS: _own(ids.PARTNERS, partial(summary.partners, core)),
    }
    show_views(app, service.workshop, panels, service.values, shown=ids.CHOSEN, keys=ids.DRAWN, inputs=chosen)
    follow_views(app, service.jobs, service.workshop, VIEWS, service.values, shown=ids.CHOSEN)
    slow = {ids.WEIGHTS: _own(ids.WEIGHTS, partial(summary.weights, core))}
    show_views(app, service.workshop, slow, service.values, shown=ids.CHOSEN, keys=ids.WEIGHED, inputs={})
    files = {panel: view for panel, view in VIEWS.items() if panel != ids.SUMMARY}
    save_files(app, tables(service.workshop, files, service.values), stores(shown=ids.CHOSEN) | chosen)


def _own(panel: str, draw: Any, **rest: Any) -> Own:
    return Own(view=VIEWS[panel], draw=draw, **rest)


def list_heads(chosen: AtlasParameters, result: Any) -> dict[str, Any]:
    """Return the heads that are found: the usual columns, and those that the search names."""
    frame = result.to_frame()
    listed = columns_of(frame, *captions.named(chosen.where, frame))
    return {"columns": head_columns(frame, listed), "rows": head_rows(frame, listed), "caption": result.headline}


def list_shapley(chosen: AtlasParameters, result: Any) -> dict[str, Any]:
    """Return the Shapley value of each head beside the loss without it alone, under the name that the atlas has for
    it."""
    frame = result.to_frame()
    frame = frame.assign(loss_position_mean=-frame["last"], hidden=frame["hidden"].map({True: "yes", False: ""}))
    listed = ["loss_position_mean", "shapley", "low", "high", "first", "last", "hidden"]
    first, *columns = head_columns(frame, listed)
    first = {**first, "cellClass": "", "headerTooltip": "Layer and head"}  # a click on it opens nothing here
    return {"columns": [first, *columns], "rows": head_rows(frame, listed)}


@python_of(*(panel for panel in VIEWS if panel != ids.SUMMARY), *GUIDED)
def python(core: Core, service: Atlases, state: AtlasState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    return python_lines({**VIEWS, **GUIDED}[panel], service.of_address(state))


def _register_form(app: App, service: Atlases) -> None:
    def start(session: str, **form: Any) -> Job:
        return service.start(order_of(service, **form), session=session)

    def done(job: Job) -> dict[str, Any]:
        return {"made": job.key}

    follow_job(
        app, service.jobs, ids.FORM, start=start, done=done,
        form=values(checkpoint=ids.CHECKPOINT, corpus=ids.CORPUS, pasted=ids.PASTED, tokens=ids.TOKENS),
        output=stores(made=ids.MADE), units={"measuring heads": "steps"}, failed="The atlas could not be made",
    )  # fmt: skip


def _register_choice(app: App, service: Atlases) -> None:
    @guarded(
        app,
        panel=ids.FORM,
        inputs=values(checkpoint=ids.CHECKPOINT) | stores(made=ids.MADE),
        state=stores(asked=ids.ASKED, before=ids.SHOWN),
        output=stores(shown=ids.SHOWN, buttons=shell.drawn(ids.HEADS)) | props("data", xs=ids.X, ys=ids.Y),
        parts=("body",),
        empty=dict.fromkeys(("buttons", "xs", "ys"), no_update),
        shares_notice=True,
    )
    def choose(checkpoint: str | None, made: str | None, asked: Any, before: Any) -> Answer:
        if checkpoint is None:
            return None
        choice = service.choose(checkpoint, asked["corpus"], made)
        result = service.shown(choice)
        d_mlp = service.core.catalog.config(checkpoint).get("d_mlp")
        mlps = [captions.mlps(checkpoint, d_mlp)] if d_mlp else []
        if choice is None or result is None:
            service.core.catalog.need_text(checkpoint)  # of a model of images none can be made
            return {"shown": None, "body": " ".join([captions.none_yet(checkpoint), *mlps])}
        options = [{"value": name, "label": column_title(name)} for name in score_columns(result.atlas.to_frame())]
        sentences = [*captions.shown(result), *mlps]
        if asked["corpus"] is not None and result.corpus is None:
            sentences.append(captions.gone(checkpoint, asked["corpus"]))
        shape = choice["layers"], choice["heads"]
        same = before is not None and (before["layers"], before["heads"]) == shape
        return {
            "shown": choice, "xs": options, "ys": options, "body": " ".join(sentences),
            "buttons": no_update if same else head_buttons(*shape),
        }  # fmt: skip


def order_of(service: Atlases, checkpoint: Any, corpus: Any, pasted: str | None, tokens: Any) -> AtlasRequest:
    """Read the request from the form. Raises RequestError for what can't be done."""
    corpora = service.core.corpora
    if corpus == PASTED:
        if not (pasted or "").strip():
            raise RequestError("There is no text to read: paste or upload one, or choose a corpus.")
        corpus = corpora.paste(pasted or "")
        corpora.keep_pasted(corpus)
    return AtlasRequest(
        checkpoint=str(checkpoint), corpus=str(corpus), tokens=min(int(tokens or TOKENS[0]), max(TOKENS))
    )
