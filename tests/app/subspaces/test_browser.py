"""The Subspace denoising page in a real Chromium: sliders change the numbers, the keyboard moves through the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aotlens.denoise import token_points
from aotlens.views.subspaces import SNR, by_layer
from app.core import Core
from app.core.settings import Settings
from app.pages.subspaces.address import ADDRESS, SubspacesState
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import Subspaces, chosen_of
from app.shell import ids as shell
from tests.app.conftest import SCHEMES, act, choose, fits, query, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

PANELS = (ids.CLOUD, ids.SNR, ids.MEMBERSHIP)


@pytest.fixture(scope="module")
def service() -> Subspaces:
    return Subspaces(Core.start(Settings()))


def address(**state: Any) -> str:
    return ADDRESS.format(SubspacesState(**state))


def at_layer(page: Page, layer: int) -> None:
    """Waits until all three pictures are of that layer, and nothing is under way."""
    for panel in PANELS:
        page.locator(f"#{panel}[data-layer='{layer}']").wait_for()
    settled(page)


def drawn_x(page: Page, panel: str, trace: int) -> list[float]:
    """Coordinates that a trace has now."""
    return page.evaluate(
        "([graph, trace]) => [...document.querySelector(`#${graph} .js-plotly-plot`)._fullData[trace].x]",
        [shell.graph(panel), trace],
    )


@pytest.mark.visit
def test_the_keyboard_moves_through_the_layers_without_the_server(open_page, service: Subspaces):
    page = open_page("/subspaces")
    at_layer(page, 0)
    unrolling = service.unroll(chosen_of(SubspacesState()))
    captions = by_layer(unrolling)
    shown = page.locator(f"#{ids.CAPTIONS} > div:visible")
    expect(shown).to_have_text(captions[0])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "_dash-update" in request.url else None)
    thumb = page.locator(f"#{ids.LAYER} [role=slider]")
    thumb.focus()
    for layer in (1, 2):
        choose(page, page.keyboard.press, "ArrowRight")
        at_layer(page, layer)
        expect(shown).to_have_text(captions[layer])
    points = token_points(unrolling).coordinates
    assert drawn_x(page, ids.CLOUD, 0) == pytest.approx(points[2, :, 0].tolist(), rel=1e-5)
    assert drawn_x(page, ids.SNR, 4) == [2, 2]
    choose(page, page.keyboard.press, "End")
    at_layer(page, 10)
    written(page, "layer", "10")
    assert asked == []


def test_a_slider_changes_the_numbers(open_page, service: Subspaces):
    page = open_page(address(noise=0.2, layer=2, picture="angles"), load=True)
    at_layer(page, 2)
    thumb = page.locator(f"#{ids.NOISE} [role=slider]")
    thumb.focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "noise", "0.21")
    state = SubspacesState(noise=0.21)
    said = SNR.caption(chosen_of(state), service.unroll(chosen_of(state)))
    expect(page.locator(f"#{shell.body(ids.PANEL)}")).to_have_text(said)
    expect(page.locator(f"#{shell.value_of(ids.NOISE)}")).to_have_text("0.21")
    at_layer(page, 2)
    choose(page, page.click, f"#{ids.HEAD} >> text=3")
    page.locator(f"#{shell.title(ids.MEMBERSHIP)} >> text=subspace 3").wait_for()
    written(page, "head", "3")
    assert query(page) == {"noise": "0.21", "layer": "2", "picture": "angles", "head": "3"}


def test_one_request_of_a_slider_is_under_way_and_the_latest_value_wins(open_page, service: Subspaces):
    page = open_page("/subspaces")
    at_layer(page, 0)
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        held.append(route)
        if len(held) > 1:
            route.continue_()

    page.route("**/_dash-update-component*", hold_the_first)
    page.focus(f"#{ids.SEED} [role=slider]")
    for _ in range(5):
        act(page.keyboard.press, "ArrowRight")
    expect(page.locator(f"#{shell.value_of(ids.SEED)}")).to_have_text("5")
    assert len(held) == 1
    held[0].continue_()
    chosen = chosen_of(SubspacesState(seed=5))
    expect(page.locator(f"#{shell.body(ids.PANEL)}")).to_have_text(SNR.caption(chosen, service.unroll(chosen)))
    settled(page)
    assert len(held) == 2
    page.unroute("**/_dash-update-component*")


def test_what_cannot_be_drawn_is_said_and_put_right(open_page):
    page = open_page(address(rank=30))
    notice = page.locator(f"#{shell.notice(ids.PANEL)}")
    expect(notice).to_contain_text("need d_model of at least 90")
    expect(page.locator(f"#{shell.graph(ids.SNR)}")).to_be_hidden()
    choose(page, page.click, f"#{ids.BASES} >> text=random")
    at_layer(page, 0)
    expect(notice).to_be_empty()
    expect(page.locator(f"#{shell.body(ids.PANEL)}")).to_contain_text("not orthogonal")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_fits_a_narrow_window(open_page, scheme: str):
    page = open_page(address(layers=3, picture="directions"), width=800, scheme=scheme)
    at_layer(page, 0)
    fits(page)
