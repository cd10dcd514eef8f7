"""What the Atlas page asks of the server: which atlas, all heads as a table and as points, a new atlas."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import no_update

from aotlens.plots import Theme
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.files import File
from app.core.jobs import Job
from app.pages.atlas import files, words
from app.pages.atlas.figures import scatter
from app.pages.atlas.ids import LISTS, ids
from app.pages.atlas.layout import TOKENS
from app.pages.atlas.service import Atlases, Made, Order
from app.pages.atlas.tables import columns_of, head_columns, head_rows
from app.shell import ids as shell
from app.shell import own_texts
from app.shell.app import App
from app.shell.background import follow_job
from app.shell.callbacks import Answer, guarded
from app.shell.props import props, stores, values
from app.shell.sharing import save_files, when_seen


def register(app: App, service: Atlases) -> None:
    """The callbacks of the form and of the lists of heads."""
    own_texts.register(app, ids.FORM, ids.CORPUS, ids.PASTED)
    when_seen(app, ids.SHOWN, LISTS)
    _register_form(app, service)
    _register_choice(app, service)
    of_atlas = partial(guarded, app, reads={"made": service.shown})

    @of_atlas(
        panel=ids.TABLE,
        inputs=stores(made=shell.seen(ids.TABLE)) | values(where=ids.SEARCH),
        parts=("columns", "rows", "caption"),
        empty={"columns": no_update},  # they stay while a search is put right
    )
    def list_heads(made: Made, where: str | None) -> Answer:
        frame, found = service.frame(made), service.found(made, where)
        listed = columns_of(frame, *words.named(where, frame))
        return {
            "columns": head_columns(frame, listed),
            "rows": head_rows(frame[found], listed),
            "caption": words.listed(int(found.sum()), len(frame)),
        }

    @of_atlas(
        panel=ids.SCATTER,
        inputs=stores(made=shell.seen(ids.SCATTER), theme=shell.THEME, head=ids.HEAD)
        | values(where=ids.SEARCH, x=ids.X, y=ids.Y),
        parts=("figure",),
    )
    def draw(made: Made, where: str | None, x: str, y: str, head: list[int] | None, theme: Theme) -> Answer:
        try:
            service.found(made, where)
        except RequestError:
            where = None  # said beside the search
        return {"figure": scatter(service, made, x, y, where, (head[0], head[1]) if head else None, theme)}

    save_files(
        app,
        {shell.export(panel, "csv"): partial(make_file, service, panel) for panel in LISTS},
        stores(shown=ids.SHOWN) | values(where=ids.SEARCH),
    )


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
        state=stores(asked=ids.ASKED),
        output=stores(shown=ids.SHOWN) | props("data", xs=ids.X, ys=ids.Y),
        parts=("body",),
        empty={"xs": no_update, "ys": no_update},
        shares_notice=True,
    )
    def choose(checkpoint: str | None, made: str | None, asked: Any) -> Answer:
        if checkpoint is None:
            return None
        choice = service.choose(checkpoint, asked["corpus"], made)
        shown = service.shown(choice)
        d_mlp = service.core.catalog.config(checkpoint).get("d_mlp")
        mlps = [words.mlps(checkpoint, d_mlp)] if d_mlp else []
        if choice is None or shown is None:
            service.core.catalog.need_text(checkpoint)  # of a model of images none can be made
            return {"shown": None, "body": " ".join([words.none_yet(checkpoint), *mlps])}
        options = [{"value": name, "label": words.title(name)} for name in service.scores(shown)]
        said = [*words.shown(shown), *mlps]
        if asked["corpus"] is not None and shown.corpus is None:
            said.append(words.gone(checkpoint, asked["corpus"]))
        return {"shown": choice, "xs": options, "ys": options, "body": " ".join(said)}


def order_of(service: Atlases, checkpoint: Any, corpus: Any, pasted: str | None, tokens: Any) -> Order:
    """What the form says. Raises RequestError for what can't be done."""
    corpora = service.core.corpora
    if corpus == PASTED:
        if not (pasted or "").strip():
            raise RequestError("There is no text to read: paste or upload one, or choose a corpus.")
        corpus = corpora.paste(pasted or "")
        corpora.keep_pasted(corpus)
    return Order(checkpoint=str(checkpoint), corpus=str(corpus), tokens=min(int(tokens or TOKENS[0]), max(TOKENS)))


def make_file(service: Atlases, panel: str, shown: Any, where: str | None) -> File:
    """The file for an entry of an export menu."""
    made = service.shown(shown)
    if made is None:
        raise RequestError("There is no atlas here to save: make one first.")
    return files.heads_csv(service, made, where)
