"""All heads' maps on the images that are shown, by a route of their own, in the widget's packed arrays.

    GET /images/maps?checkpoint=…&data=…&start=…&off=…

The query is that of the page's address. Maps are of every query; where these take more than `_MOST` bytes, of the
address's `patch` alone. What can't be shown, the page says; then there is no content.
"""

from __future__ import annotations

from typing import Any

from flask import Response, request

from aotlens.widget import PatchMaps, pack
from aotlens.widget.patches import n_bytes
from app.core.compression import MAPS
from app.pages.images.address import ADDRESS
from app.pages.images.service import ImageRequest, Images
from app.shell.app import App
from app.shell.callbacks import spoken

_MOST = 4 * 2**20


def register(app: App, service: Images) -> None:
    """Register the route."""

    @app.server.get("/images/maps")
    def image_maps() -> Response:
        state = ADDRESS.parse(request.query_string.decode())
        content, _ = spoken(lambda: packed(service, service.of_address(state)), "packing maps of images")
        return Response(status=204) if content is None else Response(content, mimetype=MAPS)


def packed(service: Images, chosen: ImageRequest) -> bytes:
    """Return the maps of a choice."""
    run = service.run(chosen)
    n_images, n_layers, n_heads = run.maps.pattern.shape[:3]
    fits = n_bytes(n_images, n_layers * n_heads, run.maps.grid.n_patches) <= _MOST
    maps = PatchMaps(
        run=run, says=sayings(service, chosen), queries=None if fits else [chosen.patch], name=chosen.checkpoint
    )
    return pack(maps.header, maps.arrays)


def sayings(service: Images, chosen: ImageRequest) -> list[dict[str, Any]]:
    """Say what the full model predicts for each image, and whether that is wrong."""
    full, lines = service.run(chosen, full=True), []
    for label, number, row in zip(service.labels(chosen), full.predicted, full.probabilities, strict=True):
        best, wrong = chosen.classes[number], label is not None and chosen.is_known and label != chosen.classes[number]
        what = "yours" if label is None else f"class {label}"
        lines.append(
            {
                "text": f"{best} · {row[number]:.2f}" + (f"\n✗ {label}" if wrong else ""),
                "title": f"{what}, predicted {best} with probability {row[number]:.2f}{', wrong' if wrong else ''}",
                "wrong": wrong,
            }
        )
    return lines
