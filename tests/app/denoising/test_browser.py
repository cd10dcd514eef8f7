"""The In-context denoising page in a real Chromium: sliders change the numbers, drag and keys move the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aotlens.views.denoising import ERRORS, PLANE
from app.core import Core
from app.core.settings import Settings
from app.pages.denoising.address import ADDRESS, DenoisingState
from app.pages.denoising.ids import ids
from app.pages.denoising.service import Denoising, in_plane
from app.shell import ids as shell
from tests.app.conftest import SCHEMES, choose, fits, query, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def service() -> Denoising:
    return Denoising(Core.start(Settings()))


def address(**state: Any) -> str:
    return ADDRESS.format(DenoisingState(**state))


#: A graph is drawn once in a size of its own, and then in its box's.
_FILLS = """id => {
    const { _fullLayout, parentElement } = document.querySelector(`#${id} .js-plotly-plot`);
    const { width, height } = parentElement.getBoundingClientRect();
    return Math.abs(_fullLayout.width - width) < 2 && Math.abs(_fullLayout.height - height) < 2;
}"""


def says(page: Page, service: Denoising, state: DenoisingState) -> None:
    """Waits until the page says the numbers of a state, and its pictures are drawn."""
    asked = in_plane(state)
    lines = [view.caption(asked, service.workshop.result(view, asked)) for view in (ERRORS, PLANE)]
    expect(page.locator(f"#{shell.body(ids.PANEL)} > div")).to_have_text(lines)
    for panel in (ids.PLANE, ids.ERRORS):
        page.locator(f"#{shell.graph(panel)} .scatterlayer .trace").first.wait_for()
        page.wait_for_function(_FILLS, arg=shell.graph(panel))
    settled(page)


def asked_query(page: Page) -> tuple[float, float]:
    """Where the address says that the query is."""
    page.wait_for_function("() => new URLSearchParams(location.search).has('query')")
    x, y = query(page)["query"].split(",")
    return float(x), float(y)


@pytest.mark.visit
def test_a_slider_changes_the_numbers_and_the_address(open_page, service: Denoising):
    page = open_page(address(task="mixtures", steps=5), load=True)
    says(page, service, DenoisingState(task="mixtures", steps=5))
    page.locator(f"#{ids.NOISE} [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "noise", "0.11")
    says(page, service, DenoisingState(task="mixtures", steps=5, noise=0.11))
    page.locator(f"#{ids.COMPONENTS}").wait_for()
    choose(page, page.click, f"#{ids.BEST}")
    alpha, beta = service.best(in_plane(DenoisingState(task="mixtures", noise=0.11))).values()
    says(page, service, DenoisingState(task="mixtures", steps=5, noise=0.11, alpha=alpha, beta=beta))
    expect(page.locator(f"#{shell.value_of(ids.BETA)}")).to_have_text(f"{beta:g}")
    choose(page, page.click, f"#{ids.TASK} >> text=circle")
    written(page, "task", None)
    alpha, beta = service.best(in_plane(DenoisingState(noise=0.11))).values()
    says(page, service, DenoisingState(steps=5, noise=0.11, alpha=alpha, beta=beta))
    expect(page.locator(f"#{ids.COMPONENTS}")).to_be_hidden()


def test_the_query_is_dragged_and_moved_by_keys(open_page, service: Denoising):
    page = open_page(address(steps=3))
    says(page, service, DenoisingState(steps=3))
    plane = page.locator(f"#{shell.graph(ids.PLANE)} .nsewdrag").first
    box = plane.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"], steps=4)
    choose(page, page.mouse.up)
    x, y = asked_query(page)
    reach = service.workshop.result(PLANE, in_plane(DenoisingState(steps=3))).reach
    assert (x, y) == pytest.approx((reach / 2, reach / 2), abs=0.05)
    says(page, service, DenoisingState(steps=3, query=(x, y)))

    page.locator(f"#{shell.box(shell.graph(ids.PLANE))}").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    page.wait_for_function("before => Number(new URLSearchParams(location.search).get('query').split(',')[0]) < before",
                           arg=x - 0.01)  # fmt: skip
    moved = asked_query(page)
    assert moved == pytest.approx((x - 0.04 * reach, y), abs=1e-3)
    says(page, service, DenoisingState(steps=3, query=moved))
    choose(page, page.click, f"#{ids.DRAWN}")
    written(page, "query", None)
    says(page, service, DenoisingState(steps=3))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_fits_a_narrow_window(open_page, service: Denoising, scheme: str):
    page = open_page(address(energy="hopfield", steps=2, query=(0.5, 0.5)), width=800, scheme=scheme)
    says(page, service, DenoisingState(energy="hopfield", steps=2, query=(0.5, 0.5)))
    fits(page)
