"""The Distillation page of an app without corpora and without results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core import Core
from app.core.settings import Settings
from app.factory import create_app
from app.pages.distillation.ids import ids
from app.shell import ids as shell
from tests.app.conftest import save_tiny, serve


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    save_tiny(folder, "tiny-mhsa")
    settings = Settings(checkpoints=(folder,), device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        patch.setattr("aotlens.distill.records.bundled_distillations_folder", lambda: Path("/nonexistent"))
        with serve(create_app(settings, Core.start(settings))) as address:
            yield address


def test_the_page_says_what_to_do(open_page):
    page = open_page("/distillation")
    page.locator(f"#{shell.notice(ids.PANEL)} >> text=--distillation FILE").wait_for()
    page.wait_for_selector("#distillation-body[data-empty]")
    page.locator(f"#{ids.FORM} >> text=--corpus dir:PATH").wait_for(state="attached")
    assert page.locator(f"#{shell.start(ids.FORM)}").is_enabled()  # a text can be uploaded or pasted
