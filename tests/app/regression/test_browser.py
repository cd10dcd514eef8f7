"""The In-context regression page in a real Chromium: sliders, models, a head's map, tabs; and where others point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.views.regression import ERRORS, of_task
from app.core import Core
from app.factory import create_app
from app.pages.regression import maps
from app.pages.regression.address import ADDRESS, RegressionState
from app.pages.regression.ids import PANELS, ids
from app.pages.regression.service import Regressions
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import choose, entry, fits, in_the_first_screen, opened, serve, settled, written
from tests.app.test_accessibility import CONTRAST, OPTIONS, answered, faults, in_the_dark

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def regression_app(regression_core: Core) -> App:
    return create_app(regression_core.settings, regression_core)


@pytest.fixture(scope="module")
def address(regression_app: App) -> Iterator[str]:
    with serve(regression_app) as address:
        yield address


@pytest.fixture(scope="module")
def service(regression_app: App) -> Regressions:
    return regression_app.services["regression"]


def at(**state: Any) -> str:
    return ADDRESS.format(RegressionState(**state))


def says(page: Page, service: Regressions, **state: Any) -> None:
    """Waits until the page says the errors of a state, and has drawn them."""
    chosen = service.chosen(RegressionState(**state))
    told = ERRORS.caption(chosen, service.workshop.result(ERRORS, chosen))
    expect(page.locator(f"#{shell.body(ids.ERRORS)} > div")).to_have_text([told, of_task(chosen)])
    page.locator(f"#{shell.graph(ids.ERRORS)} .scatterlayer .trace").first.wait_for()
    settled(page)


def caption(page: Page, panel: str) -> Any:
    return page.locator(f"#{shell.caption(panel)}")


def locked(page: Page) -> Any:
    """The query and the entry that are locked in the large map."""
    found: Any = page.evaluate(
        "id => { const { position, cell } = document.getElementById(id).map.heads; return [position, cell]; }",
        ids.CANVAS,
    )
    return found


@pytest.mark.slow
def test_sliders_move_the_prompts_and_models_are_of_one_width(open_page, service: Regressions) -> None:
    page = open_page("/regression", load=True)
    says(page, service)
    page = open_page(at(checkpoint="three-mhsa"))
    says(page, service, checkpoint="three-mhsa")
    in_the_first_screen(page, ids.ERRORS)
    page.locator(f"#{ids.DIMS} [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    written(page, "dims", "2")
    says(page, service, checkpoint="three-mhsa", dims=2)
    expect(page.locator(f"#{shell.value_of(ids.NONZERO)}")).to_have_text("2")
    page.locator(f"#{ids.NOISE} [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "noise", "0.05")
    says(page, service, checkpoint="three-mhsa", dims=2, noise=0.05)
    choose(page, page.click, f"#{ids.D}")
    choose(page, page.get_by_role("option", name="2 numbers").click)
    written(page, "checkpoint", "two")
    written(page, "dims", None)
    says(page, service, checkpoint="two", noise=0.05)


@pytest.mark.visit
def test_a_head_is_chosen_and_a_row_is_locked(open_page, service: Regressions) -> None:
    page = open_page(at(tab="heads", checkpoint="three-mssa"))
    says(page, service, checkpoint="three-mssa")
    choose(page, page.click, f"#{ids.CELLS} .cell[data-layer='1'][data-head='2']")
    expect(page.locator(f"#{shell.title(ids.MAP)}")).to_have_text("Head 1.2")
    written(page, "head", "1.2")
    choose(page, page.keyboard.press, "ArrowLeft")
    expect(page.locator(f"#{shell.title(ids.MAP)}")).to_have_text("Head 1.1")
    expect(page.locator(f"#{ids.CELLS} .cell[aria-current=true]")).to_have_attribute("data-head", "1")
    chosen = service.chosen(RegressionState(checkpoint="three-mssa"))
    result, prompts = service.prompt(chosen, 0), service.prompts(chosen)
    choose(page, page.click, f"#{ids.QUERY}")
    choose(page, page.get_by_role("option", name="x5", exact=True).click)
    written(page, "query", "8")
    expect(caption(page, ids.MAP)).to_have_text(maps.caption(result, prompts, 0, (1, 1), 8))
    assert locked(page) == [8, None]
    page.locator(f"#{ids.CELLS} .cell[aria-current=true]").focus()
    choose(page, page.keyboard.press, "Escape")
    written(page, "query", None)
    assert locked(page) == [None, None]
    page.mouse.move(*entry(page, 6, 2, ids.CANVAS))
    tip = page.locator(f"#{ids.CANVAS} .map-tip")
    expect(tip).to_contain_text(f"{float(result.patterns.pattern[1, 1, 6, 2]):.4f}")
    choose(page, page.mouse.click, *entry(page, 6, 2, ids.CANVAS))
    written(page, "query", "6")
    expect(caption(page, ids.MAP)).to_have_text(maps.caption(result, prompts, 0, (1, 1), 6))
    assert locked(page) == [6, [6, 2]]
    settled(page)


def test_maps_follow_the_prompt_and_the_quantity(open_page, service: Regressions) -> None:
    page = open_page(at(tab="heads", checkpoint="three-mssa", head=(1, 1), query=4))
    says(page, service, checkpoint="three-mssa")
    choose(page, page.get_by_text("score (nats)").click)
    choose(page, page.click, f"#{ids.PROMPT}")
    choose(page, page.get_by_role("option", name="prompt 2", exact=True).click)
    result = service.prompt(service.chosen(RegressionState(checkpoint="three-mssa")), 2)
    assert result.patterns.scores is not None
    page.wait_for_function(
        "([id, key]) => document.getElementById(id).map?.maps?.key === key", arg=[ids.CANVAS, result.key]
    )
    shown = page.evaluate(
        "id => { const { maps } = document.getElementById(id).map; return [maps.quantity, maps.value(1, 1, 4, 3)]; }",
        ids.CANVAS,
    )
    step = float(np.abs(result.patterns.scores[1, 1][np.tril_indices(result.patterns.n_pos)]).max()) / 127
    assert shown == ["score (nats)", pytest.approx(float(result.patterns.scores[1, 1, 4, 3]), abs=0.51 * step)]
    assert locked(page) == [4, None]


def test_tabs_say_what_the_model_does(open_page, service: Regressions) -> None:
    page = open_page(at(checkpoint="three-mhsa", nonzero=1))
    says(page, service, checkpoint="three-mhsa", nonzero=1)
    chosen = service.chosen(RegressionState(checkpoint="three-mhsa", nonzero=1))
    for tab, panel in (("Layers", ids.LAYERS), ("Without a head", ids.WITHOUT), ("Motifs", ids.MOTIFS),
                       ("Support", ids.SUPPORT)):  # fmt: skip
        opened(page, tab)
        result = service.workshop.result(PANELS[panel], chosen)
        expect(caption(page, panel)).to_have_text(PANELS[panel].caption(chosen, result))
        expect(page.locator(f"#{panel}")).not_to_have_attribute("aria-busy", "true")
    page.locator(f"#{ids.NONZERO} [role=slider]").focus()
    choose(page, page.keyboard.press, "End")
    written(page, "nonzero", None)
    expect(page.locator(f"#{shell.notice(ids.SUPPORT)}")).to_contain_text("Set Nonzero weights below the dimension")


def test_other_pages_point_here(open_page, service: Regressions) -> None:
    page = open_page("/checkpoints?checkpoint=two", load=True)
    choose(page, page.get_by_role("link", name="Open in Regression").click)
    says(page, service, checkpoint="two")
    choose(page, page.get_by_role("link", name="Model card").click)
    expect(page.locator("#checkpoints-card-title")).to_have_text("two")
    page = open_page("/heads?checkpoint=two")
    expect(page.locator("#page")).to_contain_text("the page Regression shows its heads")


def test_nobody_is_kept_out_and_all_fits(open_page, service: Regressions) -> None:
    page = open_page(at(checkpoint="three-mhsa", nonzero=1))
    says(page, service, checkpoint="three-mhsa", nonzero=1)
    answered(page)
    assert faults(page, OPTIONS) == []
    for tab in ("Heads on a prompt", "Without a head", "Motifs", "Support"):
        opened(page, tab)
        assert faults(page, OPTIONS, f"#{ids.TABS}") == [], tab
    opened(page, "Heads on a prompt")
    page.set_viewport_size({"width": 800, "height": 900})
    fits(page)
    in_the_dark(page)
    assert faults(page, CONTRAST) == []
