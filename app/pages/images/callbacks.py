"""What the Images page asks of the server: which images, all maps of a layer, and in which order the heads stand."""

from __future__ import annotations

from typing import Any

from dash import no_update

from aotlens.plots import data_uri
from app.core import Core
from app.pages.images import captions, consistency_callbacks, elements, image_callbacks, own_callbacks
from app.pages.images.asking import pairs_of, query_of
from app.pages.images.ids import PANELS, ids
from app.pages.images.request import ImageRequest
from app.pages.images.service import ImageViews
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import props, stores, values
from app.shell.sharing import show_values, when_seen


def register(app: App, core: Core, service: ImageViews) -> None:
    """The page's callbacks."""
    show_values(app, [ids.LAYER])
    when_seen(app, ids.PICKED, PANELS)
    _register_choice(app, service)
    _register_grid(app, service)
    consistency_callbacks.register(app, service.consistencies)
    own_callbacks.register(app, core)
    image_callbacks.register(app, core, service)


def _register_choice(app: App, service: ImageViews) -> None:
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(checkpoint=ids.CHECKPOINT, data=ids.DATA, of=ids.OF) | stores(start=ids.START, own=ids.OWN),
        state=stores(before=ids.SHOWN, image=ids.IMAGE, head=ids.HEAD, patch=ids.PATCH, off=ids.OFF)
        | values(layer=ids.LAYER),
        output=stores(
            shown=ids.SHOWN,
            start=ids.START,
            own=ids.OWN,
            image=ids.IMAGE,
            head=ids.HEAD,
            patch=ids.PATCH,
            off=ids.OFF,
            gallery=shell.drawn(ids.GALLERY),
            classes=ids.OF,
            targets=ids.TARGET,
        )
        | values(data=ids.DATA, of=ids.OF, layer=ids.LAYER)
        | {"last": (ids.LAYER, "max"), "single": (ids.LAYER, "disabled")},
        parts=("caption",),
        empty=dict.fromkeys(("start", "own", "image", "head", "patch", "off", "classes", "targets"), no_update),
    )
    def choose(
        checkpoint: str | None, data: str | None, of: str | None, start: int, own: list[str], before: Any, image: int,
        head: int, patch: Any, off: Any, layer: int,
    ) -> Answer:  # fmt: skip
        if checkpoint is None:
            return None  # the panel says so
        number = None if of is None else int(of)
        if before is not None and (before["data"], before["of"]) != (data, number):
            start = 0
            number = number if before["data"] == data else None
        batch = service.batch(checkpoint, data, number, int(start or 0), tuple(own or ()))
        asked, run = batch.asked, service.run(batch.asked)
        _, loaded = service.load(asked.checkpoint)
        cfg, grid, names = loaded.model.cfg, run.maps.grid, service.classes(asked.checkpoint)
        known = service.knows(batch)
        newcomer = before is not None and list(asked.own) != before["own"]
        layer = min(int(layer or 0), cfg.n_layers - 1)
        return {
            "shown": {
                **asked.to_dict(), "n": len(batch.images), "layers": cfg.n_layers, "heads": cfg.n_heads,
                "rows": grid.rows, "columns": grid.columns, "per_page": len(batch.indices), "n_all": batch.n_all,
            },
            "start": asked.start, "own": list(asked.own), "data": asked.data,
            "of": None if asked.of is None else str(asked.of),
            "classes": _options(batch.names), "targets": _options(names),
            "image": 0 if newcomer or image >= len(batch.images) else image,
            "head": head if head < cfg.n_heads else 0,
            "patch": query_of(patch, {"rows": grid.rows, "columns": grid.columns}),
            "off": [one for one in off or [] if one[0] < cfg.n_layers and one[1] < cfg.n_heads],
            "gallery": elements.gallery(batch, run, names, known),
            "layer": layer, "last": max(cfg.n_layers - 1, 1), "single": cfg.n_layers == 1,
            "caption": captions.of_batch(batch, loaded.model.image_processor.data, known, run),
        }  # fmt: skip


def _options(names: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"value": str(number), "label": name} for number, name in enumerate(names)]


def _register_grid(app: App, service: ImageViews) -> None:
    @guarded(
        app,
        panel=ids.GRID,
        inputs=stores(shown=ids.SHOWN, patch=ids.PATCH, off=ids.OFF, ranking=ids.RANKING)
        | values(layer=ids.LAYER, view=ids.VIEW, order=ids.ORDER, how=ids.HOW),
        output=props("src", picture=ids.GRID_PICTURE)
        | props("alt", says=ids.GRID_PICTURE)
        | stores(cells=shell.drawn(ids.CELLS)),
        empty={"picture": "", "says": ""},
    )
    def draw(
        shown: Any, patch: Any, off: Any, ranking: Any, layer: int, view: str, order: str, how: Any
    ) -> Answer:  # fmt: skip
        if shown is None:
            return None
        asked = ImageRequest.from_dict(shown)
        batch, layer = service.of(asked), min(int(layer or 0), shown["layers"] - 1)
        run = service.run(asked, pairs_of(off, shown), how)
        heads = heads_in_order(layer, shown["heads"], ranking if order == "consistent" else None, asked)
        query = query_of(patch, shown)
        return {
            "picture": data_uri(elements.grid_sprite(batch, run, layer, heads, view, query)),
            "says": f"Maps of {shown['heads']} heads of layer {layer} on {len(batch.images)} images",
            "cells": elements.cells(layer, heads, len(batch.images)),
        }


def heads_in_order(layer: int, n_heads: int, ranking: Any, asked: ImageRequest) -> list[int]:
    """A layer's heads by number, or as they stand in a ranking of this model on these images."""
    if not ranking or (ranking["checkpoint"], ranking["data"]) != (asked.checkpoint, asked.data):
        return list(range(n_heads))
    return [int(head) for of, head in ranking["heads"] if of == layer]
