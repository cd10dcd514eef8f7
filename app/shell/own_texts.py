"""A user's texts next to a choice of texts: upload a file, paste, delete."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, ctx, dcc, html, no_update
from flask import Flask, Response, request

from aotlens.files import WriteError
from aotlens.views import Parameter
from app.core import Core
from app.core.corpora import PASTED, Corpora
from app.core.errors import RequestError, not_kept
from app.core.own_texts import too_large
from app.core.settings import Settings
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import part, spoken
from app.shell.props import props, stores, values

#: A field in a browser's tab (static/address.js).
_OWNER = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)


def serve(server: Flask, core: Core) -> None:
    """Keep a text that is sent, and answer what an address says of it (static/address.js)."""

    @server.post("/texts")
    def keep() -> Response:
        text = request.get_data(cache=False).decode("utf-8", errors="replace")
        if len(text) > core.settings.max_pasted:
            return Response(status=413)
        owner = request.headers.get("X-Owner", "")
        try:
            address = core.corpora.addressed(text, owner if _OWNER.fullmatch(owner) else "")
        except WriteError as error:
            return Response(not_kept(error), status=507, mimetype="text/plain")
        return Response(address, mimetype="text/plain")


def text_field(id: str, core: Core, parameter: Parameter, value: str | None) -> html.Div:
    """Return a page's choice of a text, none of which is the default, with upload, delete, and a box whose text is kept
    before it is chosen."""
    choice = dmc.Select(
        id=id, label=parameter.label, placeholder=parameter.blank, data=_choices(core.corpora), value=value,
        clearable=True, size="xs",
    )  # fmt: skip
    return html.Div([choice, _own_text(id, core.settings)], className="text-field")


def _choices(corpora: Corpora) -> list[dict[str, str]]:
    return [*corpora.choices(), {"value": PASTED, "label": PASTED}]


def _own_text(choice: str, settings: Settings) -> html.Div:
    """Lay out upload, delete, and the box to paste into, with the button that keeps its text, for the choice of that
    id."""
    most, pasted = settings.max_text_bytes, ids.pasted(choice)
    box = dmc.Textarea(
        id=pasted, label="Your text", placeholder="Paste a text: a few pages or more", value="", minRows=3,
        maxRows=6, autosize=True, size="xs", spellCheck=False, debounce=500,
    )  # fmt: skip
    keep = dmc.Button("Use this text", id=ids.keep(choice), n_clicks=0, size="compact-xs")
    remove = dmc.Button(
        "Delete this text", id=ids.delete(choice), n_clicks=0, size="compact-xs", variant="subtle", className="hidden"
    )
    return html.Div(
        [
            html.Div(
                [upload_button(choice, "Upload a text"),
                 html.Span(f"UTF-8, at most {most / 2**20:g} MB; kept on this machine", id=f"{choice}-limit"),
                 remove, dcc.Store(id=ids.uploaded(choice))],
                className="own-text", **{"data-max-bytes": str(most)},
            ),
            html.Div([box, keep], id=ids.box(pasted), className="own-pasted hidden"),
        ]
    )  # fmt: skip


def register(app: App, panel: str, choice: str) -> None:
    """Register the callbacks of a `text_field`; `panel` says what is wrong."""
    pasted = ids.pasted(choice)
    send_uploads(app, choice)
    app.wiring.register(
        app, "shell",
        Browser("chooseText", inputs=values(text=choice),
                outputs=props("className", box=ids.box(pasted), remove=ids.delete(choice)), listens=True),
    )  # fmt: skip

    @app.callback(
        output={
            "choices": Output(choice, "data"),
            "chosen": Output(choice, "value"),
            "contents": Output(ids.upload(choice), "contents"),
            "notice": part(panel, "notice", allow_duplicate=True),
        },
        inputs={
            "file": Input(ids.uploaded(choice), "data"),
            "delete": Input(ids.delete(choice), "n_clicks"),
            "keep": Input(ids.keep(choice), "n_clicks"),
        },
        state={"chosen": State(choice, "value"), "pasted": State(pasted, "value")},
        prevent_initial_call=True,
    )
    def change(file: Any, delete: Any, keep: Any, chosen: str | None, pasted: str | None) -> dict[str, Any]:
        def large(n_bytes: int) -> str:
            return too_large(n_bytes, app.core.settings)

        corpora, deleting = app.core.corpora, ctx.triggered_id == ids.delete(choice)

        def work() -> str | None:
            if deleting:
                corpora.own.delete(chosen)
                return None
            if ctx.triggered_id == ids.keep(choice):
                return corpora.keep(pasted or "")
            return corpora.own.keep(str(file.get("name") or ""), content_of(file, large)).key

        value, problem = spoken(work, f"a text for {choice}")
        if problem is not None:
            return {"choices": no_update, "chosen": no_update, "contents": None, "notice": problem}
        return {"choices": _choices(corpora), "chosen": value, "contents": None, "notice": None}


def upload_button(id: str, words: str) -> dcc.Upload:
    """Lay out the button that uploads a file for the control `id`, described by the text `id`-limit."""
    return dcc.Upload(
        dmc.Button(words, size="compact-xs", variant="default", **{"aria-describedby": f"{id}-limit"}),
        id=ids.upload(id), multiple=False, className="own-upload", style={}, style_active={},
    )  # fmt: skip


def send_uploads(app: App, id: str) -> None:
    """Let the browser send files that are uploaded for the control `id` to the store `ids.uploaded(id)`."""
    sends = Browser(
        "sendText", inputs=props("contents", contents=ids.upload(id)), state=props("filename", file=ids.upload(id)),
        outputs=stores(sent=ids.uploaded(id)), at_first=False, listens=True,
    )  # fmt: skip
    app.wiring.register(app, "shell", sends)


def content_of(file: dict[str, Any], refused: Callable[[int], str]) -> bytes:
    """Return the bytes of an uploaded file, `data:…;base64,…`; of one that is too large, the browser sends the size
    only, and `refused` says what is said of it."""
    if "bytes" in file:
        raise RequestError(refused(int(file["bytes"])))
    try:
        return base64.b64decode(str(file.get("contents") or "").partition(",")[2], validate=True)
    except binascii.Error as error:
        raise RequestError("The file did not arrive whole: upload it again.") from error
