"""An app with models of in-context regression of two widths, one of text and one of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
