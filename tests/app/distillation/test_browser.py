"""The Distillation page in a real Chromium: look, click a head, read a text, distil; a console without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from app.pages.distillation.address import ADDRESS, DistillationState
from app.pages.distillation.ids import PANELS, ids
from app.pages.distillation.service import Distillations
from app.shell import ids as shell
from tests.app.conftest import (
    choose,
    entry,
    fits,
    focused,
    head_drawn,
    in_the_first_screen,
    query,
    seen,
    settled,
    written,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

BOTH = ("tiny-mhsa", "tiny-mssa")
SHORT = "The captain bowed to the captain."


def distillation(**state: Any) -> str:
    return ADDRESS.format(DistillationState(**{"results": BOTH, "width": 4, "text": SHORT, **state}))


def drawn(page: Page, title: str | None = None) -> None:
    """Waits until the head is the one of `title`, nothing is under way, and it stands beside the errors of all."""
    seen(page, ids.GRID)
    seen(page, ids.ONE)
    if title:
        page.locator(f"#distillation-one-title >> text='{title}'").wait_for()
    settled(page)
    page.wait_for_function(
        """() => document.querySelector("#distillation-grid-graph .heatmaplayer image")
            && document.querySelector("#distillation-one-graph .barlayer .trace")"""
    )


def read(page: Page) -> None:
    """Opens the panel of a text and waits until tokens and map are there."""
    seen(page, ids.ON_TEXT)
    page.wait_for_function(
        """() => document.querySelectorAll("#distillation-strip .chip").length
            && document.querySelector("#distillation-canvas[data-head]")"""
    )


def test_models_stand_side_by_side(open_page, distilled: Distillations):
    page = open_page(distillation())
    found = distilled.record("tiny-mhsa").distillation
    first = found.order(4)[0]
    drawn(page, f"Head {first[0]}.{first[1]} of tiny-mhsa")
    expect(page.locator("#distillation-grid-graph .heatmaplayer image")).to_have_count(2)
    page.wait_for_function(
        """errors => {
            const texts = document.querySelectorAll("#distillation-grid-graph .textpoint");
            const shown = [...texts].map(one => one.textContent);
            return errors.every(error => shown.some(text => text.includes(error)));
        }""",
        arg=[f"{error:.2f}" for error in found.mean_error(4)],
    )
    expect(page.locator(f"#{ids.DATA} li")).to_have_count(2)
    expect(page.locator(f"#{ids.DATA} li").nth(1)).to_contain_text("MSSA, 3 × 2 heads")
    expect(page.locator(f"#{ids.MEANING}")).to_contain_text("says nothing of architectures")
    in_the_first_screen(page, ids.GRID)
    in_the_first_screen(page, ids.ONE)
    # What is shut has asked for nothing.
    assert page.locator(f"#{ids.COSTS}").get_attribute("aria-busy") == "true"
    for panel in (ids.WIDTHS, ids.CLOUD, ids.CURVE, ids.COSTS):
        seen(page, panel)
        page.locator(f"#{shell.graph(panel)} .scatterlayer .trace").first.wait_for()
    written(page, "view", "replaced")
    written(page, "beside", "curve")
    expect(page.locator(f"#{shell.caption(ids.COSTS)}")).to_contain_text("Not measured for tiny-mssa")


@pytest.mark.visit
def test_click_a_head(open_page, distilled: Distillations):
    page = open_page(distillation())
    drawn(page)
    grid = page.locator("#distillation-grid-graph .nsewdrag").nth(1)
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    assert box is not None
    place = {"x": 0.75 * box["width"], "y": box["height"] * 5 / 6}  # 3 layers × 2 heads: head 2.1
    grid.hover(position=place)
    page.locator("#distillation-grid-graph .hovertext").first.wait_for()
    choose(page, grid.click, position=place)
    drawn(page, "Head 2.1 of tiny-mssa")
    written(page, "head", "2.1")
    written(page, "of", "tiny-mssa")
    found = distilled.record("tiny-mssa").distillation
    error = found.mean_error(4)[found.place((2, 1))]
    expect(page.locator(f"#{shell.caption(ids.ONE)}")).to_contain_text(f"error {error:.3f}")
    # The buttons are now this model's; and the table leads back.
    choose(page, page.click, '#distillation-heads .pick-head[data-layer="1"][data-head="0"]')
    drawn(page, "Head 1.0 of tiny-mssa")
    seen(page, ids.ALL)
    row = page.locator("#distillation-all-table .ag-row[row-id='tiny-mhsa:0.2'] [col-id=name]")
    choose(page, row.click)
    drawn(page, "Head 0.2 of tiny-mhsa")
    seen(page, ids.ALL)
    page.locator("#distillation-all-table .ag-row[row-id='tiny-mhsa:0.1'] [col-id=name]").focus()
    focused(page, ".ag-row[row-id='tiny-mhsa:0.1'] [col-id=name]")
    choose(page, page.keyboard.press, "Enter")
    drawn(page, "Head 0.1 of tiny-mhsa")


def test_the_whole_state_is_in_the_address(open_page):
    state = {"width": 2, "across": "previous_token", "of": "tiny-mssa", "head": (1, 1), "results": ("tiny-mssa",)}
    page = open_page(distillation(**state), load=True)
    drawn(page, "Head 1.1 of tiny-mssa")
    expected = {
        "results": "tiny-mssa",
        "width": "2",
        "across": "previous_token",
        "of": "tiny-mssa",
        "head": "1.1",
        "text": SHORT,
        "corpus": "book.txt",
    }
    for key, value in expected.items():
        written(page, key, value)
    assert query(page) == expected
    first = page.url
    page.reload()
    drawn(page, "Head 1.1 of tiny-mssa")
    assert page.url == first
    expect(page.locator(f"#{ids.TEXT}")).to_have_value(SHORT)
    choose(page, page.click, f"#{ids.WIDTH} >> text='4'")
    written(page, "width", "4")


def test_a_text_is_coloured_by_the_error_and_opens_in_heads(open_page, distilled: Distillations):
    page = open_page(distillation(of="tiny-mhsa", head=(1, 2)))
    drawn(page, "Head 1.2 of tiny-mhsa")
    shown, _ = distilled.describe(DistillationState(results=BOTH, width=4, of="tiny-mhsa", head=(1, 2)))
    read(page)
    other = "She said that he danced."
    choose(page, page.fill, f"#{ids.TEXT}", other)
    choose(page, page.keyboard.press, "Control+Enter")
    written(page, "text", other)
    assert shown is not None
    errors, _, result = distilled.on_text(shown, other)
    assert errors is not None
    page.wait_for_function(
        "n => document.querySelectorAll('#distillation-strip .chip').length === n", arg=result.patterns.n_pos
    )
    page.locator(f"#{shell.caption(ids.ON_TEXT)} >> text={errors.error:.3f}").wait_for()
    settled(page)
    values = page.evaluate(
        "() => [...document.querySelectorAll('#distillation-strip .chip')].map(c => c.dataset.value)"
    )
    np.testing.assert_allclose([float(value) for value in values], errors.relative, atol=0.006)
    heats = page.evaluate(
        """() => [...document.querySelectorAll('#distillation-strip .chip')]
            .map(chip => parseInt(chip.style.getPropertyValue('--heat')))"""
    )
    assert int(np.argmax(heats)) == int(np.argmax(errors.relative))
    choose(page, page.fill, f"#{ids.TEXT}", "captain " * 200)
    choose(page, page.click, f"#{ids.RUN}")
    page.locator(f"#{shell.notice(ids.ON_TEXT)} >> text=Nothing was cut").wait_for()
    choose(page, page.fill, f"#{ids.TEXT}", SHORT)
    choose(page, page.click, f"#{ids.RUN}")
    page.wait_for_function("() => document.querySelectorAll('#distillation-strip .chip').length")
    settled(page)
    choose(page, page.click, f"#{ids.OPEN}")
    head_drawn(page, "Head 1.2")
    opened = query(page)
    assert opened["checkpoint"] == "tiny-mhsa" and opened["head"] == "1.2" and opened["text"] == SHORT


def test_the_map_of_a_text_says_the_numbers_and_follows_the_head(open_page, distilled: Distillations):
    page = open_page(distillation(of="tiny-mhsa", head=(1, 1), beside="text"))
    read(page)
    settled(page)
    pattern = distilled.inference.analyse("tiny-mhsa", SHORT).patterns.pattern
    canvas = page.locator(f"#{ids.CANVAS} canvas")
    canvas.scroll_into_view_if_needed()
    tip = page.locator(f"#{ids.CANVAS} .map-tip")
    page.mouse.move(*entry(page, 4, 2, ids.CANVAS))
    expect(tip).to_contain_text(f"{float(pattern[1, 1, 4, 2]):.4f}")
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()
    canvas.focus()
    choose(page, page.keyboard.press, "ArrowDown")  # the first entry, and then the one below
    choose(page, page.keyboard.press, "ArrowDown")
    expect(page.locator(f"#{ids.CANVAS} .said")).to_contain_text(f"{float(pattern[1, 1, 1, 0]):.4f}")
    choose(page, page.get_by_role("tab", name="One head").click)
    choose(page, page.click, f"#{ids.HEADS} .pick-head[data-layer='0'][data-head='2']")
    choose(page, page.get_by_role("tab", name="On a text").click)
    expect(page.locator(f"#{ids.CANVAS}[data-head='0.2']")).to_be_visible()


def test_what_is_wrong_is_said(open_page):
    page = open_page(distillation(results=("bad", "tiny-mssa", "nobody")))
    drawn(page)
    notices = page.locator(f"#{shell.notice(ids.PANEL)} .notice")
    notices.nth(1).wait_for()
    assert "bad can't be read" in notices.nth(0).inner_text() and "nobody" in notices.nth(1).inner_text()
    page = open_page(distillation(results=("bad",)))
    notices.first.wait_for()
    page.wait_for_selector("#distillation-body[data-empty]")
    assert "Nothing to show" in page.evaluate(
        "() => getComputedStyle(document.querySelector('#distillation-grid .panel-content'), '::before').content"
    )


def test_a_checkpoint_is_distilled_here(open_page, distilled: Distillations):
    page = open_page(distillation(results=("tiny-mhsa",)))
    drawn(page)
    choose(page, page.get_by_role("tab", name="Distil a checkpoint").click)
    choose(page, page.fill, f"#{ids.FORM_HEADS}", "nonsense")
    choose(page, page.click, f"#{shell.start(ids.FORM)}")
    page.locator(f"#{shell.notice(ids.FORM)} >> text=layer.head").wait_for()
    choose(page, page.fill, f"#{ids.FORM_HEADS}", "1.1")
    choose(page, page.fill, f"#{ids.FORM_SEEDS}", "1")
    choose(page, page.click, f"#{shell.start(ids.FORM)}")
    page.locator(f"#{shell.progress(ids.FORM)} >> text=done.").wait_for()
    made = [entry.key for entry in distilled.list() if entry.source == "made here"]
    assert len(made) == 1
    written(page, "results", f"tiny-mhsa,{made[0]}")
    page.wait_for_function(
        "() => document.querySelectorAll('#distillation-grid-graph .heatmaplayer image').length === 2"
    )
    expect(page.locator(f"#{ids.DATA} li").nth(1)).to_contain_text("book.txt")


def test_narrow_and_dark(open_page):
    page = open_page(distillation(), width=800, scheme="dark")
    drawn(page)
    for panel in PANELS:
        seen(page, panel)
    fits(page)
    drawn(page)
    frame = "() => document.getElementById('distillation-grid').getBoundingClientRect().width"
    assert page.evaluate(frame) > 700


def test_the_text_is_whole_and_a_linear_map_has_no_curve(open_page):
    page = open_page(distillation(text="The captain\nbowed\nto the\ncaptain.", of="tiny-mhsa", head=(0, 1)), load=True)
    drawn(page)
    read(page)
    page.wait_for_function(
        "id => { const box = document.getElementById(id); return box.scrollHeight <= box.clientHeight + 1; }",
        arg=ids.TEXT,
    )
    seen(page, ids.CURVE)
    choose(page, page.click, f"#{ids.WIDTH} >> text='linear'")
    page.locator("#distillation-curve-notice >> text=not trained").wait_for()
