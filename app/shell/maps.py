"""Answers of the routes that give maps of heads, which static/maps.js asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flask import Response, request
from plotly.utils import PlotlyJSONEncoder

from aotlens.views import Values, View
from app.core import head_maps
from app.core.address import Address
from app.core.compression import MAPS
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.shell.app import App
from app.shell.callbacks import spoken
from app.shell.props import stores
from app.shell.sharing import save_pictures

if TYPE_CHECKING:
    from aotlens.heads import ImageRun
    from app.shell.view_service import Views


_MOST = 4 * 2**20


def answered(make: Callable[[], bytes], name: str) -> Response:
    """Return what `make` packs; where that cannot be, what the notice of a panel says instead, as JSON. `name` is for
    the log."""
    content, notice = spoken(make, name)
    if content is None:
        return Response(json.dumps(notice, cls=PlotlyJSONEncoder), mimetype="application/json")
    return Response(content, mimetype=MAPS)


def serve_maps(app: App, page: str, view: View, service: Views, address: Address[Any], shown: str) -> None:
    """Serve the maps of a page of views (`app.shell.moving.HeadMaps`), and their picture for a paper.

    GET /PAGE/maps?…                            every head's map, in the widget's packed arrays
    GET /PAGE/maps/line?…&head=1.0&position=5   a position's row and column, float32
    """

    def result(values: Values) -> tuple[PromptResult, Values]:
        patterns = service.workshop.result(view, values).patterns
        # Logits only tell that the patterns are whole (`head_maps.is_long`).
        return PromptResult(
            key=view.call(values).source, checkpoint=values.checkpoint, patterns=patterns, logits=()
        ), values

    def of_address(make: Callable[[PromptResult, Values], bytes]) -> Response:
        state = address.parse(request.query_string.decode())
        return answered(lambda: make(*result(service.of_address(state))), "packing maps")

    @app.server.get(f"/{page}/maps", endpoint=f"{page}_maps")
    def every() -> Response:
        return of_address(lambda maps, values: head_maps.packed_maps(maps, values.quantity, ""))

    @app.server.get(f"/{page}/maps/line", endpoint=f"{page}_line")
    def line() -> Response:
        position = request.args.get("position", 0, type=int)
        return of_address(lambda maps, values: head_maps.line_bytes(maps, *values.head, values.quantity, position))

    def picture(shown: Any) -> Any:
        if not shown:
            raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
        maps, values = result(service.values(shown))
        return head_maps.all_heads_figure(maps, values.quantity, False)

    save_pictures(app, f"{page}-{view.name}", picture, stores(shown=shown))


def serve_patch_maps(app: App, page: str, view: View, service: Views, address: Address[Any]) -> None:
    """Serve the maps of a page of images (`app.shell.patch_maps`).

    GET /PAGE/maps?…    every head's maps of the images, in the widget's packed arrays, of every query; if these take
                        more than `_MOST` bytes, of the address's `patch` alone
    """

    @app.server.get(f"/{page}/maps", endpoint=f"{page}_maps")
    def every() -> Response:
        state = address.parse(request.query_string.decode())
        return answered(lambda: packed_patches(service, view, service.of_address(state)), "packing maps of images")


def packed_patches(service: Views, view: View, params: Any) -> bytes:
    """Return the maps of all heads on the images, packed."""
    from aotlens.widget import PatchMaps, pack
    from aotlens.widget.patches import n_bytes

    run = service.workshop.result(replace(view, call=lambda params: params.run), params)
    full = service.workshop.result(replace(view, call=lambda params: params.full), params)
    n_images, n_layers, n_heads = run.maps.pattern.shape[:3]
    fits = n_bytes(n_images, n_layers * n_heads, run.maps.grid.n_patches) <= _MOST
    queries = None if fits else [params.patch]
    try:
        maps = PatchMaps(run=run, says=sentences(full), queries=queries, name=params.checkpoint)
    except ValueError as error:  # attention that is not finite
        raise RequestError(str(error)) from error
    return pack(maps.header, maps.arrays)


def sentences(run: ImageRun) -> Sequence[dict[str, Any]]:
    """Say what the model predicts for each image, and whether that is wrong."""
    lines = []
    for image, (truth, best, row) in enumerate(zip(run.truth, run.predicted, run.probabilities, strict=True)):
        name, wrong = run.classes[best], image in run.wrong
        what = "yours" if truth is None else f"class {truth}"
        lines.append({
            "text": f"{name} · {row[best]:.2f}" + (f"\n✗ {truth}" if wrong else ""),
            "title": f"{what}, predicted {name} with probability {row[best]:.2f}{', wrong' if wrong else ''}",
            "wrong": wrong,
        })  # fmt: skip
    return lines
