"""The Non-linearity page in a real Chromium: choose, draw, slide η, follow links; a console without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aotlens.views.nonlinearity import ERROR, HEAD, LAYERS
from app.pages.nonlinearity.address import ADDRESS, NonlinearityState
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.service import Nonlinearity
from app.shell import ids as shell
from tests.app.conftest import SCHEMES, choose, fits, in_the_first_screen, query, seen, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page


def address(**state: Any) -> str:
    return ADDRESS.format(NonlinearityState(**state))


def result(compiler: Nonlinearity, view: Any, **state: Any) -> Any:
    return compiler.workshop.result(view, compiler.of_address(NonlinearityState(**state)))


def drawn(page: Page) -> None:
    """Waits until facts, the error and the address are there, and nothing is under way."""
    page.wait_for_function(
        """() => document.querySelectorAll("#nonlinearity-facts .fact").length === 6
            && document.querySelectorAll("#nonlinearity-error-graph .main-svg").length > 0
            && location.search.includes("head=")"""
    )
    settled(page)


def fact(page: Page, name: str) -> Any:
    """The value of a fact."""
    return page.locator(f"#{ids.FACTS} .fact", has_text=name).locator(".fact-value")


@pytest.mark.visit
def test_choose_a_preset_and_it_is_compiled(open_page, compiler: Nonlinearity):
    page = open_page("/nonlinearity")
    drawn(page)
    in_the_first_screen(page, ids.ERROR)
    in_the_first_screen(page, ids.COMPILED)
    assert page.locator(f"#{ids.MASK}").get_attribute("aria-busy") == "true"  # it has asked for nothing
    choose(page, page.click, f"#{ids.PRESET}")
    choose(page, page.get_by_role("option", name="sawtooth (deep)").click)
    written(page, "preset", "sawtooth")
    choose(page, page.click, f"#{ids.CONSTRUCTION} >> text=paper")
    written(page, "construction", "paper")
    chosen = {"preset": "sawtooth", "construction": "paper"}
    compiled = result(compiler, LAYERS, **chosen)
    # The address may be written before the panel has asked.
    expect(page.locator(f"#{ids.FACTS} .fact-value").first).to_have_text(str(compiled.n_heads))
    expect(fact(page, "proven |model − FFN|")).to_have_text(f"≤ {compiled.proven_error:.3g}")
    expect(fact(page, "measured |model − FFN|")).to_have_text(f"{result(compiler, ERROR, **chosen).measured:.3g}")
    expect(page.locator(f"#{ids.ETA_CAPTION}")).to_contain_text(f"{compiled.etas[0]:.3g}")
    expect(page.locator(f"#{ids.LAYERS} tbody tr")).to_have_count(2)
    expect(page.locator(f"#{ids.PICKER} .pick-head")).to_have_count(compiled.n_heads)
    seen(page, ids.MASK)
    page.locator("#nonlinearity-mask-graph .heatmaplayer image").first.wait_for()
    written(page, "view", "mask")
    choose(page, page.click, f"#{ids.ACTIVATION} >> text=SiLU")
    seen(page, ids.ERROR)
    page.locator(f"#{ids.ETA_CAPTION} >> text=nothing to slide").wait_for()


def test_slide_eta_and_the_numbers_follow(open_page, compiler: Nonlinearity):
    page = open_page(address())
    drawn(page)
    before = fact(page, "proven |model − FFN|").inner_text()
    thumb = page.locator(f"#{ids.ETA_SLIDER} [role=slider]")
    thumb.focus()
    for _ in range(4):
        before_press = thumb.get_attribute("aria-valuenow")
        choose(page, page.keyboard.press, "ArrowRight")
        expect(thumb).not_to_have_attribute("aria-valuenow", before_press or "")
    # On its way the server is asked about other values, too.
    eta = float(f"{10 ** float(thumb.get_attribute('aria-valuenow') or 'nan'):.3g}")
    written(page, "eta", f"{eta:.3g}")
    page.locator(f"#{ids.ETA_CAPTION} >> text=chosen by you").wait_for()
    start = result(compiler, LAYERS).etas[0]
    assert 1.2 * start < eta < 2 * start
    error = result(compiler, ERROR, eta=eta)
    expect(fact(page, "proven |model − FFN|")).to_have_text(f"≤ {error.proven:.3g}")
    expect(fact(page, "measured |model − FFN|")).to_have_text(f"{error.measured:.3g}")
    seen(page, ids.GATE)
    page.locator(f"#{shell.caption(ids.GATE)} >> text=η = {eta:.3g}").wait_for()
    seen(page, ids.COMPILED)
    choose(page, page.click, f"#{ids.ETA_PROOF}")
    written(page, "eta", None)
    page.locator(f"#{ids.ETA_CAPTION} >> text=chosen by the proof").wait_for()
    expect(fact(page, "proven |model − FFN|")).to_have_text(before)


def test_a_choice_is_one_request(open_page):
    page = open_page(address())
    drawn(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "_dash-update" in request.url else None)
    choose(page, page.locator(f"#{ids.ETA_SLIDER} [role=slider]").press, "ArrowRight")
    page.locator(f"#{ids.ETA_CAPTION} >> text=chosen by you").wait_for()
    settled(page)
    assert len(asked) == 1
    choose(page, page.click, f"#{ids.INPUTS} >> text=2")
    expect(page.locator("#nonlinearity-error-graph .heatmaplayer image")).to_have_count(2)
    settled(page)
    assert len(asked) == 2


def test_the_whole_state_is_in_the_address(open_page):
    state = {
        "preset": "random", "inputs": 2, "width": 3, "depth": 2, "seed": 7, "bound": 1.5, "tolerance": 0.125,
        "construction": "narrow", "auxiliary": "random", "eta": 0.05, "head": (1, 4), "x": (0.25, -1.0), "scale": "log",
    }  # fmt: skip
    page = open_page(address(**state), load=True)
    drawn(page)
    written(page, "x", "0.25,-1")
    first = query(page)
    assert first == {**dict(part.split("=") for part in address(**state).partition("?")[2].split("&")), "x": "0.25,-1"}
    seen(page, ids.ONE)
    page.locator(f"#{shell.title(ids.ONE)} >> text='Head 1.4'").wait_for()
    page.reload()
    page.locator(f"#{shell.title(ids.ONE)} >> text='Head 1.4'").wait_for()
    settled(page)
    assert query(page) == {**first, "view": "one"}


def test_draw_with_the_mouse_and_with_the_keyboard(open_page):
    page = open_page(address(preset="drawn", knots="-1,0;0,1;1,0"))
    drawn(page)
    knots = page.locator(f"#{ids.EDITOR} .knot")
    expect(knots).to_have_count(3)
    editor = page.locator(f"#{ids.EDITOR}")
    box = editor.bounding_box()
    assert box is not None
    choose(page, editor.click, position={"x": 0.9 * box["width"], "y": 0.3 * box["height"]})
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    added = float(query(page)["knots"].split(";")[-1].split(",")[0])
    assert 1.4 < added < 2.0
    expect(knots).to_have_count(4)
    page.locator(f"#{ids.LAYERS} >> text='4 ReLU'").wait_for()
    settled(page)
    knots.nth(1).focus()
    choose(page, page.keyboard.press, "ArrowRight")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';')[1].startsWith('0.05,')")
    settled(page)
    assert page.evaluate("document.activeElement.dataset.index") == "1"
    choose(page, page.keyboard.press, "Delete")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 3")
    choose(page, page.click, f"#{ids.ADD}")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    # However soon after the typing: the box waits for more of it before it tells the rest of the page.
    choose(page, page.fill, f"#{ids.KNOTS}", "-2, 0\n-1, 1\n0, 0\n0.5, 0.5\n1, 1")
    choose(page, page.click, f"#{ids.ADD}")
    expect(knots).to_have_count(6)
    page.wait_for_function(
        "() => new URLSearchParams(location.search).get('knots')?.startsWith('-2,0;-1,1;0,0;0.5,0.5;1,1;')"
    )
    choose(page, page.fill, f"#{ids.KNOTS}", "-1, 0\n1, 1")
    choose(page, page.click, f"#{ids.EDITOR} svg", position={"x": 250, "y": 60})
    expect(knots).to_have_count(3)
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.startsWith('-1,0;1,1;')")
    choose(page, page.fill, f"#{ids.KNOTS}", "0, 0\n1, oops")
    notice = page.locator(f"#{shell.notice(ids.PANEL)}")
    notice.locator("text=got “1, oops”").wait_for()
    choose(page, page.fill, f"#{ids.KNOTS}", "0, 0\n1, 1")
    written(page, "knots", "0,0;1,1")
    drawn(page)
    expect(knots).to_have_count(2)
    expect(notice).to_be_empty()


def test_a_head_and_an_input_are_chosen(open_page, compiler: Nonlinearity):
    page = open_page(address(eta=0.3))
    drawn(page)
    seen(page, ids.HEADS)
    choose(page, page.click, "#nonlinearity-heads-table .ag-row[row-index='3'] [col-id='head']")
    written(page, "head", "0.3")
    written(page, "view", "one")  # which shows it
    page.locator(f"#{shell.title(ids.ONE)} >> text='Head 0.3'").wait_for()
    choose(page, page.click, f"#{ids.PICKER} [data-head='1']")
    written(page, "head", "0.1")
    slider = page.locator(f"#{ids.X1} [role=slider]")
    slider.focus()
    choose(page, page.keyboard.press, "Home")
    written(page, "x", "-2")
    says = page.locator(f"#{shell.caption(ids.ONE)}")
    expect(says).to_contain_text("t = x + 1 = −1")
    weight = result(compiler, HEAD, eta=0.3, head=(0, 1), x=(-2.0,)).pattern[1, 1]
    expect(says).to_contain_text(f"σ(t/η) = {weight:.5g}")
    settled(page)
    seen(page, ids.ERROR)
    plot = page.locator(f"#{shell.graph(ids.ERROR)} .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    place = {"x": 0.75 * box["width"], "y": 0.5 * box["height"]}
    plot.hover(position=place)
    page.wait_for_selector(
        f"#{shell.graph(ids.ERROR)} .hoverlayer .hovertext, #{shell.graph(ids.ERROR)} .hoverlayer .legend"
    )
    choose(page, plot.click, position=place)
    page.wait_for_function("() => Math.abs(Number(new URLSearchParams(location.search).get('x')) - 1) < 0.05")


def test_what_cannot_be_compiled_is_a_notice(open_page):
    page = open_page(address(bound=-1.0, tolerance=1e-17))
    notice = page.locator(f"#{shell.notice(ids.PANEL)}")
    notice.locator("text=expected a positive finite number").wait_for()
    expect(page.locator("#nonlinearity-body[data-empty]")).to_have_count(1)
    settled(page)
    expect(page.locator(f"#{shell.graph(ids.ERROR)}")).to_be_hidden()
    choose(page, page.fill, f"#{ids.BOUND}", "1.25")
    notice.locator("text=below what float64 can be proven to reach").wait_for()
    choose(page, page.fill, f"#{ids.TOLERANCE}", "1e-3")
    written(page, "bound", "1.25")
    written(page, "tolerance", "0.001")
    drawn(page)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page(address(preset="drawn", inputs=2), width=800, scheme=scheme)
    for panel in (ids.ERROR, ids.ONE, ids.MASK, ids.COMPILED, ids.HEADS, ids.GATE):
        seen(page, panel)
    fits(page)


def test_export(open_page):
    page = open_page(address())
    drawn(page)
    for panel, kind, start in (
        (ids.COMPILED, "zip", b"PK"), (ids.COMPILED, "safetensors", b""), (ids.ERROR, "png", b"\x89PNG"),
        (ids.HEADS, "csv", b'"layer"'),
    ):  # fmt: skip
        seen(page, panel)
        if kind == "png":
            page.locator(f"#{panel} .js-plotly-plot .nsewdrag").first.wait_for()
        choose(page, page.click, f"#{panel}-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#{shell.export(panel, kind)}")
        with open(download.value.path(), "rb") as file:
            assert file.read(40).startswith(start), (panel, kind)
