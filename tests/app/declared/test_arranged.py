"""Every declared page in Chromium: its first finding is in the first screen, its form below it on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.settings import Settings
from app.factory import create_app
from tests.app.conftest import save_images, save_regression, serve, settled
from tests.app.declared.test_pages import DECLARED
from tests.app.training.numbers import save_run


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app in which some checkpoint fits each page."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_run(folder)
    save_regression(folder, "three-mhsa")
    save_images(folder, "digits-tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        with serve(create_app(Settings(checkpoints=(folder,), device="cpu"))) as address:
            yield address


@pytest.mark.visit
@pytest.mark.parametrize("name", DECLARED)
def test_the_first_finding_is_in_the_first_screen_and_the_form_below_it_on_a_telephone(open_page, name: str):
    page = open_page(f"/{name}", load=True)
    settled(page)
    panel = page.locator(".view-page .panel:not(.view-parameters)").first
    # An empty caption is hidden where a notice says why nothing can be shown.
    parts = [panel.locator(".panel-header"), panel.locator(":is(.caption, .panel-notice):visible").first]
    boxes = [part.bounding_box() for part in (*parts, page.locator(f"#{name}-form"))]
    assert page.evaluate("scrollY") == 0 and all(box and box["y"] + box["height"] <= 900 for box in boxes)
    finding = boxes[1]
    assert finding and finding["y"] <= 450, "and half of the screen is left for the figure"
    if panel.locator(f"#{name}-form").count():
        return  # the form is in the panel, which says what is asked
    page.set_viewport_size({"width": 390, "height": 844})
    settled(page)
    below, above = page.locator(f"#{name}-form").bounding_box(), panel.bounding_box()
    assert below and above and below["y"] >= above["y"] + above["height"]
