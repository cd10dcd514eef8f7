"""Sufficient heads in the browser: started, watched, shown, saved; another choice asks to be started again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.views.sufficient import SUFFICIENT
from app.core.errors import RequestError
from app.pages.sufficient import PAGE
from app.shell.app import App
from tests.app.conftest import choose, save_tiny, serve, written
from tests.app.declared_pages import alone
from tests.app.sufficient.numbers import STATE, save_built
from tests.messages import refused

PANEL = "sufficient-heads"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    saves = (save_built, partial(save_tiny, name="tiny-mhsa"))
    with alone(tmp_path_factory, *saves, first_checkpoint="built") as app:
        yield app


@pytest.fixture(scope="module")
def address(made: App) -> Iterator[str]:
    with serve(made) as address:
        yield address


def test_what_has_not_been_made_is_not_made_by_asking_for_its_file(made: App):
    service = made.services["sufficient"]
    chosen = service.values({**PAGE.address.json(STATE), "seed": 9})
    assert not service.workshop.known(SUFFICIENT, chosen)
    with refused("start it first", error=RequestError):
        service.workshop.result(SUFFICIENT, chosen)
    with refused("keep", error=RequestError):
        service.values({"checkpoint": "built", "keep": 7})


def test_a_set_is_searched_in_the_background_and_shown(open_page, made: App, tmp_path: Path):
    page = open_page(PAGE.address.format(STATE))
    caption = page.locator(f"#{PANEL}-caption")
    expect(caption).to_contain_text("Not computed yet")
    choose(page, page.click, f"#{PANEL}-start")
    service = made.services["sufficient"]
    chosen = service.values(PAGE.address.json(STATE))
    expect(caption).to_contain_text("In the set:", timeout=60_000)
    result = service.workshop.result(SUFFICIENT, chosen)
    expect(caption).to_have_text(SUFFICIENT.caption(chosen, result))
    expect(page.locator(f"#{PANEL} .scatterlayer .trace")).to_have_count(3)
    choose(page, page.click, f"#{PANEL}-export")
    with page.expect_download() as download:
        choose(page, page.click, f"#{PANEL}-export-csv")
    pd.testing.assert_frame_equal(pd.read_csv(download.value.path()), result.to_frame())
    page.locator("#sufficient-field-seed [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "seed", "4")
    expect(caption).to_contain_text("Not computed yet")
    choose(page, page.keyboard.press, "ArrowLeft")
    expect(caption).to_have_text(SUFFICIENT.caption(chosen, result))


@pytest.mark.visit
def test_what_the_search_refuses_is_said(open_page):
    page = open_page("/sufficient?checkpoint=tiny-mhsa&how=zero")
    choose(page, page.click, f"#{PANEL}-start")
    expect(page.locator(f"#{PANEL}-progress")).to_contain_text("expected replacing all heads to change the measure")
    page = open_page("/sufficient?checkpoint=built&task=prompts")
    expect(page.locator(f"#{PANEL}-notice")).to_contain_text("Choose repeated random tokens for it.")
