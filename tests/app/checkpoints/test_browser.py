"""The Checkpoints page in a real Chromium: choose, read, open in Heads; a console without errors."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from app.pages.checkpoints.ids import ids
from app.pages.heads.ids import ids as heads
from tests.app.conftest import choose, opened, written


@pytest.mark.visit
def test_checkpoints_page(open_page):
    page = open_page("/checkpoints?checkpoint=tiny-mhsa")
    page.wait_for_selector("#checkpoints-curve-graph .js-plotly-plot .scatterlayer path")
    expect(page.locator("#checkpoints-table tbody tr")).to_have_count(4)
    expect(page.locator("#checkpoints-table")).to_contain_text("4.250")
    names = page.locator("#checkpoints-table td:first-child")
    for order in (sorted, lambda texts: sorted(texts, reverse=True)):
        choose(page, page.click, "#checkpoints-table th button >> text=Name")
        assert names.all_inner_texts() == order(names.all_inner_texts())
    choose(page, page.click, "#checkpoints-table td:first-child >> text=broken")
    page.locator("#checkpoints-card-body >> text=can't be opened").wait_for()
    written(page, "checkpoint", "broken")
    expect(page.locator(f"#{ids.OPEN}")).to_be_hidden()
    choose(page, page.click, "#checkpoints-table td:first-child >> text=tiny-mssa")
    page.locator("#checkpoints-card-title >> text=tiny-mssa").wait_for()
    page.locator("#checkpoints-curve-empty").wait_for(state="visible")
    choose(page, page.click, f"#{ids.OPEN}")
    expect(page.locator(f"#{heads.CHECKPOINT}")).to_have_value("tiny-mssa")


def test_the_table_is_in_the_first_screen_and_the_address_remembers_a_tab(open_page):
    page = open_page("/checkpoints?checkpoint=tiny-mhsa")
    page.wait_for_selector("#checkpoints-curve-graph .js-plotly-plot .scatterlayer path")
    box = page.locator("#checkpoints-table").bounding_box()
    assert page.evaluate("scrollY") == 0 and box is not None and 100 < box["height"] <= 900 - box["y"]
    # A closed panel has asked for nothing.
    expect(page.locator("#checkpoints-tensors table")).to_have_count(0)
    opened(page, "Parameters")
    expect(page.locator(f"#{ids.PARAMETERS}")).to_contain_text("tensors")
    written(page, "tab", "parameters")
    page = open_page("/checkpoints?checkpoint=tiny-mhsa&tab=parameters", load=True)
    expect(page.locator("#checkpoints-tensors tbody tr").first).to_be_visible()
    expect(page.locator(f"#{ids.CURVE}")).to_be_hidden()
