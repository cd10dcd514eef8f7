"""Texts of one's own beside a choice of texts: upload a file, paste, delete."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, ctx, dcc, html, no_update
from flask import Flask, Response, request

from app.core import Core
from app.core.corpora import PASTED, Corpora
from app.core.errors import RequestError
from app.core.own_texts import too_large
from app.core.settings import Settings
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import part, spoken
from app.shell.props import props, stores, values


def serve(server: Flask, core: Core) -> None:
    """Keep a text that is sent, and answer what an address says of it (static/address.js)."""

    @server.post("/texts")
    def keep() -> Response:
        text = request.get_data(cache=False).decode("utf-8", errors="replace")
        if len(text) > core.settings.max_pasted:
            return Response(status=413)
        return Response(core.corpora.addressed(text), mimetype="text/plain")


def text_choice(id: str, corpora: Corpora, value: str | None, **rest: Any) -> dmc.Select:
    """Return the server's texts, one's own, and what is pasted below."""
    data = [*corpora.choices(), {"value": PASTED, "label": PASTED}]
    return dmc.Select(id=id, label="Text", data=data, value=value or PASTED, allowDeselect=False, **rest)


def own_text(choice: str, pasted: str, settings: Settings, value: str = "") -> html.Div:
    """Draw upload, delete, and the box to paste into (`value` is there at first), for the `text_choice` of that id."""
    most = settings.max_text_bytes
    upload = dcc.Upload(
        dmc.Button("Upload a text", size="compact-xs", variant="default", **{"aria-describedby": f"{choice}-limit"}),
        id=ids.upload(choice), multiple=False, className="own-upload", style={}, style_active={},
    )  # fmt: skip
    box = dmc.Textarea(
        id=pasted, label="Your text", placeholder="Paste a text: a few pages or more", value=value, minRows=3,
        maxRows=6, autosize=True, size="xs", spellCheck=False, debounce=500,
    )  # fmt: skip
    remove = dmc.Button(
        "Delete this text", id=ids.delete(choice), n_clicks=0, size="compact-xs", variant="subtle", className="hidden"
    )
    return html.Div(
        [
            html.Div(
                [upload, html.Span(f"UTF-8, at most {most / 2**20:g} MB; kept on this machine", id=f"{choice}-limit"),
                 remove, dcc.Store(id=ids.uploaded(choice))],
                className="own-text", **{"data-max-bytes": str(most)},
            ),
            html.Div(box, id=ids.box(pasted), className="own-pasted hidden"),
        ]
    )  # fmt: skip


def register(app: App, panel: str, choice: str, pasted: str) -> None:
    """Register the callbacks of `own_text`; `panel` says what is wrong."""
    app.wiring.register(
        app, "shell",
        Browser("sendText", inputs=props("contents", contents=ids.upload(choice)),
                state=props("filename", file=ids.upload(choice)), outputs=stores(sent=ids.uploaded(choice)),
                at_first=False, listens=True),
    )  # fmt: skip
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
        inputs={"file": Input(ids.uploaded(choice), "data"), "delete": Input(ids.delete(choice), "n_clicks")},
        state={"chosen": State(choice, "value")},
        prevent_initial_call=True,
    )
    def change(file: Any, delete: Any, chosen: str | None) -> dict[str, Any]:
        def large(n_bytes: int) -> str:
            return too_large(n_bytes, app.core.settings)

        corpora, deleting = app.core.corpora, ctx.triggered_id == ids.delete(choice)

        def work() -> str | None:
            if deleting:
                corpora.own.delete(chosen)
                return corpora.chosen(None) or PASTED
            return corpora.own.keep(str(file.get("name") or ""), content_of(file, large)).key

        value, problem = spoken(work, f"a text for {choice}")
        if value is None:
            return {"choices": no_update, "chosen": no_update, "contents": None, "notice": problem}
        data = [*corpora.choices(), {"value": PASTED, "label": PASTED}]
        return {"choices": data, "chosen": value, "contents": None, "notice": None}


def content_of(file: dict[str, Any], refused: Callable[[int], str]) -> bytes:
    """Return the bytes of an uploaded file, `data:…;base64,…`; of one that is too large, the browser sends the size
    only, and `refused` says what is said of it."""
    if "bytes" in file:
        raise RequestError(refused(int(file["bytes"])))
    try:
        return base64.b64decode(str(file.get("contents") or "").partition(",")[2], validate=True)
    except binascii.Error as error:
        raise RequestError("The file did not arrive whole: upload it again.") from error
