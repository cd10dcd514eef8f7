"""Tokens as chips, tables with links and bars, and fields that others clear, in a real Chromium, on Paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aotlens.views.paths import SOURCES, TOP, WITHOUT
from aotlens.views.scores import SCORE, TRACE
from app.pages.paths import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app import declared_pages
from tests.app.conftest import choose, focused, head_drawn, opened, query, written
from tests.app.declared_pages import addresses, asked

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."
_STRIP = "#paths-sources-lines .chip"
_USUAL = {"checkpoint": "tiny-mhsa", "text": SHORT}
at = addresses(PAGE, **_USUAL)


@pytest.fixture(scope="module")
def service(app: App) -> Views:
    return app.services["paths"]


def shows(page: Page, service: Views, view: Any, **state: Any) -> None:
    """Waits until a panel has the caption of a choice."""
    declared_pages.shows(page, service, view, **{**_USUAL, **state})


@pytest.mark.visit
def test_tokens_are_chosen_by_click_and_keys_and_clear_what_meant_another_place(open_page, service: Views) -> None:
    page = open_page(at(position=4, target=40, versus=41))
    shows(page, service, SOURCES, position=4, target=40, versus=41)
    requests = asked(page)
    choose(page, page.locator(_STRIP).nth(3).click)
    shows(page, service, SOURCES, position=3)
    assert len(requests) == 1, "the panels in view and the form's limits"
    assert (query(page)["position"], query(page).keys() & {"target", "versus"}) == ("3", set())
    expect(page.locator("#paths-field-position")).to_have_value("3")
    expect(page.locator(f"{_STRIP}[aria-pressed=true]")).to_have_attribute("data-position", "3")
    page.locator(f"{_STRIP}[aria-pressed=true]").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    focused(page, f"{_STRIP}[data-position='2']")
    choose(page, page.keyboard.press, "Enter")
    shows(page, service, SOURCES, position=2)
    focused(page, f"{_STRIP}[data-position='2']")  # which was drawn anew
    choose(page, page.locator("#paths-field-text").fill, "a b")
    written(page, "text", "a b")
    shows(page, service, SOURCES, text="a b")
    written(page, "position", None)
    expect(page.locator("#paths-field-position")).to_have_value("")


def test_a_searched_token_is_offered_by_what_is_likely_and_found_by_its_text(open_page, service: Views) -> None:
    page = open_page(at(position=3))
    shows(page, service, SOURCES, position=3)
    params = service.values({"checkpoint": "tiny-mhsa", "text": SHORT, "position": 3})
    labels = PAGE.declared.labels["target"](service, params)
    likely = service.core.expansions.of("tiny-mhsa", SHORT).expansion
    assert labels.first[0] == likely.first_choice(3) and likely.tokens[4] in labels.first
    choose(page, page.click, "#paths-field-versus")
    expect(page.get_by_role("option").first).to_have_text(labels.shown(labels.first[0]))
    found = labels.search("bow", 1)[0]
    choose(page, page.fill, "#paths-field-versus", "bow")
    expect(page.get_by_role("option").first).to_have_text(labels.shown(found))
    choose(page, page.keyboard.press, "Enter")
    written(page, "versus", str(found))
    shows(page, service, SOURCES, position=3, versus=found)


def test_cells_remove_a_path_and_lead_to_heads(open_page, service: Views) -> None:
    page = open_page(at(position=4))
    shows(page, service, TOP, position=4)
    params = service.values({"checkpoint": "tiny-mhsa", "text": SHORT, "position": 4})
    top = service.workshop.result(TOP, params)
    rows = page.locator("#paths-top-lines tbody tr")
    listed = rows.locator("td:nth-child(2)").all_inner_texts()
    assert listed == list(top.descriptions)[: len(listed)] and len(listed) > 5
    middle, sides = rows.first.locator(".track").bounding_box(), rows.first.locator(".bar").bounding_box()
    assert middle and sides and sides["width"] == pytest.approx(middle["width"] / 2, abs=1), "the largest is the first"
    choose(page, rows.nth(1).get_by_role("button", name="without").click)
    shows(page, service, WITHOUT, position=4, without=top.paths[1].key)
    assert query(page)["beside"] == "without" and query(page)["without"] == top.paths[1].key
    opened(page, "Heads")
    choose(page, page.locator("#paths-heads-lines tbody tr").first.locator("button").nth(1).click)
    head = query(page)["through"]
    shows(page, service, TOP, position=4, through=list(map(int, head.split("."))))
    expect(page.locator("#paths-top-title")).to_have_text(f"Largest paths through {head}")
    link = page.locator("#paths-top-lines a").first
    name = link.inner_text()
    choose(page, link.click)
    head_drawn(page, f"Head {name}")
    expect(page.get_by_label("Your text")).to_have_value(SHORT)


def test_a_score_is_chosen_by_tokens_and_by_a_box_of_its_trace(open_page, service: Views) -> None:
    page = open_page(at(of="score", part="trace", against="plain"))
    shows(page, service, SCORE, against="plain")
    for side, place in (("query", 5), ("key", 2)):
        strip = page.get_by_role("group", name=side.capitalize(), exact=True)
        choose(page, strip.locator(".chip").nth(place).click)
        written(page, side, str(place))
    written(page, "against", None)
    cell = {"query": 5, "key": 2}
    shows(page, service, SCORE, **cell)
    choose(page, page.click, "#paths-field-head")
    choose(page, page.get_by_role("option", name="1.2", exact=True).click)
    shows(page, service, SCORE, **cell, head=[1, 2])
    boxes = service.workshop.result(TRACE, service.values(query_of(page))).layout().boxes
    number, box = next((at, each) for at, each in enumerate(boxes) if at and each.cell is not None)
    plot = "document.querySelector('#paths-trace-graph .js-plotly-plot')"
    page.wait_for_function(f"() => {plot}?.data?.[0]?.customdata")
    page.evaluate(
        f"""number => {plot}.emit("plotly_click", {{ points: [
            {{ curveNumber: 0, pointNumber: number, customdata: {plot}.data[0].customdata[number] }}] }})""",
        number,
    )
    head, at_query, at_key = box.cell
    shows(page, service, SCORE, head=head, query=at_query, key=at_key)
    assert (query(page)["head"], query(page)["query"]) == (f"{head[0]}.{head[1]}", str(at_query))
    choose(page, page.locator("#paths-field-against").fill, "most")
    choose(page, page.keyboard.press, "Enter")
    expect(page.locator("#paths-score-caption")).to_contain_text("expected mean, plain or a key's position")


def query_of(page: Page) -> dict[str, Any]:
    """The address's choices."""
    values = {name: int(value) if value.isdecimal() else value for name, value in query(page).items()}
    return {**values, "head": list(map(int, query(page)["head"].split(".")))}


def test_the_librarys_page_of_a_trace_is_saved(open_page, service: Views) -> None:
    page = open_page(at(of="score", part="trace"))
    shows(page, service, TRACE)
    choose(page, page.click, "#paths-trace-export")
    with page.expect_download() as download:
        choose(page, page.click, "#paths-trace-export-html")
    with open(download.value.path(), encoding="utf-8") as file:
        assert file.read(15) == "<!DOCTYPE html>"
