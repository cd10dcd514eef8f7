"""What the Images page's service gives, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.pages.images.address import ImagesState
from app.pages.images.ids import ids
from app.pages.images.request import ImageRequest
from app.shell.app import App
from tests.app.conftest import wait

STATE = ImagesState(
    checkpoint="digits-tiny", data="digits", of=3, start=4, image=2, layer=1, head=2, patch=(1, 2), view="weighted",
    target=5, off=((0, 1), (1, 0)), how="position_mean",
)  # fmt: skip


def _runs(app: App, at: ImagesState) -> Any:
    asked = ImageRequest(checkpoint=at.checkpoint or "", data=at.data or "", of=at.of, start=at.start, own=at.own)
    service = app.services["images"]
    return service, asked, service.run(asked), service.run(asked, at.off, at.how)


def _maps(app: App, at: ImagesState) -> dict[str, Any]:
    maps, place = _runs(app, at)[3].maps, (at.image, at.layer, at.head)
    return {
        "attention": maps.attention(at.patch)[place],
        "value_weighted": maps.value_weighted(at.patch)[place],
        "rollout": maps.rollout(at.patch)[at.image],
    }


def _paths(app: App, at: ImagesState) -> Any:
    service, asked, *_ = _runs(app, at)
    found = service.contributions(asked, at.image)
    return found.above_mean.patches[0, found.place(at.target)].astype(np.float32)  # as the model computes


def _predictions(app: App, at: ImagesState) -> dict[str, Any]:
    _, _, whole, without = _runs(app, at)
    pairs = (("probability", whole), ("without", without))
    return {name: run.probabilities[at.image].astype(np.float32) for name, run in pairs}


def _consistency(app: App, at: ImagesState) -> Any:
    service, asked, *_ = _runs(app, at)
    return wait(service.consistencies.start(asked)).result.to_frame()


EXPECTED: dict[str, Any] = {
    ids.GRID: lambda app, at: _runs(app, at)[3].maps.value_weighted(at.patch)[:, at.layer],
    ids.MAPS: _maps,
    ids.PATHS: _paths,
    ids.PREDICTIONS: _predictions,
    ids.CONSISTENCY: _consistency,
}
