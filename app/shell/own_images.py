"""The control of images with classes, and that of a user's own images: upload, draw, remove."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from aotlens.views import Parameter
from aotlens.views.kinds import ImagesParameter
from app.core import Core
from app.core.own_images import too_large
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import part, spoken
from app.shell.own_texts import content_of, send_uploads, upload_button
from app.shell.props import props, stores

#: Pixels of a side of the place to draw in.
_SIDE = 224


def control(id: str, core: Core, parameter: Parameter, value: Any) -> Any:
    """Return a page's choice of images, or the store of the user's own with what fills it."""
    if isinstance(parameter, ImagesParameter):
        return dmc.Select(
            id=id, label=parameter.label, data=core.images.names, value=value, clearable=True, size="xs",
            placeholder=parameter.blank,
        )  # fmt: skip
    most = core.settings.max_image_bytes
    upload = upload_button(id, "Upload an image")
    pad = html.Canvas(
        width=_SIDE, height=_SIDE, className="pad",
        **{"role": "img", "aria-label": "Draw here with a pointer, white on black"},
    )  # fmt: skip
    buttons = [html.Button(words, className="plain-button", **{"data-pad": id}) for words in ("Use it", "Clear")]
    draw = html.Details(
        [html.Summary("Draw one", className="plain-button"), html.Div([pad, *buttons], className="pad-box")],
        className="popover",
    )
    remove = dmc.Button(
        "Remove yours", id=ids.delete(id), n_clicks=0, size="compact-xs", variant="subtle",
        className="" if value else "hidden",
    )  # fmt: skip
    limit = html.Span(f"PNG or JPEG, at most {most / 2**20:g} MB", id=f"{id}-limit")
    held = [dcc.Store(id=id, data=list(value)), dcc.Store(id=ids.uploaded(id))]
    box = html.Div([upload, draw, remove, limit, *held], className="own-text", **{"data-max-bytes": str(most)})
    return html.Div([html.Span(parameter.label, className="field-label field-label-xs"), box])


def register(app: App, panel: str, id: str, most: int) -> None:
    """Register the callbacks of a user's own images, of which `most` are shown; `panel` says what is wrong."""
    send_uploads(app, id)
    removes = props("className", remove=ids.delete(id))
    app.wiring.register(app, "shell", Browser("offerRemoval", inputs=stores(own=id), outputs=removes, listens=True))

    @app.callback(
        output={
            "own": Output(id, "data"),
            "contents": Output(ids.upload(id), "contents"),
            "notice": part(panel, "notice", allow_duplicate=True),
        },
        inputs={"sent": Input(ids.uploaded(id), "data"), "remove": Input(ids.delete(id), "n_clicks")},
        state={"own": State(id, "data")},
        prevent_initial_call=True,
    )
    def change(sent: Any, remove: Any, own: list[str] | None) -> dict[str, Any]:
        removing = ctx.triggered_id == ids.delete(id)
        if sent is None and not (removing and remove):  # a page that is new
            raise PreventUpdate
        images, settings = app.core.images.own, app.core.settings

        def work() -> list[str]:
            if removing:
                for key in own or ():
                    images.delete(key)
                return []
            content = content_of(sent, lambda n_bytes: too_large(n_bytes, settings))
            key = images.keep(content, str(sent.get("name") or ""))
            return [key, *(each for each in own or () if each != key)][:most]

        keys, problem = spoken(work, "an image of a user's own")
        return {"own": no_update if keys is None else keys, "contents": None, "notice": problem}
