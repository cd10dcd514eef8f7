"""The Compare page in a real Chromium: two panes, one hover and one lock in all maps, pairs, an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from playwright.sync_api import expect

from app.core import Core
from app.pages.compare.address import ADDRESS, CompareState
from app.pages.compare.ids import ids
from app.shell import ids as shell
from tests.app.conftest import fits, in_the_first_screen, opened, pointed, query, seen, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."
#: Maps with a frame around a row, and whether it is this one.
FRAMED = """row => [...document.querySelectorAll('.compare .js-plotly-plot')].filter(
    plot => plot.data.length && plot.layout.shapes?.length && (row === null || plot.layout.shapes[0].y0 === row - 0.5)
).length"""


def compare(**state: Any) -> str:
    return ADDRESS.format(CompareState(**{"left": "tiny-mhsa", "text": SHORT, "head": (1, 0), **state}))


def drawn(page: Page, left: str, right: str) -> None:
    """Waits until the maps are those of these heads, and nothing is under way."""
    for panel, title in ((ids.LEFT_MAP, f"Left: {left}"), (ids.RIGHT_MAP, f"Right: {right}")):
        page.locator(f"#{panel}").scroll_into_view_if_needed()
        expect(page.locator(f"#{shell.title(panel)}")).to_have_text(title)
    seen(page, ids.DIFFERENCE)
    page.evaluate("scrollTo(0, 0)")


def framed(page: Page, count: int, row: int | None) -> None:
    """Waits until so many maps have a frame around the row (None: any)."""
    page.wait_for_function(f"([count, row]) => ({FRAMED})(row) === count", arg=[count, row])


def test_one_click_switches_the_head_off_at_the_right(open_page, services: Core):
    page = open_page(compare(head=(0, 1), other_head=(1, 1)))
    drawn(page, "0.1", "1.1")
    page.click(f"#{ids.PRESET_OFF}")
    written(page, "right-off", "0.1")
    expect(page.locator(f"#{ids.RIGHT_OFF_LINE}")).to_have_text("Without 0.1")
    caption = page.locator(f"#{shell.caption(ids.LOSSES)}")
    expect(caption).to_contain_text("tiny-mhsa without 0.1")
    whole, without = (services.inference.analyse("tiny-mhsa", SHORT, off=off) for off in ((), ((0, 1),)))
    change = services.inference.losses(without) - services.inference.losses(whole)
    chips = page.locator(f"#{ids.STRIP} .chip")
    expect(chips).to_have_count(len(change))
    settled(page)
    shown = page.eval_on_selector_all(f"#{ids.STRIP} .chip", "chips => chips.map(c => c.dataset.value ?? null)")
    assert shown[0] is None
    np.testing.assert_allclose(np.array(shown[1:], dtype=float), change[1:], atol=0.006)
    # Switched by hand: another one beside it.
    page.locator(f"#{ids.RIGHT_OFF_LINE}").click()
    page.locator(f"#{ids.RIGHT_SWITCHES} .head-switch[data-layer='1'][data-head='2']").click()
    written(page, "right-off", "0.1,1.2")
    expect(caption).to_contain_text("without 0.1, 1.2")
    in_the_first_screen(page, ids.DIFFERENCE)


def test_a_hover_and_a_lock_are_in_all_three_maps(open_page, services: Core):
    page = open_page(compare(right_off=((0, 1),), position=4), load=True)
    drawn(page, "1.0", "1.0")
    framed(page, 3, row=4)
    tip = pointed(page, ids.LEFT_MAP, 5, 2)
    results = [services.inference.analyse("tiny-mhsa", SHORT, off=off) for off in ((), ((0, 1),))]
    left, right = (float(result.patterns.pattern[1, 0, 5, 2]) for result in results)
    expect(tip).to_contain_text(f"{left:.4f}")
    for panel, value in ((ids.RIGHT_MAP, right), (ids.DIFFERENCE, right - left)):
        expect(page.locator(f"#{shell.tip(panel)}")).to_contain_text(f"attention {value:.4f}")
    expect(page.locator(".map-mark")).to_have_count(2)
    assert page.eval_on_selector_all(".chip-here", "chips => chips.map(c => c.dataset.position)") == ["2", "5"]
    # A token locks its row everywhere; Escape lets go.
    page.locator(f"#{ids.STRIP} .chip").nth(7).click()
    written(page, "position", "7")
    framed(page, 3, row=7)
    page.keyboard.press("Escape")
    written(page, "position", None)
    framed(page, 0, row=None)


def test_two_models_their_pairs_and_other_texts(open_page):
    page = open_page(compare(right="tiny-mssa"))
    line = page.locator(f"#{ids.PAIR_LINE}")
    expect(line).to_contain_text("similarity")
    opened(page, "All pairs")
    pairs = page.locator(f"#{ids.GALLERY} .pair")
    expect(pairs).to_have_count(6)
    assert page.evaluate("getComputedStyle(document.querySelector('.pair-left')).backgroundImage").startswith("url(")
    wanted = {name: pairs.nth(4).get_attribute(f"data-{name}") for name in ("left", "right")}
    pairs.nth(4).click()
    drawn(page, wanted["left"], wanted["right"])
    expect(line).to_contain_text(f"Head {wanted['left']} is matched with head {wanted['right']}")
    assert query(page)["other-head"] == wanted["right"]
    # Another text: two strips, and a difference where tokens correspond.
    page.locator(f"label:has(#{ids.ANOTHER})").click()
    page.fill(f"#{ids.OTHER}", "She danced.")
    page.keyboard.press("Control+Enter")
    written(page, "other", "She danced.")
    expect(page.locator(f"#{ids.DIFFERENCE}")).to_contain_text("stand beside each other")
    expect(page.locator(f"#{ids.OTHER_STRIP} .chip")).not_to_have_count(0)
    settled(page)
    page.locator(f"#{ids.OTHER_STRIP} .chip").nth(2).click()
    written(page, "other-position", "2")
    assert "position" not in query(page)
    # Sides change places, and the address leads to the same view again.
    page.click(f"#{ids.SWAP}")
    written(page, "left", "tiny-mssa")
    settled(page)


def test_an_address_leads_to_the_same_view(open_page):
    state = {"right": "tiny-mssa", "right_off": ((2, 1),), "other_head": (2, 0), "position": 3, "view": "scores"}
    page = open_page(compare(**state), width=800, scheme="dark")
    drawn(page, "1.0", "2.0")
    first = page.url
    assert query(page)["right-off"] == "2.1"
    again = open_page(first[first.index("/compare") :], width=800, load=True)
    drawn(again, "1.0", "2.0")
    assert again.url == first
    fits(again)
    href = again.locator(f"#{ids.OPEN_RIGHT}").get_attribute("href")
    assert href is not None and all(part in href for part in ("checkpoint=tiny-mssa", "head=2.0", "off=2.1"))
