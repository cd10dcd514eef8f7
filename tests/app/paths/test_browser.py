"""The Paths page in a real Chromium: choose, contrast, take away, follow links; a console without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from app import ids
from app.services import Services
from app.urlstate import HeadsState, PathsState, format_heads, format_paths
from tests.app.conftest import query, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."


def paths(**state: Any) -> str:
    return format_paths(PathsState(**{"checkpoint": "tiny-mhsa", "text": SHORT, **state}))


def drawn(page: Page, n_paths: int = 20) -> None:
    """Waits until the table, both figures and the address are there."""
    page.wait_for_function(
        """n => document.querySelectorAll("table.paths tbody tr").length === n
            && document.querySelectorAll("#path-orders-graph .bars .point").length > 0
            && document.querySelectorAll("#path-flow-graph .sankey-link").length > 0
            && document.querySelectorAll("#path-heads-table .ag-row").length > 0
            && location.search.includes("target=")""",
        arg=n_paths,
    )


def test_a_text_is_explained(open_page, services: Services):
    page = open_page(paths(position=4))
    drawn(page)
    question = services.paths.question(services.paths.expand("tiny-mhsa", SHORT), 4, None, None, "abs", 20)
    assert query(page)["target"] == str(question.target) and query(page)["position"] == "4"
    values = services.paths.top(question).values
    first = page.locator("table.paths tbody tr").first
    assert f"{abs(values[0]):.3f}" in first.inner_text() and "→ logit" in first.inner_text()
    assert "Sum of paths − model logit" in page.locator(f"#{ids.PATHS_SUM}").inner_text()
    assert "ranks are proven" in page.locator(f"#{ids.TOP_PATHS_CAPTION}").inner_text()
    assert page.locator("#paths-strip .chip-locked").get_attribute("data-position") == "4"


def test_the_whole_state_is_in_the_address(open_page):
    state = {"position": 6, "target": 40, "versus": 41, "by": "neg", "k": 7, "without": "token@2-0.1-1.0"}
    state["through"] = "1.1"
    page = open_page(paths(**state))
    drawn(page, 7)
    page.wait_for_selector("table.effect")
    found = query(page)
    assert {key: found[key] for key in state} == {key: str(value) for key, value in state.items()}
    assert "Without the path" in page.locator(f"#{ids.title(ids.WITHOUT)}").inner_text()
    first = page.url
    page.reload()
    drawn(page, 7)
    page.wait_for_selector("table.effect")
    assert page.url == first


def test_choose_a_token_a_target_and_a_contrast(open_page, services: Services):
    page = open_page(paths())
    drawn(page)
    page.locator("#paths-strip .chip").nth(3).click()
    page.wait_for_function("() => location.search.includes('position=3')")
    labels = services.paths.labels("tiny-mhsa")
    for id, key, text in ((ids.PATHS_TARGET, "target", "captain"), (ids.PATHS_VERSUS, "versus", "bow")):
        wanted = labels.search(text, 1)[0]
        page.click(f"#{id}")
        page.fill(f"#{id}", text)
        option = page.get_by_role("option", name=labels.shown(wanted), exact=True)
        option.first.click()
        page.wait_for_function("want => location.search.includes(want)", arg=f"{key}={wanted}")
    drawn(page)
    page.locator("table.paths tbody tr .end >> text=−").first.wait_for()
    page.click(f"#{ids.PATHS_BY} >> text=most for it")
    page.wait_for_function("() => location.search.includes('by=pos')")


def test_take_a_path_and_a_head_away(open_page, services: Services):
    page = open_page(paths(position=4))
    drawn(page)
    assert "Click “without”" in page.locator(f"#{ids.WITHOUT_BODY}").inner_text()
    button = page.locator("table.paths .take-away").nth(1)
    key = button.get_attribute("data-without")
    button.click()
    page.wait_for_selector("table.effect")
    assert query(page)["without"] == key
    assert button.get_attribute("aria-pressed") == "true"
    page.click("#path-heads-table .ag-row [col-id='head'] >> nth=0")
    page.wait_for_function("() => document.getElementById('without-title').textContent.startsWith('Without head')")
    head = query(page)["without"]
    question = services.paths.question(services.paths.expand("tiny-mhsa", SHORT), 4, None, None, "abs", 20)
    forward = services.paths.without(question, head).frame.loc["logit", "forward"]
    assert f"{abs(forward):.3f}" in page.locator("table.effect").inner_text()
    assert page.locator("table.paths .take-away[aria-pressed='true']").count() == 0


def test_the_table_of_heads_by_mouse_and_by_keys(open_page):
    """Enter does what a click does: on a head, take it away or put it back; on its sum, list the paths through it."""
    page = open_page(paths(position=4))
    drawn(page)
    head = page.locator("#path-heads-table .ag-row [col-id='head']").nth(0)
    name = head.inner_text()
    head.click()
    written(page, "without", name)
    head.click()
    written(page, "without", None)
    page.locator(f"#{ids.WITHOUT_BODY} >> text=Click “without”").wait_for()
    page.keyboard.press("Enter")
    written(page, "without", name)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    written(page, "through", name)
    page.wait_for_function(
        """name => [...document.querySelectorAll("table.paths .sentence")].every(
            one => [...one.querySelectorAll(".step")].some(step => step.textContent === name))""",
        arg=name,
    )
    assert page.locator(f"#{ids.title(ids.TOP_PATHS)}").inner_text() == f"Largest paths through {name}"
    assert f"through head {name}" in page.locator(f"#{ids.TOP_PATHS_CAPTION}").inner_text()
    other = page.locator("#path-heads-table .ag-row [col-id='through']").nth(1)
    row = other.locator("xpath=..").get_attribute("row-id")
    other.click()
    written(page, "through", row)
    # In the table of paths, too, keys reach the heads and the buttons.
    button = page.locator("table.paths .take-away").first
    page.locator("table.paths .step").first.focus()
    while not button.evaluate("button => button === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    written(page, "without", button.get_attribute("data-without"))


def test_a_head_on_a_text_leads_to_the_paths_through_it(open_page):
    page = open_page(format_heads(HeadsState(checkpoint="tiny-mhsa", text=SHORT, head=(1, 2), position=4)))
    page.wait_for_function(
        "() => document.getElementById('heads-open-paths')?.getAttribute('href').includes('through=1.2')"
    )
    page.click(f"#{ids.OPEN_PATHS}")
    page.wait_for_selector("table.paths")
    drawn(page, page.locator("table.paths tbody tr").count())
    found = query(page)
    assert (found["checkpoint"], found["text"], found["position"], found["through"]) == ("tiny-mhsa", SHORT, "4", "1.2")
    steps = page.locator("table.paths .sentence").first.locator(".step")
    assert "1.2" in steps.all_inner_texts()
    steps.first.click()
    page.wait_for_selector("#map-title")
    assert query(page)["text"] == SHORT and query(page)["checkpoint"] == "tiny-mhsa"


def test_a_head_of_a_path_opens_on_the_heads_page(open_page):
    page = open_page(paths(position=4))
    drawn(page)
    link = page.locator("table.paths .step").first
    head = link.inner_text()
    link.click()
    page.wait_for_function("head => document.getElementById('map-title')?.textContent === 'Head ' + head", arg=head)
    assert query(page)["text"] == SHORT
    page.go_back()
    drawn(page)
    assert query(page)["position"] == "4"


def test_a_new_text_is_run_and_one_that_is_too_long_is_refused(open_page):
    page = open_page(paths(position=4, target=40))
    drawn(page)
    page.fill(f"#{ids.PATHS_TEXT}", "She bowed. She")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => new URLSearchParams(location.search).get('text') === 'She bowed. She'")
    drawn(page)
    assert query(page)["target"] != "40"
    notice = page.locator(f"#{ids.notice(ids.PATHS_PANEL)}")
    page.fill(f"#{ids.PATHS_TEXT}", " " * 10_000)
    page.click(f"#{ids.PATHS_RUN}")
    notice.locator("text=at most 48").wait_for()
    assert len(page.input_value(f"#{ids.PATHS_TEXT}")) == 10_000
    page.fill(f"#{ids.PATHS_TEXT}", "x" * 30_000)
    page.click(f"#{ids.PATHS_RUN}")
    notice.locator("text=30,000 characters").wait_for()
    assert page.locator("table.paths").count() == 0 or not page.locator("table.paths").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page(paths(without="1.0"), width=800, scheme=scheme)
    drawn(page)
    page.wait_for_selector("table.effect")
    assert page.evaluate("document.documentElement.scrollWidth") <= 800


def test_export(open_page):
    page = open_page(paths(without="1.0"))
    drawn(page)
    page.wait_for_selector("table.effect")
    starts = {"csv": b'"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for panel, kinds in {ids.FLOW: starts, ids.ORDERS: starts, ids.WITHOUT: ("csv",), ids.TOP_PATHS: ("csv",)}.items():
        for kind in kinds:
            page.click(f"#{panel}-export")
            with page.expect_download() as download:
                page.click(f"#{ids.export(panel, kind)}")
            with open(download.value.path(), "rb") as file:
                assert file.read(40).startswith(starts[kind]), (panel, kind)
