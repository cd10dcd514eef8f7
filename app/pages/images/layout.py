"""The Images page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.pages.images import captions, explanations
from app.pages.images.address import ImagesState
from app.pages.images.ids import ids
from app.pages.images.service import NO_MODEL, ImageViews
from app.shell import ids as shell
from app.shell.background import stop_bar
from app.shell.controls import labelled, link_button, slider, switch_of
from app.shell.drawn import drawn
from app.shell.graph import caption
from app.shell.notices import empty
from app.shell.panel import panel, tabs

#: Pixels a side of the place to draw in.
_CANVAS = 224


def layout(core: Core, service: ImageViews, state: ImagesState) -> html.Div:
    """The page for an address; with nothing in it, the first model of images on what it was trained on."""
    checkpoint = state.checkpoint or core.catalog.default_of_images()
    stores = {
        ids.START: state.start, ids.OWN: list(state.own), ids.SENT: None, ids.SHOWN: None, ids.IMAGE: state.image,
        ids.HEAD: state.head, ids.PATCH: None if state.patch is None else list(state.patch),
        ids.OFF: [list(one) for one in state.off], ids.RANKING: None, ids.PICKED: None,
    }  # fmt: skip
    sections = {
        "maps": ("Maps", _maps_panel(core)),
        "paths": ("Paths", _paths_panel(state)),
        "predictions": ("Predictions", _predictions_panel()),
        "consistency": ("Consistency", _consistency_panel()),
    }
    columns = html.Div(
        [_grid_panel(core, state, checkpoint), tabs(ids.TABS, state.tab, sections, label="Of one image and of all")],
        id=ids.COLUMNS,
        className="images-columns",
        **{"data-empty": "" if checkpoint else "no model"},
    )
    return html.Div(
        [
            html.H1("Images", className="sr-only"),
            *(dcc.Store(id=name, data=data) for name, data in stores.items()),
            _images_panel(core, state, checkpoint),
            columns,
        ],
        id=ids.PAGE,
        className="images-page",
    )


def _images_panel(core: Core, state: ImagesState, checkpoint: str | None) -> html.Section:
    models = [info.name for info in core.catalog.list() if core.catalog.reads_images(info)]
    small: dict[str, Any] = {"size": "xs", "allowDeselect": False}
    choice = [
        dmc.Select(id=ids.CHECKPOINT, label="Checkpoint", data=models, value=checkpoint, w=200, **small),
        dmc.Select(id=ids.DATA, label="Images", data=core.images.names, value=state.data, w=160, **small),
        dmc.Select(
            id=ids.OF, label="Class", data=[], value=None if state.of is None else str(state.of), clearable=True,
            placeholder="all, in turn", w=150, size="xs",
        ),
        dmc.ButtonGroup(
            [
                dmc.Button(text, id=name, n_clicks=0, size="xs", variant="default")
                for text, name in (("Earlier", ids.EARLIER), ("Later", ids.LATER))
            ]
        ),
        _own_images(core),
        link_button(ids.OPEN_CARD, "Its card", core.links.to("checkpoints")),
    ]  # fmt: skip
    content = [
        html.Div(choice, className="images-choice"),
        caption(ids.PANEL),
        *([] if models else [empty(NO_MODEL)]),
    ]
    return panel(ids.PANEL, "Images", explanations.PANEL, content)


def _own_images(core: Core) -> html.Div:
    most = core.settings.max_image_bytes
    upload = dcc.Upload(
        dmc.Button("Upload an image", size="xs", variant="default", **{"aria-describedby": "images-limit"}),
        id=ids.UPLOAD, multiple=False, className="own-upload", style={}, style_active={},
    )  # fmt: skip
    canvas = html.Canvas(
        id=ids.CANVAS, width=_CANVAS, height=_CANVAS, className="images-canvas",
        **{"role": "img", "aria-label": "Draw here with a pointer, white on black"},
    )  # fmt: skip
    buttons = [
        html.Button("Look at it", id=ids.USE, className="plain-button"),
        html.Button("Clear", id=ids.CLEAR, className="plain-button"),
    ]
    return html.Div(
        [
            html.Div(
                [
                    upload,
                    html.Details(
                        [html.Summary("Draw one", className="plain-button"),
                         html.Div([canvas, html.Div(buttons, className="images-drawn")], className="images-drawing")],
                        id=ids.DRAW, className="images-draw",
                    ),
                    dmc.Button(
                        "Remove yours", id=ids.REMOVE, n_clicks=0, size="xs", variant="subtle", className="hidden"
                    ),
                ],
                className="images-own",
            ),
            html.Span(f"PNG or JPEG, at most {most / 2**20:g} MB", id="images-limit", className="images-limit"),
        ],
        **{"data-max-bytes": str(most)},
    )  # fmt: skip


def _grid_panel(core: Core, state: ImagesState, checkpoint: str | None) -> html.Section:
    last = (core.catalog.shape(checkpoint) or (1, 1))[0] - 1
    views = {"attention": "Attention", "weighted": "Value-weighted"}
    orders = {"consistent": "Most consistent first", "number": "By number"}
    controls = [
        switch_of(ids.VIEW, "What the maps show", state.view, views),
        switch_of(ids.ORDER, "Order of the heads", state.order, orders),
    ]
    how = dmc.Select(
        id=ids.HOW, data=[{"value": name, "label": label} for name, label in captions.STAND_INS.items()],
        value=state.how, allowDeselect=False, size="xs", w=200, **{"aria-label": "What stands in their place"},
    )  # fmt: skip
    off = [
        html.Span(className="off-says", role="status"),
        html.Span("· ablate by"),
        how,
        dmc.Button("All on", id=ids.ALL_ON, n_clicks=0, size="compact-xs", variant="default", className="all-on"),
    ]
    picture = html.Img(id=ids.GRID_PICTURE, src="", alt="", className="images-sprite", draggable="false")
    content = [
        html.Div(
            [
                slider(ids.LAYER, "Layer", min(state.layer, last), 0, max(last, 1), 1, disabled=last == 0),
                html.Div(off, id=ids.OFF_LINE, className="images-off"),
            ],
            className="images-above",
        ),
        html.Div(
            [
                html.Div([picture, drawn(ids.CELLS, "images-cells", "Heads and images", **{"data-switches": ids.OFF})],
                         className="images-maps"),
                drawn(ids.GALLERY, "images-gallery", "Images"),
            ],
            className="images-grid",
        ),
    ]  # fmt: skip
    return panel(
        ids.GRID, "Heads × images", explanations.GRID, content, controls=controls, exports=("png", "npz", "python")
    )


def _maps_panel(core: Core) -> html.Section:
    content = [caption(ids.MAPS), drawn(ids.PICTURES, "images-pictures", "Maps of one image")]
    link = link_button(ids.OPEN_CIRCUITS, "The head's circuits", core.links.to("circuits"))
    return panel(
        ids.MAPS, "One image", explanations.MAPS, content, controls=link, exports=("csv", "python"), follows=ids.PICKED
    )


def _paths_panel(state: ImagesState) -> html.Section:
    target = dmc.Select(
        id=ids.TARGET, data=[], value=None if state.target is None else str(state.target), clearable=True, size="xs",
        placeholder="the predicted class", w=170, **{"aria-label": "Class whose logit is taken apart"},
    )  # fmt: skip
    content = [
        html.Div(id=shell.body(ids.PATHS), className="images-sums", role="status"),
        html.Img(id=ids.PATHS_PICTURE, src="", alt="", className="images-large", draggable="false"),
    ]
    return panel(
        ids.PATHS, "What patches add to a class", explanations.PATHS, content,
        controls=labelled("Class", target, size="xs"), exports=("png", "csv", "python"), follows=ids.PICKED,
    )  # fmt: skip


def _predictions_panel() -> html.Section:
    content = [caption(ids.PREDICTIONS), html.Div(id=shell.body(ids.PREDICTIONS), className="images-table", tabIndex=0)]
    exports = ("csv", "python")
    return panel(ids.PREDICTIONS, "Predictions", explanations.PREDICTIONS, content, exports=exports, follows=ids.PICKED)


def _consistency_panel() -> html.Section:
    ranked = drawn(ids.RANKED, "images-ranked", "Heads, the most consistent first")
    again = dmc.Button(
        "Measure", id=shell.start(ids.CONSISTENCY), n_clicks=0, size="compact-sm", variant="default", className="hidden"
    )
    content = [stop_bar(ids.CONSISTENCY, again), caption(ids.CONSISTENCY), ranked]
    return panel(ids.CONSISTENCY, "Consistency of heads", explanations.CONSISTENCY, content, exports=("csv", "python"))
