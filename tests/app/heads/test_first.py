"""The first picture of Heads, which is drawn before Dash has started, and what Dash makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import act, head_drawn, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

SHORT = "The captain bowed to the captain."
OPENED = HEADS.format(HeadsState(checkpoint="tiny-mhsa", text=SHORT, head=(1, 0)))
RENDERER = re.compile("dash_renderer")


def corner(page: Page, selector: str) -> list[float]:
    return page.eval_on_selector(
        selector, "e => { const { left, top, width } = e.getBoundingClientRect(); return [left, top, width]; }"
    )


@pytest.mark.parametrize("width", [1440, 800, 390])
def test_the_first_maps_are_there_before_dash_and_stay_where_they_are(open_page, tab, width: int):
    """Also what is chosen meanwhile, and the focus; the address `/?…` is that of Heads."""
    page, _ = tab
    held: list[Route] = []
    page.route(RENDERER, lambda route: held.append(route))
    page = open_page(OPENED.replace("/heads", "/"), load=True, width=width)
    expect(page.locator(".first [data-part=heads-map-canvas]")).to_have_attribute("data-head", "1.0")
    assert page.evaluate("[typeof window.DashRenderer, document.querySelector('.first #react-entry-point')]") == [
        "undefined", None,
    ]  # fmt: skip
    page.locator(".first .cell[data-layer='1'][data-head='0']").focus()
    act(page.keyboard.press, "ArrowRight")
    expect(page.locator(".first [data-part=heads-map-canvas]")).to_have_attribute("data-head", "1.1")
    parts = ("heads-strip", "heads-grid-cells", "heads-map-canvas")
    before = [corner(page, f".first [data-part={part}]") for part in parts]
    for route in held:
        route.continue_()
    page.unroute(RENDERER)
    expect(page.locator(".first")).to_have_count(0)
    head_drawn(page, "Head 1.1")
    # On a narrow screen controls and the map's line of motifs, which come later, take more lines.
    for part, (left, top, breadth) in zip(parts, before, strict=True):
        now = corner(page, f"#{part}")
        assert now == pytest.approx([left, top if width > 400 else now[1], breadth], abs=1)
    assert page.evaluate("document.activeElement.dataset.head") == "1"
    written(page, "head", "1.1")
    settled(page)
    # Another page and back: what React clears and what it does not.
    page.evaluate("history.pushState({}, '', '/checkpoints')")
    page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    page.wait_for_selector("#checkpoints-table tbody tr")
    page.go_back()
    head_drawn(page, "Head 1.1")
    expect(page.locator(".first")).to_have_count(0)


def test_a_text_that_cannot_be_read_leaves_the_word_to_the_page(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="x " * 200)), load=True)
    expect(page.locator(f"#{shell.notice(ids.PROMPT_PANEL)}")).to_contain_text("at most 48")
    expect(page.locator(".first")).to_have_count(0)


def test_figures_are_not_loaded_with_heads(open_page):
    page = open_page(OPENED, load=True)
    head_drawn(page, "Head 1.0")
    settled(page)
    loaded = page.evaluate("performance.getEntriesByType('resource').map(each => each.name).join()")
    assert "dash_renderer" in loaded and "plotly" not in loaded


@pytest.mark.parametrize("typed", ["</div><script>x</script>", "{%scripts%}{%app_entry%}", "\"'><b>"])
def test_what_somebody_typed_is_text_in_the_first_picture(app: App, typed: str):
    page = app.server.test_client().get(f"/heads?checkpoint=tiny-mhsa&text={quote(typed)}").text
    plain = app.server.test_client().get("/heads?checkpoint=tiny-mhsa&text=x").text
    tags = re.compile("<[a-z]+")
    assert tags.findall(page) == tags.findall(plain)
    assert page.count('id="react-entry-point"') == 1
    assert 'class="first"' not in app.server.test_client().get("/atlas").text
