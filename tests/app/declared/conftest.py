"""Apps with models of in-context regression of two widths, of text and of images; pictures as files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.core import Core
from app.core.settings import Settings
from app.factory import create_app
from app.shell.app import App
from tests.app.conftest import save_images, save_regression, save_tiny


@pytest.fixture(scope="session")
def regression_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    """Two models that read three numbers, one that reads two, one of text, one of images; no other."""
    folder = tmp_path_factory.mktemp("models")
    save_regression(folder, "three-mhsa")
    save_regression(folder, "three-mssa", attention="mssa", d_mlp=16)
    save_regression(folder, "two", d=2, n_layers=1)
    save_tiny(folder, "tiny-mhsa")
    save_images(folder, "digits-tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield Core.start(Settings(checkpoints=(folder,), device="cpu"))


@pytest.fixture(scope="session")
def regression_app(regression_core: Core) -> App:
    """An app with these models."""
    return create_app(regression_core.settings, regression_core)


def picture_file(kind: str = "PNG", *, size: tuple[int, int] = (30, 20), mode: str = "L") -> bytes:
    """A file that shows a bright square in the dark, right of the middle."""
    pixels = np.zeros((size[1], size[0]), dtype=np.uint8)
    pixels[5:12, 16:24] = 255
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, format=kind)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def image_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    """Two models of images, one of them with MLPs, and one of text; nothing that is bundled or the user's own."""
    folder = tmp_path_factory.mktemp("models")
    save_images(folder, "digits-tiny")
    save_images(folder, "digits-vit", d_mlp=16, n_layers=1, class_token=False, n_ctx=16, pooling="mean")
    save_tiny(folder, "tiny-mhsa")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield Core.start(Settings(checkpoints=(folder,), device="cpu"))
