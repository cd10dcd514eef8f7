"""The Non-linearity page in a real Chromium: choose, draw, slide η, follow links; a console without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from app.pages.nonlinearity.address import ADDRESS, NonlinearityState
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.service import Nonlinearity
from app.shell import ids as shell
from tests.app.conftest import SCHEMES, fits, in_the_first_screen, query, seen, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page


def address(**state: Any) -> str:
    return ADDRESS.format(NonlinearityState(**state))


def drawn(page: Page) -> None:
    """Waits until facts, the error and the address are there, and nothing is under way."""
    page.wait_for_function(
        """() => document.querySelectorAll("#nonlinearity-facts .fact").length === 6
            && document.querySelectorAll("#nonlinearity-error-graph .main-svg").length > 0
            && location.search.includes("head=")"""
    )
    settled(page)


def facts(page: Page) -> dict[str, str]:
    """All at once, since an answer that comes puts others in their place."""
    settled(page)
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#nonlinearity-facts .fact")].map(
            one => [".fact-name", ".fact-value"].map(part => one.querySelector(part).innerText)))"""
    )


def test_choose_a_preset_and_it_is_compiled(open_page, compiler: Nonlinearity):
    page = open_page("/nonlinearity")
    drawn(page)
    page.click(f"#{ids.PRESET}")
    page.get_by_role("option", name="a sawtooth, by depth").click()
    written(page, "preset", "sawtooth")
    page.click(f"#{ids.CONSTRUCTION} >> text=the paper's")
    written(page, "construction", "paper")
    made = compiler.compile(NonlinearityState(preset="sawtooth", construction="paper"))
    # The address may be written before the panel has asked.
    expect(page.locator("#nonlinearity-facts .fact-value").first).to_have_text(str(made.compiled.n_heads))
    shown = facts(page)
    assert shown["proven |model − FFN|"] == f"≤ {made.compiled.proven_error:.3g}"
    assert shown["largest found"] == f"{made.measured:.3g}"
    expect(page.locator(f"#{ids.ETA_CAPTION}")).to_contain_text(f"{made.compiled.etas[0]:.3g}")
    expect(page.locator("table.effect tbody tr")).to_have_count(2)
    page.click(f"#{ids.ACTIVATION} >> text=SiLU")
    page.locator(f"#{ids.ETA_CAPTION} >> text=nothing to slide").wait_for()


def test_the_error_is_in_the_first_screen(open_page):
    page = open_page(address())
    drawn(page)
    in_the_first_screen(page, ids.ERROR)
    in_the_first_screen(page, ids.COMPILED)
    assert page.locator(f"#{ids.MASK}").get_attribute("aria-busy") == "true"  # it has asked for nothing
    seen(page, ids.MASK)
    page.locator("#nonlinearity-mask-graph .heatmaplayer image").first.wait_for()
    written(page, "view", "mask")


def test_slide_eta_and_the_numbers_follow(open_page, compiler: Nonlinearity):
    page = open_page(address())
    drawn(page)
    before = facts(page)
    thumb = page.locator(f"#{ids.ETA_SLIDER} [role=slider]")
    thumb.focus()
    for _ in range(4):
        before_press = thumb.get_attribute("aria-valuenow")
        page.keyboard.press("ArrowRight")
        expect(thumb).not_to_have_attribute("aria-valuenow", before_press or "")
    # On its way the server is asked about other values, too.
    eta = float(f"{10 ** float(thumb.get_attribute('aria-valuenow') or 'nan'):.3g}")
    written(page, "eta", f"{eta:.3g}")
    page.locator(f"#{ids.ETA_CAPTION} >> text=chosen by you").wait_for()
    start = compiler.compile(NonlinearityState()).compiled.etas[0]
    assert 1.2 * start < eta < 2 * start
    made = compiler.compile(NonlinearityState(eta=eta))
    page.locator(f"#{ids.FACTS} >> text='≤ {made.compiled.proven_error:.3g}'").wait_for()
    page.locator(f"#{ids.FACTS} >> text='{made.measured:.3g}'").wait_for()
    seen(page, ids.GATE)
    page.locator(f"#{shell.caption(ids.GATE)} >> text=η = {eta:.3g}").wait_for()
    seen(page, ids.COMPILED)
    page.click(f"#{ids.ETA_PROOF}")
    written(page, "eta", None)
    page.locator(f"#{ids.ETA_CAPTION} >> text=as the proof chooses it").wait_for()
    page.locator(f"#{ids.FACTS} >> text='{before['proven |model − FFN|']}'").wait_for()


def test_the_whole_state_is_in_the_address(open_page):
    state = {
        "preset": "random", "inputs": 2, "width": 3, "depth": 2, "seed": 7, "bound": 1.5, "tolerance": 0.125,
        "construction": "narrow", "auxiliary": "random", "eta": 0.05, "head": (1, 4), "x": (0.25, -1.0), "scale": "log",
    }  # fmt: skip
    page = open_page(address(**state), load=True)
    drawn(page)
    page.wait_for_function("() => document.getElementById('nonlinearity-one-title').textContent === 'Head 1.4'")
    written(page, "x", "0.25,-1")
    settled(page)
    first = query(page)
    expected = dict(part.split("=") for part in address(**state).partition("?")[2].split("&"))
    assert first == {**expected, "x": "0.25,-1", "depth": first.get("depth")} or first == {
        **{key: value for key, value in expected.items() if key != "x"},
        "x": "0.25,-1",
    }
    page.reload()
    drawn(page)
    page.wait_for_function("() => document.getElementById('nonlinearity-one-title').textContent === 'Head 1.4'")
    settled(page)
    assert query(page) == first
    expect(page.locator("#nonlinearity-error-graph .heatmaplayer image")).to_have_count(2)


