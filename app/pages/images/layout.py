"""The Images page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.image_captions import HOWS
from app.core import Core
from app.pages.images.address import ImagesState
from app.pages.images.ids import VIEWS, ids
from app.pages.images.service import NO_MODEL, Images
from app.shell.controls import labelled, link_button, slider, switch_of
from app.shell.drawn import drawn
from app.shell.graph import caption
from app.shell.notices import empty
from app.shell.panel import about, panel, tabs
from app.shell.tables import value_tables
from app.shell.views import about_view, start_bar

_FILES = ("csv", "json", "python")
_ABOUT = about(
    "Images of the data's test set, on which aotlens trains nothing, one of each class in turn; yours come first. "
    "Below each stands what the full model predicts, and with what probability; ✗ marks a wrong prediction, before the "
    "image's own class. A PNG or JPEG that you upload, or a drawing, is kept on the machine that runs the app, scaled "
    "down and without anything but its pixels; its middle square goes to the model. The address in your browser holds "
    "everything you choose here."
)
#: Pixels a side of the place to draw in.
_CANVAS = 224


def layout(core: Core, service: Images, state: ImagesState) -> html.Div:
    """Return the page for an address; with nothing in it, the first model of images on what it was trained on."""
    checkpoint = state.checkpoint or core.catalog.default_of_images()
    stores = {
        ids.START: state.start, ids.OWN: list(state.own), ids.IMAGE: state.image, ids.HEAD: [state.layer, state.head],
        ids.OFF: [list(head) for head in state.off], ids.PATCH: None if state.patch is None else list(state.patch),
        **dict.fromkeys((ids.SENT, ids.CHOSEN, ids.SHOWN, ids.ADDED, ids.TAKEN, ids.MEASURED, ids.RANKING)),
        **dict.fromkeys((ids.DRAWN, ids.RANKED_OF)),
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
                for text, name in (("Previous", ids.PREVIOUS), ("Next", ids.NEXT))
            ]
        ),
        _own_images(core),
        link_button(ids.OPEN_CARD, "Model card", core.links.to("checkpoints")),
    ]  # fmt: skip
    content = [
        html.Div(choice, className="images-choice"),
        caption(ids.PANEL),
        *([] if models else [empty(NO_MODEL)]),
    ]
    return panel(ids.PANEL, "Images", _ABOUT, content, follows=ids.CHOSEN, always=True)


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
        html.Button("Use it", id=ids.USE, className="plain-button"),
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
        switch_of(ids.VIEW, "Quantity shown in the maps", state.view, views),
        switch_of(ids.ORDER, "Order of the heads", state.order, orders),
    ]
    how = dmc.Select(
        id=ids.HOW, data=[{"value": name, "label": label} for name, label in HOWS.items()], value=state.how,
        allowDeselect=False, size="xs", w=200, **{"aria-label": "Replace head output with"},
    )  # fmt: skip
    off = [
        html.Span(className="off-says", role="status"),
        html.Span("· ablate by"),
        how,
        dmc.Button("Ablate none", id=ids.ALL_ON, n_clicks=0, size="compact-xs", variant="default", className="all-on"),
    ]
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
                html.Div(
                    id=ids.GRID_CELLS, className="images-cells patch-maps", role="group",
                    **{"aria-label": "Heads and images. Arrow keys move, x ablates a head."},
                ),
                html.Div(id=ids.GALLERY, className="images-gallery", role="group", **{"aria-label": "Images"}),
            ],
            className="images-grid",
        ),
    ]  # fmt: skip
    return _view_panel(ids.GRID, content, controls=controls, exports=("png", "svg", "npz", *_FILES))


def _maps_panel(core: Core) -> html.Section:
    pictures = html.Div(
        id=ids.PICTURES, className="images-pictures", role="group", **{"aria-label": "Maps of one image"}
    )
    link = link_button(ids.OPEN_CIRCUITS, "The head's circuits", core.links.to("circuits"))
    return _view_panel(ids.MAPS, [caption(ids.MAPS), pictures], controls=link, follows=ids.CHOSEN)


def _paths_panel(state: ImagesState) -> html.Section:
    target = dmc.Select(
        id=ids.TARGET, data=[], value=None if state.target is None else str(state.target), clearable=True, size="xs",
        placeholder="the predicted class", w=170, **{"aria-label": "Class whose logit is taken apart"},
    )  # fmt: skip
    content = [caption(ids.PATHS), html.Div(id=ids.PATHS_PICTURE, className="images-large patch-maps")]
    return _view_panel(
        ids.PATHS, content, controls=labelled("Class", target, size="xs"), exports=("png", "svg", *_FILES),
        follows=ids.CHOSEN,
    )  # fmt: skip


def _predictions_panel() -> html.Section:
    content = [caption(ids.PREDICTIONS), drawn(ids.LIKELIEST, "images-table", "Classes by probability", tabIndex=0)]
    return _view_panel(ids.PREDICTIONS, content, follows=ids.CHOSEN)


def _consistency_panel() -> html.Section:
    ranked = value_tables(ids.RANKED, "Heads, the most consistent first")
    content = [start_bar(ids.CONSISTENCY), caption(ids.CONSISTENCY), ranked]
    return _view_panel(ids.CONSISTENCY, content, follows=ids.MEASURED, always=True)


def _view_panel(id: str, content: Any, *, exports: Any = _FILES, **rest: Any) -> html.Section:
    """The panel of a view whose maps the widget draws."""
    return panel(id, VIEWS[id].title, about_view(VIEWS[id]), content, exports=exports, **rest)
