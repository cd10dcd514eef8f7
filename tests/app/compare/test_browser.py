"""The Compare page in a real Chromium: two panes, one hover and one lock in all maps, pairs, an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from app.core import Core
from app.pages.compare.address import ADDRESS, CompareState
from app.pages.compare.ids import ids
from app.shell import ids as shell
from tests.app.conftest import choose, fits, in_the_first_screen, opened, query, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."
MAPS = (ids.LEFT_CANVAS, ids.RIGHT_CANVAS, ids.DIFFERENCE_CANVAS)
#: What the maps say of the entry, or of the token, that is pointed at or locked.
SAID = "ids => ids.map(id => document.querySelector(`#${id} .said`).textContent)"


def compare(**state: Any) -> str:
    return ADDRESS.format(CompareState(**{"left": "tiny-mhsa", "text": SHORT, "head": (1, 0), **state}))


def drawn(page: Page, left: str, right: str) -> None:
    """Waits until the maps are those of these heads."""
    for panel, title in ((ids.LEFT_MAP, f"Left: {left}"), (ids.RIGHT_MAP, f"Right: {right}")):
        expect(page.locator(f"#{shell.title(panel)}")).to_have_text(title)
    expect(page.locator(f"#{ids.LEFT_CANVAS}")).to_have_attribute("data-head", left)
    expect(page.locator(f"#{ids.RIGHT_CANVAS}")).to_have_attribute("data-head", right)
    expect(page.locator(f"#{ids.DIFFERENCE}")).not_to_have_attribute("aria-busy", "true")


def locked(page: Page, *positions: int | None) -> None:
    """Waits until the maps have these rows locked."""
    page.wait_for_function(
        """([ids, wanted]) => JSON.stringify(ids.map(id => document.getElementById(id).map.heads.position))
           === JSON.stringify(wanted)""",
        arg=[list(MAPS), list(positions)],
    )


def point(page: Page, canvas: str, query: int, key: int) -> None:
    """Moves the pointer to an entry of a map."""
    x, y = page.evaluate(
        """([id, query, key]) => {
            const { place: { left, top, side }, canvas, shown } = document.getElementById(id).map;
            const unit = side / shown[2];
            const box = canvas.getBoundingClientRect();
            return [box.left + left + (key + .5) * unit, box.top + top + (query + .5) * unit]; }""",
        [canvas, query, key],
    )
    page.mouse.move(x, y)


@pytest.mark.visit
def test_one_click_ablates_the_head_at_the_right(open_page, services: Core):
    page = open_page(compare(head=(0, 1), other_head=(1, 1)))
    drawn(page, "0.1", "1.1")
    choose(page, page.click, f"#{ids.PRESET_OFF}")
    written(page, "right-off", "0.1")
    expect(page.locator(f"#{ids.RIGHT_OFF_LINE}")).to_have_text("Ablated: 0.1")
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
    # Another one beside it, by hand; the list of heads covers nothing and closes.
    choose(page, page.locator(f"#{ids.RIGHT_OFF_LINE}").click)
    choose(page, page.locator(f"#{ids.RIGHT_SWITCHES} .head-switch[data-layer='1'][data-head='2']").click)
    written(page, "right-off", "0.1,1.2")
    expect(caption).to_contain_text("without 0.1, 1.2")
    switches = page.locator(f"#{ids.RIGHT_SWITCHES}")
    expect(switches).to_be_visible()
    below, above = page.locator(f"#{ids.LOSSES}").bounding_box(), switches.bounding_box()
    assert below is not None and above is not None and above["y"] + above["height"] <= below["y"]
    choose(page, page.keyboard.press, "Escape")
    expect(switches).to_be_hidden()
    choose(page, page.locator(f"#{ids.RIGHT_OFF_LINE}").click)
    expect(switches).to_be_visible()
    choose(page, caption.click)
    expect(switches).to_be_hidden()
    in_the_first_screen(page, ids.DIFFERENCE)


def test_a_hover_and_a_lock_are_in_all_three_maps_and_ask_the_server_nothing(open_page, services: Core):
    page = open_page(compare(right_off=((0, 1),), position=4), load=True)
    drawn(page, "1.0", "1.0")
    locked(page, 4, 4, 4)
    settled(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "icon" not in request.url else None)
    point(page, ids.LEFT_CANVAS, 5, 2)
    results = [services.inference.analyse("tiny-mhsa", SHORT, off=off) for off in ((), ((0, 1),))]
    left, right = (float(result.patterns.pattern[1, 0, 5, 2]) for result in results)
    tip = page.locator(f"#{ids.LEFT_CANVAS} .map-tip")
    expect(tip).to_contain_text(f"attention {left:.4f}")
    said = page.evaluate(SAID, list(MAPS))
    for sentence, value in zip(said, (left, right, right - left), strict=True):
        assert f"attention {value:.4f}" in sentence
    chips = "chips => chips.map(c => c.dataset.position)"
    assert page.eval_on_selector_all(".chip-here", chips) == ["2", "5"]
    # A token locks its row everywhere; Escape lets go.
    choose(page, page.locator(f"#{ids.STRIP} .chip").nth(7).click)
    written(page, "position", "7")
    locked(page, 7, 7, 7)
    choose(page, page.keyboard.press, "Escape")
    written(page, "position", None)
    locked(page, None, None, None)
    # Another head, without position 0.
    choose(page, page.fill, f"#{ids.HEAD}", "1.2")
    choose(page, page.get_by_role("option", name="1.2").click)
    drawn(page, "1.2", "1.2")
    choose(page, page.locator(f"label:has(#{ids.HIDE_FIRST})").click)
    written(page, "sink", "hide")
    assert asked == []


def test_two_models_their_pairs_and_other_texts(open_page):
    page = open_page(compare(right="tiny-mssa"))
    line = page.locator(f"#{ids.PAIR_LINE}")
    expect(line).to_contain_text("similarity")
    opened(page, "All pairs")
    pairs = page.locator(f"#{ids.GALLERY} .pair")
    expect(pairs).to_have_count(6)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.pair canvas')].every(one => one.width === one.height)"
    )
    wanted = {name: pairs.nth(4).get_attribute(f"data-{name}") for name in ("left", "right")}
    choose(page, pairs.nth(4).click)
    drawn(page, wanted["left"], wanted["right"])
    expect(line).to_contain_text(f"Head {wanted['left']} is matched with head {wanted['right']}")
    assert query(page)["other-head"] == wanted["right"]
    # Another text: two strips, and a difference where tokens correspond.
    choose(page, page.locator(f"label:has(#{ids.ANOTHER})").click)
    choose(page, page.fill, f"#{ids.OTHER}", "She danced.")
    choose(page, page.keyboard.press, "Control+Enter")
    written(page, "other", "She danced.")
    expect(page.locator(f"#{ids.DIFFERENCE}")).to_contain_text("stand beside each other")
    expect(page.locator(f"#{ids.OTHER_STRIP} .chip")).not_to_have_count(0)
    settled(page)
    choose(page, page.locator(f"#{ids.OTHER_STRIP} .chip").nth(2).click)
    written(page, "other-position", "2")
    assert "position" not in query(page)
    # Sides change places, and the address leads to the same view again.
    choose(page, page.click, f"#{ids.SWAP}")
    written(page, "left", "tiny-mssa")
    settled(page)
    # Nothing is left of maps where a text cannot be run.
    choose(page, page.fill, f"#{ids.TEXT}", "word " * 99)
    choose(page, page.click, f"#{ids.RUN}")
    expect(page.locator(f"#{shell.notice(ids.FORM)}")).to_contain_text("At the left")
    expect(page.locator(f"#{ids.LEFT_CANVAS} canvas")).to_be_hidden()
    expect(page.locator(f"#{shell.notice(ids.LOSSES)}")).to_be_hidden()


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
