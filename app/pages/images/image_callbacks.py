"""The tabs of the Images page: one image's maps, paths and predictions; and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import html

from aotlens.plots import data_uri
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File
from app.pages.images import captions, elements, files
from app.pages.images.asking import Picked
from app.pages.images.ids import ids
from app.pages.images.request import ImageRequest
from app.pages.images.service import ImageViews, said
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import props, stores, values
from app.shell.sharing import save_files


def register(app: App, core: Core, service: ImageViews) -> None:
    """The callbacks of the tabs, each once its panel is seen."""

    @guarded(
        app,
        panel=ids.MAPS,
        inputs=stores(wanted=shell.seen(ids.MAPS)),
        output=stores(pictures=shell.drawn(ids.PICTURES)),
        parts=("caption", "title"),
        empty={"title": "One image"},
    )
    def draw_maps(wanted: Any) -> Answer:
        if wanted is None:
            return None
        picked = Picked.from_dict(wanted)
        batch, run, _ = picked.runs(service)
        paths: Any
        try:
            paths = service.contributions(picked.asked, picked.image)
        except RequestError as error:
            paths = str(error)  # of a model whose logits are no sums over paths
        classes = service.classes(picked.asked.checkpoint)
        query = run.maps.grid.query_name(picked.patch)
        return {
            "title": f"Image {picked.image + 1}, head {captions.head_name(picked.layer, picked.head)}",
            "pictures": elements.pictures(
                batch, run, picked.image, picked.layer, picked.head, picked.patch, paths, classes
            ),
            "caption": ". ".join(filter(None, [f"Query: {query}", captions.without(run)])) + ".",
        }

    @guarded(
        app,
        panel=ids.PATHS,
        inputs=stores(wanted=shell.seen(ids.PATHS)),
        output=props("src", picture=ids.PATHS_PICTURE) | props("alt", says=ids.PATHS_PICTURE),
        parts=("body",),
        empty={"picture": "", "says": ""},
    )
    def draw_paths(wanted: Any) -> Answer:
        if wanted is None:
            return None
        picked = Picked.from_dict(wanted)
        found = service.contributions(picked.asked, picked.image)
        target = picked.class_of(service)
        row, name = said(lambda: found.place(target)), service.classes(picked.asked.checkpoint)[target]
        patches = found.above_mean.patches[0, row]
        return {
            "picture": data_uri(elements.signed_picture(service.of(picked.asked), picked.image, patches)),
            "says": f"What each patch of image {picked.image + 1} adds to {name}",
            "body": [html.P(line) for line in captions.of_paths(found, row, name)],
        }

    @guarded(app, panel=ids.PREDICTIONS, inputs=stores(wanted=shell.seen(ids.PREDICTIONS)), parts=("body", "caption"))
    def predict(wanted: Any) -> Answer:
        if wanted is None:
            return None
        picked = Picked.from_dict(wanted)
        batch, run, whole = picked.runs(service)
        classes, known = service.classes(picked.asked.checkpoint), service.knows(batch)
        return {
            "body": elements.predictions_table(run, whole, picked.image, classes, core.settings.n_predictions),
            "caption": captions.of_prediction(batch, picked.image, classes, known, run, whole),
        }

    _register_files(app, service)


def _register_files(app: App, service: ImageViews) -> None:
    def of_picked(make: Callable[..., File]) -> Callable[..., File]:
        def file(picked: Any, **_: Any) -> File:
            if picked is None:
                raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
            return make(service, Picked.from_dict(picked))

        return file

    def consistency(picked: Any, **_: Any) -> File:
        if picked is None:
            raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
        return files.consistency_csv(service, ImageRequest.from_dict(picked))

    save_files(
        app,
        {
            shell.export(ids.GRID, "npz"): of_picked(files.grid_npz),
            shell.export(ids.MAPS, "csv"): of_picked(files.maps_csv),
            shell.export(ids.PATHS, "csv"): of_picked(files.paths_csv),
            shell.export(ids.PREDICTIONS, "csv"): of_picked(files.predictions_csv),
            shell.export(ids.CONSISTENCY, "csv"): consistency,
        },
        stores(picked=ids.PICKED) | values(view=ids.VIEW),
    )
