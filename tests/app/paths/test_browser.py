"""The Paths page in a real Chromium: choose, contrast, take away, follow links; a console without errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aotlens.views.paths import TOP, WITHOUT
from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids as heads
from app.pages.paths.address import ADDRESS, PathsState
from app.pages.paths.ids import VIEWS, ids
from app.pages.paths.service import Paths
from app.shell import ids as shell
from tests.app.conftest import (
    SCHEMES,
    choose,
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

SHORT = "The captain bowed to the captain."


def at(**state: Any) -> str:
    return ADDRESS.format(PathsState(**{"checkpoint": "tiny-mhsa", "text": SHORT, **state}))


def drawn(page: Page, n_paths: int = 20) -> None:
    """Waits until the table, the sums and the address are there, and nothing is under way."""
    seen(page, ids.TOP)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function(
        "n => document.querySelectorAll('table.paths tbody tr').length === n && location.search.includes('target=')",
        arg=n_paths,
    )
    settled(page)


def test_a_text_is_explained(open_page, paths: Paths):
    page = open_page(at(position=4))
    drawn(page)
    chosen = paths.values({"checkpoint": "tiny-mhsa", "text": SHORT}, 4)
    assert query(page)["target"] == str(chosen.target) and query(page)["position"] == "4"
    values = paths.workshop.result(TOP, chosen).values
    first = page.locator("table.paths tbody tr").first
    assert f"{abs(values[0]):.3f}" in first.inner_text() and "→ logit" in first.inner_text()
    assert "Sum of paths − model logit" in page.locator(f"#{ids.SUM}").inner_text()
    assert "Exact top" in page.locator(f"#{shell.caption(ids.TOP)}").inner_text()
    assert page.locator("#paths-strip .chip-locked").get_attribute("data-position") == "4"


def test_the_whole_state_is_in_the_address(open_page):
    state = {"position": 6, "target": 40, "versus": 41, "by": "neg", "k": 7, "without": "token@2-0.1-1.0"}
    state |= {"beside": "without"}
    page = open_page(at(**state, through=(1, 1)))
    state["through"] = "1.1"
    drawn(page, 7)
    page.wait_for_selector("table.effect")
    settled(page)
    found = query(page)
    assert {key: found[key] for key in state} == {key: str(value) for key, value in state.items()}
    assert "Without the path" in page.locator(f"#{shell.title(ids.WITHOUT)}").inner_text()
    first = page.url
    page.reload()
    drawn(page, 7)
    page.wait_for_selector("table.effect")
    assert page.url == first


def test_the_largest_paths_are_in_the_first_screen(open_page):
    page = open_page(at(position=4))
    drawn(page)
    in_the_first_screen(page, ids.TOP)
    in_the_first_screen(page, ids.ORDERS)
    # A closed panel has asked for nothing.
    assert page.locator("#paths-flow").get_attribute("aria-busy") == "true"
    seen(page, ids.FLOW)
    page.locator("#paths-flow-graph .sankey-link").first.wait_for()
    written(page, "view", "flow")


@pytest.mark.visit
def test_choose_a_token_a_target_and_a_contrast(open_page, paths: Paths):
    page = open_page(at())
    drawn(page)
    choose(page, page.locator("#paths-strip .chip").nth(3).click)
    written(page, "position", "3")
    labels = paths.labels("tiny-mhsa")
    for id, key, text in ((ids.TARGET, "target", "captain"), (ids.VERSUS, "versus", "bow")):
        wanted = labels.search(text, 1)[0]
        settled(page)  # the answer to the choice before writes into this box
        choose(page, page.click, f"#{id}")
        choose(page, page.fill, f"#{id}", text)
        expect(page.get_by_role("option").first).to_have_text(labels.shown(wanted))
        choose(page, page.keyboard.press, "Enter")  # takes the first
        written(page, key, str(wanted))
    drawn(page)
    page.locator("table.paths tbody tr .end >> text=−").first.wait_for()
    choose(page, page.click, f"#{ids.BY} >> text=most for it")
    written(page, "by", "pos")


def test_take_a_path_and_a_head_away(open_page, paths: Paths):
    page = open_page(at(position=4))
    drawn(page)
    seen(page, ids.WITHOUT)
    assert "Click “without”" in page.locator(f"#{shell.body(ids.WITHOUT)}").inner_text()
    seen(page, ids.ORDERS)
    button = page.locator("table.paths .take-away").nth(1)
    key = button.get_attribute("data-without")
    choose(page, button.click)
    page.wait_for_selector("table.effect")
    assert key
    written(page, "without", key)
    expect(button).to_have_attribute("aria-pressed", "true")
    written(page, "beside", "without")
    seen(page, ids.HEADS)
    choose(page, page.click, "#paths-heads-table .ag-row [col-id='head'] >> nth=0")
    page.wait_for_function(
        "() => document.getElementById('paths-without-title').textContent.startsWith('Without head')"
    )
    head = query(page)["without"]
    chosen = paths.values({"checkpoint": "tiny-mhsa", "text": SHORT}, 4, without=head)
    forward = paths.workshop.result(WITHOUT, chosen).forward[0]
    assert f"{abs(forward):.3f}" in page.locator("table.effect").inner_text()
    expect(page.locator("table.paths .take-away[aria-pressed='true']")).to_have_count(0)


def test_the_table_of_heads_by_mouse_and_by_keys(open_page):
    """Enter does what a click does: on a head, take it away or put it back; on its sum, list the paths through it."""
    page = open_page(at(position=4))
    drawn(page)
    seen(page, ids.HEADS)
    head = page.locator("#paths-heads-table .ag-row[row-index='0'] [col-id='head']")
    expect(head).to_have_text(re.compile(r"\d\.\d"))
    name = head.inner_text()
    choose(page, head.click)
    written(page, "without", name)
    settled(page)
    choose(page, head.click)
    written(page, "without", None)
    page.locator(f"#{shell.body(ids.WITHOUT)} >> text=Click “without”").wait_for()
    settled(page)
    focused(page, "#paths-heads-table .ag-row[row-index='0'] [col-id='head']")
    choose(page, page.keyboard.press, "Enter")
    written(page, "without", name)
    choose(page, page.keyboard.press, "ArrowRight")
    focused(page, "#paths-heads-table .ag-row[row-index='0'] [col-id='through']")
    choose(page, page.keyboard.press, "Enter")
    written(page, "through", name)
    title = page.locator(f"#{shell.title(ids.TOP)}")
    expect(title).to_have_text(f"Largest paths through {name}")
    settled(page)
    steps = page.evaluate(
        """() => [...document.querySelectorAll("table.paths .sentence")].map(
            one => [...one.querySelectorAll(".step")].map(step => step.textContent))"""
    )
    assert steps and all(name in one for one in steps)
    expect(page.locator(f"#{shell.caption(ids.TOP)}")).to_contain_text(f"through head {name}")
    written(page, "view", None)  # the paths are in view
    seen(page, ids.HEADS)
    other = page.locator("#paths-heads-table .ag-row[row-index='1']")
    row = other.get_attribute("row-id")
    assert row and row != name
    choose(page, other.locator("[col-id='through']").click)
    written(page, "through", row)
    expect(title).to_have_text(f"Largest paths through {row}")
    settled(page)
    # In the table of paths, too, keys reach the heads and the buttons.
    button = page.locator("table.paths .take-away").first
    page.locator("table.paths .step").first.focus()
    for _ in range(20):
        choose(page, page.keyboard.press, "Tab")
        if button.evaluate("button => button === document.activeElement"):
            break
    choose(page, page.keyboard.press, "Enter")
    written(page, "without", button.get_attribute("data-without"))


def test_a_head_on_a_text_leads_to_the_paths_through_it(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text=SHORT, head=(1, 2), position=4)))
    head_drawn(page, "Head 1.2")
    expect(page.locator(f"#{heads.OPEN_PATHS}")).to_have_attribute("href", re.compile("position=4.*through=1.2"))
    choose(page, page.click, f"#{heads.OPEN_PATHS}")
    page.wait_for_selector("table.paths tbody tr")
    settled(page)
    drawn(page, page.locator("table.paths tbody tr").count())
    found = query(page)
    assert (found["checkpoint"], found["text"], found["position"], found["through"]) == ("tiny-mhsa", SHORT, "4", "1.2")
    steps = page.locator("table.paths .sentence").first.locator(".step")
    assert "1.2" in steps.all_inner_texts()
    choose(page, steps.first.click)
    page.wait_for_selector("#heads-map-title")
    page.wait_for_function("() => location.pathname === '/heads'")
    settled(page)
    assert query(page)["text"] == SHORT and query(page)["checkpoint"] == "tiny-mhsa"


def test_a_head_of_a_path_opens_on_the_heads_page(open_page):
    page = open_page(at(position=4))
    drawn(page)
    link = page.locator("table.paths .step").first
    head = link.inner_text()
    choose(page, link.click)
    head_drawn(page, f"Head {head}")
    assert query(page)["text"] == SHORT
    page.go_back()
    drawn(page)
    assert query(page)["position"] == "4"


def test_a_new_text_is_run_and_one_that_is_too_long_is_refused(open_page):
    page = open_page(at(position=4, target=40))
    drawn(page)
    choose(page, page.fill, f"#{ids.TEXT}", "She bowed. She")
    choose(page, page.keyboard.press, "Control+Enter")
    written(page, "text", "She bowed. She")
    drawn(page)
    assert query(page)["target"] != "40"
    notice = page.locator(f"#{shell.notice(ids.PANEL)}")
    choose(page, page.fill, f"#{ids.TEXT}", " " * 10_000)
    choose(page, page.click, f"#{ids.RUN}")
    notice.locator("text=at most 48").wait_for()
    page.locator("table.paths").wait_for(state="hidden")
    assert len(page.input_value(f"#{ids.TEXT}")) == 10_000
    choose(page, page.fill, f"#{ids.TEXT}", "x" * 30_000)
    choose(page, page.click, f"#{ids.RUN}")
    notice.locator("text=30,000 characters").wait_for()
    settled(page)
    page.locator("table.paths").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page(at(without="1.0"), width=800, scheme=scheme)
    drawn(page)
    for panel in VIEWS:
        seen(page, panel)
    fits(page)


def test_export(open_page):
    page = open_page(at(without="1.0"))
    drawn(page)
    starts = {"csv": b'"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for panel, kinds in {ids.FLOW: starts, ids.ORDERS: starts, ids.WITHOUT: ("csv",), ids.TOP: ("csv",)}.items():
        seen(page, panel)
        page.locator(f"#{panel} :is(.js-plotly-plot .bars, .sankey-link, table)").first.wait_for()
        for kind in kinds:
            choose(page, page.click, f"#{panel}-export")
            with page.expect_download() as download:
                choose(page, page.click, f"#{shell.export(panel, kind)}")
            with open(download.value.path(), "rb") as file:
                assert file.read(40).startswith(starts[kind]), (panel, kind)


def test_numbers_under_tokens_are_whole_and_buttons_over_graphs_are_icons(open_page):
    page = open_page(at(position=4))
    drawn(page)
    cut = """() => [...document.querySelectorAll("#paths-strip .chip")]
        .filter(chip => chip.scrollWidth > chip.clientWidth).map(chip => chip.dataset.value)"""
    assert page.evaluate(cut) == []
    page.locator("#paths-orders-graph .nsewdrag").hover()
    behind = """() => [...document.querySelectorAll("#paths-orders-graph .modebar-btn svg")]
        .map(icon => getComputedStyle(icon).backgroundColor)"""
    assert set(page.evaluate(behind)) == {"rgba(0, 0, 0, 0)"}
