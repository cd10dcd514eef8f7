"""Skip-trigrams in a real Chromium with a model of twelve layers: the picker scrolls, what is chosen twice is shown."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from playwright.sync_api import expect

from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import Trigrams
from tests.app.conftest import act, choose, in_the_first_screen, seen, settled, written
from tests.app.trigrams.listing import listed, trigrams


@pytest.fixture(scope="module")
def address(served: tuple[str, Trigrams]) -> str:
    return served[0]


def test_a_head_picker_of_many_layers_scrolls_to_the_chosen_head(open_page):
    page = open_page(trigrams(checkpoint="tiny-deep", head=(11, 1), k=20))
    listed(page, "20 rows.")
    expect(page.locator(f"#{ids.HEADS} .pick-head")).to_have_count(24)
    in_view = """([layer, head]) => {
        const button = document.querySelector(`#trigrams-heads [data-layer="${layer}"][data-head="${head}"]`);
        const row = button.getBoundingClientRect();
        const box = document.getElementById("trigrams-heads").getBoundingClientRect();
        return button.getAttribute("aria-pressed") === "true" && row.top >= box.top && row.bottom <= box.bottom
            && scrollY === 0;
    }"""
    page.wait_for_function(in_view, arg=[11, 1])
    # So it does when the keyboard moves through the layers.
    page.locator(f'#{ids.HEADS} [data-layer="11"][data-head="1"]').focus()
    for layer in range(10, -1, -1):
        choose(page, page.keyboard.press, "ArrowUp")
        page.wait_for_function(in_view, arg=[layer, 1])
    written(page, "head", "0.1")


def test_a_head_that_is_chosen_again_before_the_answer_is_shown(open_page, served, monkeypatch):
    page = open_page(trigrams(checkpoint="tiny-deep", head=(11, 1), k=20))
    listed(page, "20 rows.")
    settled(page)
    asked, answer, real = threading.Event(), threading.Event(), served[1]._chosen

    def slow(state: Any, *rest: Any) -> Any:
        if state.head == (10, 1):
            asked.set()
            assert answer.wait(120)
        return real(state, *rest)

    monkeypatch.setattr(served[1], "_chosen", slow)
    page.locator(f'#{ids.HEADS} [data-layer="11"][data-head="1"]').focus()
    act(page.keyboard.press, "ArrowUp")
    assert asked.wait(120)
    act(page.keyboard.press, "ArrowDown")
    answer.set()
    settled(page)
    written(page, "head", "11.1")
    expect(page.locator(f'#{ids.HEADS} [data-layer="11"][data-head="1"]')).to_have_attribute("aria-pressed", "true")


def test_with_many_layers_the_main_views_are_in_the_first_screen(open_page):
    page = open_page(trigrams(checkpoint="tiny-deep", head=(11, 1), k=20))
    listed(page, "20 rows.")
    in_the_first_screen(page, ids.ROWS)
    page = open_page("/circuits?checkpoint=tiny-deep&head=11.1")
    for panel in ("circuits-map", "circuits-top"):
        seen(page, panel)
        page.evaluate("scrollTo(0, 0)")
        in_the_first_screen(page, panel)
