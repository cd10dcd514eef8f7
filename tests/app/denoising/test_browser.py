"""Denoising in Chromium: the query is dragged and moved by keys; a new training is made and kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from aotlens.denoise import trainings
from aotlens.views.denoising import CURVES, ERRORS, PLANE, RUNS
from app.core.settings import Settings
from app.factory import create_app
from app.pages.denoising import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import choose, query, serve, written
from tests.app.declared_pages import addresses, shows

if TYPE_CHECKING:
    from playwright.sync_api import Page

at = addresses(PAGE)


@pytest.fixture(scope="module")
def own_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An app with a home of its own, in which trainings are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        yield create_app(Settings(device="cpu"))


@pytest.fixture(scope="module")
def service(own_app: App) -> Views:
    return own_app.services["denoising"]


@pytest.fixture(scope="module")
def address(own_app: App) -> Iterator[str]:
    with serve(own_app) as address:
        yield address


def moved_to(page: Page) -> list[float]:
    """The place of the query by the address."""
    page.wait_for_function("() => new URLSearchParams(location.search).has('query')")
    return [float(part) for part in query(page)["query"].split(",")]


@pytest.mark.visit
def test_the_query_is_dragged_and_moved_by_keys_and_another_prompt_has_its_own(open_page, service: Views) -> None:
    page = open_page(at(steps=3), load=True)
    shows(page, service, PLANE, ERRORS, steps=3)
    box = page.locator("#denoising-plane-graph .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"], steps=4)
    choose(page, page.mouse.up)
    x, y = moved_to(page)
    reach = service.workshop.result(PLANE, service.values({"steps": 3})).reach
    assert (x, y) == pytest.approx((reach / 2, reach / 2), abs=0.05)
    shows(page, service, PLANE, ERRORS, steps=3, query=[x, y])
    page.locator("#denoising-plane-graph-box").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    page.wait_for_function(
        "before => Number(new URLSearchParams(location.search).get('query').split(',')[0]) < before", arg=x - 0.01
    )
    assert moved_to(page) == pytest.approx([x - 0.04 * reach, y], abs=1e-3)
    choose(page, page.get_by_role("button", name="Query as drawn").click)
    written(page, "query", None)
    shows(page, service, PLANE, steps=3)
    choose(page, page.locator("#denoising-plane-graph-box").press, "ArrowUp")
    moved_to(page)
    components, alpha = (page.locator(f"#denoising-field-{field}") for field in ("components", "alpha"))
    expect(components).to_be_hidden()
    choose(page, page.click, "#denoising-field-task")
    choose(page, page.get_by_role("option", name="mixture").click)
    written(page, "query", None)
    shows(page, service, PLANE, ERRORS, steps=3, task="mixtures")
    expect(components).to_be_visible()
    choose(page, page.click, "#denoising-field-scales")
    choose(page, page.get_by_role("option", name="the best of the task").click)
    written(page, "scales", "best")
    shows(page, service, PLANE, ERRORS, steps=3, task="mixtures", scales="best")
    expect(alpha).to_be_hidden()


def test_a_new_training_is_made_kept_and_offered(open_page, service: Views) -> None:
    first = {"training": "mixtures-linear", "run": 2}
    page = open_page(at(tab="training", **first))
    shows(page, service, CURVES, RUNS, **first)
    run, settings = page.locator("#denoising-curves-start"), page.locator("#denoising-field-epochs")
    expect(run).to_be_hidden()
    expect(settings).to_be_hidden()
    choose(page, page.get_by_role("button", name="4", exact=True).click)
    written(page, "run", "4")
    expect(page.locator("#denoising-matrices-caption")).to_have_text("mixtures-linear, the run of seed 4.")
    new = {"training": "new", "epochs": 2, "context": 12, "prompts": 50, "runs": 2}
    page = open_page(at(tab="training", **new))
    expect(page.locator("#denoising-curves-caption")).to_contain_text("Not computed yet")
    expect(page.locator("#denoising-scales-caption")).to_contain_text("Run in the panel ‹Loss by epoch›")
    expect(settings).to_be_visible()
    choose(page, run.click)
    expect(page.locator("#denoising-curves-caption")).to_contain_text("2 runs of linear attention on spheres, 2 epochs")
    shows(page, service, CURVES, RUNS, **new)
    expect(run).to_be_hidden()
    (kept,) = (name for name in trainings() if name.startswith("spheres-linear-2-"))
    choose(page, page.click, "#denoising-field-training")
    choose(page, page.get_by_role("option", name=kept.replace("-", " ")).click)
    written(page, "training", kept)
    shows(page, service, CURVES, RUNS, training=kept)