def test_draw_with_the_mouse_and_with_the_keyboard(open_page):
    page = open_page(address(preset="drawn", knots="-1,0;0,1;1,0"))
    drawn(page)
    knots = page.locator(f"#{ids.EDITOR} .knot")
    expect(knots).to_have_count(3)
    editor = page.locator(f"#{ids.EDITOR}")
    box = editor.bounding_box()
    assert box is not None
    editor.click(position={"x": 0.9 * box["width"], "y": 0.3 * box["height"]})
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    added = float(query(page)["knots"].split(";")[-1].split(",")[0])
    assert 1.4 < added < 2.0
    expect(knots).to_have_count(4)
    page.locator(f"#{shell.body(ids.COMPILED)} >> text='4 ReLU'").wait_for()
    settled(page)
    knots.nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';')[1].startsWith('0.05,')")
    settled(page)
    assert page.evaluate("document.activeElement.dataset.index") == "1"
    page.keyboard.press("Delete")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 3")
    page.click(f"#{ids.ADD}")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    # However soon after the typing: the box waits for more of it before it tells the rest of the page.
    page.fill(f"#{ids.KNOTS}", "-2, 0\n-1, 1\n0, 0\n0.5, 0.5\n1, 1")
    page.click(f"#{ids.ADD}")
    expect(knots).to_have_count(6)
    page.wait_for_function(
        "() => new URLSearchParams(location.search).get('knots')?.startsWith('-2,0;-1,1;0,0;0.5,0.5;1,1;')"
    )
    page.fill(f"#{ids.KNOTS}", "-1, 0\n1, 1")
    page.click(f"#{ids.EDITOR} svg", position={"x": 250, "y": 60})
    expect(knots).to_have_count(3)
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.startsWith('-1,0;1,1;')")
    page.fill(f"#{ids.KNOTS}", "0, 0\n1, oops")
    notice = page.locator(f"#{shell.notice(ids.PANEL)}")
    notice.locator("text=got “1, oops”").wait_for()
    page.fill(f"#{ids.KNOTS}", "0, 0\n1, 1")
    written(page, "knots", "0,0;1,1")
    drawn(page)
    expect(knots).to_have_count(2)
    expect(notice).to_be_empty()


def test_a_head_and_an_input_are_chosen(open_page, compiler: Nonlinearity):
    page = open_page(address(eta=0.3))
    drawn(page)
    seen(page, ids.HEADS)
    page.click("#nonlinearity-heads-table .ag-row[row-index='3'] [col-id='head']")
    written(page, "head", "0.3")
    written(page, "view", "one")  # which shows it
    page.locator(f"#{shell.title(ids.ONE)} >> text='Head 0.3'").wait_for()
    page.click(f"#{ids.PICKER} [data-head='1']")
    written(page, "head", "0.1")
    slider = page.locator(f"#{ids.X1} [role=slider]")
    slider.focus()
    page.keyboard.press("Home")
    written(page, "x", "-2")
    page.locator(f"#{shell.body(ids.ONE)} >> text=t = x + 1 = −1").wait_for()
    made = compiler.compile(NonlinearityState(eta=0.3))
    weight = compiler.look(made, 0, 1, (-2.0,)).pattern[1, 1]
    expect(page.locator(f"#{shell.body(ids.ONE)}")).to_contain_text(f"σ(t/η) = {weight:.5g}")
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
    plot.click(position=place)
    page.wait_for_function("() => Math.abs(Number(new URLSearchParams(location.search).get('x')) - 1) < 0.05")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tolerance": 1e-17}, "below what float64 can be proven to reach"),
        ({"bound": -1.0}, "expected a positive finite number"),
        ({"preset": "random", "width": 64, "depth": 6, "construction": "paper"}, "at most 400 are compiled here"),
    ],
)
def test_what_cannot_be_compiled_is_a_notice(open_page, given: dict[str, Any], why: str):
    page = open_page(address(**given))
    notice = page.locator(f"#{shell.notice(ids.PANEL)}")
    notice.locator(f"text={why}").wait_for()
    expect(page.locator("#nonlinearity-body[data-empty]")).to_have_count(1)
    settled(page)
    expect(page.locator(f"#{shell.graph(ids.ERROR)}")).to_be_hidden()
    page.fill(f"#{ids.BOUND}", "1.25")
    page.fill(f"#{ids.TOLERANCE}", "1e-3")
    if "width" in given:
        page.fill(f"#{ids.WIDTH}", "4")
    # Each field speaks for itself, some time after it was written.
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
    starts = {
        "csv": None,
        "png": b"\x89PNG",
        "svg": b"<svg",
        "zip": b"PK",
        "safetensors": None,
        "ffn": None,
    }
    panels = {
        ids.COMPILED: ("csv", "safetensors", "zip", "ffn"), ids.ERROR: ("png", "svg", "csv"),
        ids.GATE: ("png",),
        ids.MASK: ("svg",), ids.ONE: ("csv", "png"), ids.HEADS: ("csv",),
    }  # fmt: skip
    for panel, kinds in panels.items():
        seen(page, panel)
        if {"png", "svg"} & set(kinds):
            page.locator(f"#{panel} .js-plotly-plot .nsewdrag").first.wait_for()
        for kind in kinds:
            page.click(f"#{panel}-export")
            with page.expect_download() as download:
                page.click(f"#{shell.export(panel, kind)}")
            with open(download.value.path(), "rb") as file:
                content = file.read(40)
            assert content.startswith(starts[kind]) if starts[kind] else len(content) > 20, (panel, kind)
