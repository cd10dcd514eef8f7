"""The Checkpoints page in a real Chromium: choose, read, open in Heads; a console without errors."""

from __future__ import annotations

import pytest

from app import ids
from tests.app.conftest import query


def test_checkpoints_page(open_page):
    page = open_page("/checkpoints?checkpoint=tiny-mhsa")
    page.wait_for_selector("#checkpoints-table .ag-row")
    page.wait_for_selector("#curve-graph .js-plotly-plot .scatterlayer path")
    rows = page.locator("#checkpoints-table .ag-center-cols-container .ag-row")
    assert rows.count() == 4
    assert "4.250" in page.locator("#checkpoints-table").inner_text()
    page.click("#checkpoints-table .ag-center-cols-container >> text=broken")
    page.locator("#card-body >> text=can't be opened").wait_for()
    assert query(page)["checkpoint"] == "broken"
    assert not page.locator(f"#{ids.CHECKPOINTS_OPEN}").is_visible()
    page.click("#checkpoints-table .ag-center-cols-container >> text=tiny-mssa")
    page.locator("#card-title >> text=tiny-mssa").wait_for()
    page.locator("#curve-empty").wait_for(state="visible")
    page.click(f"#{ids.CHECKPOINTS_OPEN}")
    page.wait_for_selector(f"#{ids.CHECKPOINT}")
    assert page.input_value(f"#{ids.CHECKPOINT}") == "tiny-mssa"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page("/checkpoints", width=800, scheme=scheme)
    page.wait_for_selector("#checkpoints-table .ag-row")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert page.locator("html").get_attribute("data-mantine-color-scheme") == scheme
