"""Each kind of panel once in a real Chromium, on Regression: choices, clicks, keyboard, errors, export, axe."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.views.regression import ERRORS, LAYERS, MAP, MOTIFS, SUPPORT, WITHOUT
from app.pages.regression import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import choose, entry, in_the_first_screen, opened, serve, written
from tests.app.declared_pages import addresses, asked, shows

at = addresses(PAGE)


@pytest.fixture(scope="module")
def address(regression_app: App) -> Iterator[str]:
    with serve(regression_app) as address:
        yield address


@pytest.fixture(scope="module")
def service(regression_app: App) -> Views:
    return regression_app.services["regression"]


@pytest.mark.visit
def test_a_form_is_one_choice_and_one_request_and_keeps_its_limits(open_page, service: Views) -> None:
    page = open_page(at(checkpoint="three-mhsa"), load=True)
    shows(page, service, ERRORS, checkpoint="three-mhsa")
    in_the_first_screen(page, "regression-errors")
    requests = asked(page)
    page.locator("#regression-field-dims [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    written(page, "dims", "2")
    shows(page, service, ERRORS, checkpoint="three-mhsa", dims=2)
    expect(page.locator("#regression-field-nonzero-value")).to_have_text("2")
    assert len(requests) == 1, "the panels and the form's limits"
    choose(page, page.get_by_text("logarithmic").click)
    written(page, "axis", "log")
    assert len(requests) == 2 and page.locator("#regression-form").get_attribute("aria-busy") is None
    choose(page, page.click, "#regression-group")
    choose(page, page.get_by_role("option", name="2 numbers").click)
    written(page, "checkpoint", "two")
    written(page, "dims", None)
    shows(page, service, ERRORS, checkpoint="two", axis="log")
    expect(page.locator("#regression-field-dims-value")).to_have_text("2")


def test_maps_of_heads_are_chosen_by_click_and_keyboard_and_a_row_is_locked(open_page, service: Views) -> None:
    three = {"checkpoint": "three-mssa"}
    page = open_page(at(tab="heads", **three))
    shows(page, service, MAP, **three)
    choose(page, page.click, "#regression-maps-cells .cell[data-layer='1'][data-head='2']")
    expect(page.locator("#regression-map-title")).to_have_text("Head 1.2")
    choose(page, page.keyboard.press, "ArrowLeft")
    written(page, "head", "1.1")
    choose(page, page.click, "#regression-field-query")
    choose(page, page.get_by_role("option", name="x5", exact=True).click)
    written(page, "query", "8")
    shows(page, service, MAP, **three, head=[1, 1], query=8)
    page.locator("#regression-maps-cells .cell[aria-current=true]").focus()
    choose(page, page.keyboard.press, "Escape")
    written(page, "query", None)
    patterns = service.workshop.result(MAP, service.values(three)).patterns
    page.mouse.move(*entry(page, 6, 2, "regression-map-canvas"))
    tip = page.locator("#regression-map-canvas .map-tip")
    expect(tip).to_contain_text(f"{float(patterns.pattern[1, 1, 6, 2]):.4f}")
    choose(page, page.mouse.click, *entry(page, 6, 2, "regression-map-canvas"))
    written(page, "query", "6")
    choose(page, page.get_by_text("score (nats)").click)
    written(page, "view", "scores")
    choose(page, page.locator("#regression-field-prompt").fill, "2")
    written(page, "prompt", "2")
    shows(page, service, MAP, **three, head=[1, 1], query=6, quantity="scores", prompt=2)
    quantity = "id => document.getElementById(id).map.maps.quantity"
    assert page.evaluate(quantity, "regression-map-canvas") == "score (nats)"


def test_tabs_ask_for_what_is_open_and_say_what_is_missing(open_page, service: Views) -> None:
    state = {"checkpoint": "three-mhsa", "nonzero": 1}
    page = open_page(at(**state))
    for tab, view in (("Layers", LAYERS), ("Without a head", WITHOUT), ("Motifs", MOTIFS), ("Support", SUPPORT)):
        opened(page, tab)
        shows(page, service, view, **state)
    written(page, "tab", "support")
    page.locator("#regression-field-nonzero [role=slider]").focus()
    choose(page, page.keyboard.press, "End")
    written(page, "nonzero", None)
    expect(page.locator("#regression-support-notice")).to_contain_text("Set Nonzero weights below the dimension")


def test_a_table_is_saved_and_links_take_the_choice_along(open_page, service: Views) -> None:
    page = open_page(at(checkpoint="two"))
    shows(page, service, ERRORS, checkpoint="two")
    choose(page, page.click, "#regression-errors-export")
    with page.expect_download() as download:
        choose(page, page.click, "#regression-errors-export-csv")
    params = service.values({"checkpoint": "two"})
    frame = ERRORS.frame(service.workshop.result(ERRORS, params))
    assert download.value.suggested_filename == f"{ERRORS.file(params)}.csv"
    assert len(pd.read_csv(download.value.path())) == len(frame)
    choose(page, page.get_by_role("link", name="Model card").click)
    expect(page.locator("#checkpoints-card-title")).to_have_text("two")
    choose(page, page.get_by_role("link", name="Open in Regression").click)
    shows(page, service, ERRORS, checkpoint="two")
