"""A person's own images: uploaded or drawn, and removed."""

from __future__ import annotations

from typing import Any

from dash import Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from app.core.own_images import too_large
from app.pages.images.ids import ids
from app.pages.images.service import Images
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import part, spoken
from app.shell.own_texts import content_of
from app.shell.props import props, stores


def register(app: App, service: Images) -> None:
    """Register what sends a file, and the callback that keeps it; the panel of the images says what is wrong."""
    app.wiring.register(
        app, "shell",
        Browser("sendText", inputs=props("contents", contents=ids.UPLOAD), state=props("filename", file=ids.UPLOAD),
                outputs=stores(sent=ids.SENT), at_first=False),
    )  # fmt: skip

    @app.callback(
        output={
            "own": Output(ids.OWN, "data", allow_duplicate=True),
            "contents": Output(ids.UPLOAD, "contents"),
            "notice": part(ids.PANEL, "notice", allow_duplicate=True),
        },
        inputs={"sent": Input(ids.SENT, "data"), "remove": Input(ids.REMOVE, "n_clicks")},
        state={"own": State(ids.OWN, "data")},
        prevent_initial_call=True,
    )
    def change(sent: Any, remove: Any, own: list[str] | None) -> dict[str, Any]:
        if sent is None and (not remove or ctx.triggered_id != ids.REMOVE):  # a page that is new
            raise PreventUpdate
        images, settings = service.core.images.own, service.core.settings

        def work() -> list[str]:
            if ctx.triggered_id == ids.REMOVE:
                for key in own or ():
                    images.delete(key)
                return []
            content = content_of(sent, lambda n_bytes: too_large(n_bytes, settings))
            key = images.keep(content, str(sent.get("name") or ""))
            others = [each for each in own or () if each != key]
            return [key, *others][: settings.own_images_shown]

        keys, problem = spoken(work, "an image of somebody's own")
        return {"own": no_update if keys is None else keys, "contents": None, "notice": problem}
