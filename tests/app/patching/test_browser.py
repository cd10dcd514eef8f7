"""Patching in the browser: two prompts, their maps, another prompt, and what cannot be said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import expect

from aotlens.views.patching import CIRCUIT
from app.pages.patching import PAGE
from app.shell.app import App
from app.shell.views import record
from tests.app.conftest import choose, opened, save_images, save_tiny, serve
from tests.app.declared_pages import alone
from tests.app.patching.numbers import STATE

PANEL = "patching-positions"
#: The circuit's plot in the browser, an edge that it draws, and a click on one.
_GRAPH = """document.querySelector("#patching-circuit-graph .js-plotly-plot")"""
_LAST_EDGE = f"() => {_GRAPH}.data.filter((line) => line.mode === 'lines').at(-1).customdata[0]"
_CLICK = f"""(edge) => {_GRAPH}.emit("plotly_click", {{ points: [{{
    curveNumber: {_GRAPH}.data.findIndex((line) => line.customdata?.[0] === edge), pointNumber: 0, x: 0, y: 0,
}}] }})"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    saves = (partial(save_tiny, name="tiny-mhsa"), partial(save_images, name="digits-tiny"))
    with alone(tmp_path_factory, *saves, first_checkpoint="tiny-mhsa") as app:
        yield app


@pytest.fixture(scope="module")
def address(made: App) -> Iterator[str]:
    with serve(made) as address:
        yield address


def test_a_circuit_is_a_file_of_its_edges_and_its_graph(made: App):
    service = made.services["patching"]
    chosen = service.values({**PAGE.address.json(STATE), "metric": "logit_difference", "direction": "denoising"})
    workshop = service.workshop.told(lambda done, total: None)
    held = json.loads(record(workshop, CIRCUIT, chosen).content)
    found = workshop.result(CIRCUIT, chosen)
    assert [(row["source"], row["destination"]) for row in held["rows"]] == list(found.edges)
    assert held["graph"] == json.loads(json.dumps(found.to_graph()))
    assert held["faithfulness"] == found.faithfulness and held["interval"] == [None, None]  # of one pair
    assert held["clean"] == chosen.clean


@pytest.mark.visit
def test_two_prompts_are_patched_and_another_is_asked_for(open_page):
    page = open_page(PAGE.address.format(STATE))
    caption = page.locator(f"#{PANEL}-caption")
    expect(caption).to_contain_text("takes most away", timeout=60_000)
    expect(page.locator(f"#{PANEL}-graph .heatmaplayer image")).to_be_attached()
    opened(page, "Attribution patching")
    expect(page.locator("#patching-estimate-caption")).to_contain_text("rank correlation")
    page.locator(f"#{PANEL}").scroll_into_view_if_needed()
    before = caption.inner_text()
    choose(page, page.locator("#patching-field-corrupted").fill, "The captain smiled to Emma.")
    expect(caption).not_to_have_text(before)
    expect(caption).to_contain_text("takes most away")
    page.wait_for_function("() => location.search.includes('smiled')")


def test_an_edge_of_the_circuit_is_clicked_out_of_it_and_back_again(open_page):
    page = open_page(PAGE.address.format(STATE).replace("noising", "denoising"))
    caption = page.locator("#patching-circuit-caption")
    opened(page, "Circuit")
    choose(page, page.locator("#patching-circuit").get_by_role("button", name="Run").click, timeout=60_000)
    expect(caption).to_contain_text("the pair that it was searched on", timeout=60_000)
    page.wait_for_selector("#patching-circuit-graph .js-line", state="attached")
    edge = page.evaluate(_LAST_EDGE)
    choose(page, page.evaluate, _CLICK, edge)
    expect(page.locator("#patching-field-removed")).to_have_value(edge)
    expect(caption).to_contain_text("1 edge taken out")  # at once: the search is not made again
    page.wait_for_selector("#patching-circuit-graph .js-line[style*='dasharray']", state="attached")
    choose(page, page.evaluate, _CLICK, edge)
    expect(page.locator("#patching-field-removed")).to_have_value("")
    expect(caption).to_contain_text("the pair that it was searched on")


def test_prompts_that_are_one_are_refused_in_their_panels(open_page):
    page = open_page(PAGE.address.format(STATE).replace("towed", "bowed"))
    expect(page.locator(f"#{PANEL}-notice")).to_contain_text("the same one twice", timeout=60_000)
    expect(page.locator("#patching-field-corrupted")).to_have_value("The captain bowed to Emma.")


def test_a_click_leads_from_a_position_to_its_heads_and_from_a_head_to_its_edges(open_page):
    page = open_page(PAGE.address.format(STATE))
    expect(page.locator(f"#{PANEL}-caption")).to_contain_text("takes most away", timeout=60_000)

    def click(panel: str, x: str, y: str) -> None:
        page.wait_for_selector(f"#{panel}-graph .heatmaplayer image")
        page.evaluate(
            """([panel, x, y]) => document.querySelector(`#${panel}-graph .js-plotly-plot`)
                .emit("plotly_click", { points: [{ curveNumber: 0, pointNumber: [0, 0], x, y, z: 0 }] })""",
            [panel, x, y],
        )

    click(PANEL, "5 ·bo", "1")
    expect(page.locator("#patching-field-position")).to_have_value("5")
    page.locator("#patching-by-head").scroll_into_view_if_needed()
    expect(page.locator("#patching-by-head-caption")).to_contain_text("position 5")
    click("patching-by-head", "1", "1")
    expect(page.locator("#patching-field-head")).to_have_value("1.1")
    page.locator("#patching-edges").scroll_into_view_if_needed()
    expect(page.locator("#patching-edges-caption")).to_contain_text("1.1")
    page.wait_for_function("() => location.search.includes('head=1.1') && location.search.includes('position=5')")
    choose(page, page.locator("#patching-field-position").fill, "first")
    choose(page, page.locator("#patching-field-position").press, "Enter")
    page.locator("#patching-by-head").scroll_into_view_if_needed()  # the form is in sight wherever the page is
    expect(page.locator("#patching-by-head-notice")).to_contain_text("is no position")
