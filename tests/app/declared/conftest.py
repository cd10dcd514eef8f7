"""Apps with models of in-context regression of two widths, of text and of images; pictures as files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from PIL import Image

from app.core import Core
from app.shell.app import App
from tests.app.conftest import save_images, save_regression, save_tiny
from tests.app.declared_pages import alone


@pytest.fixture(scope="session")
def regression_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An app of two models that read three numbers, one that reads two, one of text, one of images; no other."""
    saves = (
        partial(save_regression, name="three-mhsa"),
        partial(save_regression, name="three-mssa", attention="mssa", d_mlp=16),
        partial(save_regression, name="two", d=2, n_layers=1),
        partial(save_tiny, name="tiny-mhsa"),
        partial(save_images, name="digits-tiny"),
    )
    with alone(tmp_path_factory, *saves) as app:
        yield app


def picture_file(kind: str = "PNG", *, size: tuple[int, int] = (30, 20), mode: str = "L") -> bytes:
    """A file that shows a bright square in the dark, right of the middle."""
    pixels = np.zeros((size[1], size[0]), dtype=np.uint8)
    pixels[5:12, 16:24] = 255
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, format=kind)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def image_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An app of two models of images, one of them with MLPs, and one of text; no other."""
    vit = {"d_mlp": 16, "n_layers": 1, "class_token": False, "n_ctx": 16, "pooling": "mean"}
    images = (partial(save_images, name="digits-tiny"), partial(save_images, name="digits-vit", **vit))
    with alone(tmp_path_factory, *images, partial(save_tiny, name="tiny-mhsa")) as app:
        yield app


@pytest.fixture(scope="session")
def image_core(image_app: App) -> Core:
    """The core of that app."""
    return image_app.core
