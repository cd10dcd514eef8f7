"""The Non-linearity page in a real Chromium: choose, draw, slide η, follow links; a console without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from app import ids
from app.services import Services
from app.urlstate import NonlinearityState, format_nonlinearity
from tests.app.conftest import query, written

if TYPE_CHECKING:
    from playwright.sync_api import Page


def address(**state: Any) -> str:
    return format_nonlinearity(NonlinearityState(**state))


def drawn(page: Page) -> None:
    """Waits until facts, figures, tables and the address are there."""
    page.wait_for_function(
        """() => document.querySelectorAll("#compiled-facts .fact").length === 6
            && document.querySelectorAll("#compiled-error-graph .main-svg").length > 0
            && document.querySelectorAll("#one-head-pattern .heatmaplayer image").length > 0
            && document.querySelectorAll("#mask-graph .heatmaplayer image").length > 0
            && document.querySelectorAll("#compiled-heads-table .ag-row").length > 0
            && document.getElementById("snippet-code").textContent.includes("compile_ffn")
            && location.search.includes("head=")"""
    )


def facts(page: Page) -> dict[str, str]:
    names, values = (page.locator(f"#compiled-facts .fact-{part}").all_inner_texts() for part in ("name", "value"))
    return dict(zip(names, values, strict=True))


def test_choose_a_preset_and_it_is_compiled(open_page, services: Services):
    page = open_page("/nonlinearity")
    drawn(page)
    page.click(f"#{ids.NONLINEARITY_PRESET}")
    page.get_by_role("option", name="a sawtooth, by depth").click()
    page.wait_for_function("() => location.search.includes('preset=sawtooth')")
    page.click(f"#{ids.NONLINEARITY_CONSTRUCTION} >> text=the paper's")
    written(page, "construction", "paper")
    made = services.nonlinearity.compile(NonlinearityState(preset="sawtooth", construction="paper"))
    page.locator(f"#{ids.COMPILED_FACTS} >> text='{made.compiled.n_heads}'").wait_for()
    shown = facts(page)
    assert shown["proven |model − FFN|"] == f"≤ {made.compiled.proven_error:.3g}"
    assert shown["largest found"] == f"{made.measured:.3g}"
    assert f"{made.compiled.etas[0]:.3g}" in page.locator(f"#{ids.ETA_CAPTION}").inner_text()
    assert page.locator("table.effect tbody tr").count() == 2
    page.click(f"#{ids.NONLINEARITY_ACTIVATION} >> text=SiLU")
    page.locator(f"#{ids.ETA_CAPTION} >> text=nothing to slide").wait_for()


def test_slide_eta_and_the_numbers_follow(open_page, services: Services):
    page = open_page(address())
    drawn(page)
    before = facts(page)
    thumb = page.locator(f"#{ids.ETA_SLIDER} [role=slider]")
    thumb.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.locator(f"#{ids.ETA_CAPTION} >> text=chosen by you").wait_for()
    page.wait_for_function("() => location.search.includes('eta=')")
    eta = float(query(page)["eta"])
    start = services.nonlinearity.compile(NonlinearityState()).compiled.etas[0]
    assert 1.2 * start < eta < 2 * start
    made = services.nonlinearity.compile(NonlinearityState(eta=eta))
    page.locator(f"#{ids.COMPILED_FACTS} >> text='≤ {made.compiled.proven_error:.3g}'").wait_for()
    page.locator(f"#{ids.COMPILED_FACTS} >> text='{made.measured:.3g}'").wait_for()
    page.locator(f"#{ids.GATE_CAPTION} >> text=η = {eta:.3g}").wait_for()
    page.locator(f"#{ids.SNIPPET_CODE} >> text=with_etas([{eta!r}])").wait_for()
    page.click(f"#{ids.ETA_PROOF}")
    page.wait_for_function("() => !location.search.includes('eta=')")
    page.locator(f"#{ids.ETA_CAPTION} >> text=as the proof chooses it").wait_for()
    page.locator(f"#{ids.COMPILED_FACTS} >> text='{before['proven |model − FFN|']}'").wait_for()


def test_the_whole_state_is_in_the_address(open_page):
    state = {
        "preset": "random", "inputs": 2, "width": 3, "depth": 2, "seed": 7, "bound": 1.5, "tolerance": 0.125,
        "construction": "narrow", "auxiliary": "random", "eta": 0.05, "head": (1, 4), "x": (0.25, -1.0), "log": True,
    }  # fmt: skip
    page = open_page(address(**state), load=True)
    drawn(page)
    page.wait_for_function("() => document.getElementById('one-head-title').textContent === 'Head 1.4'")
    first = query(page)
    expected = dict(part.split("=") for part in address(**state).partition("?")[2].split("&"))
    assert first == {**expected, "x": "0.25,-1", "depth": first.get("depth")} or first == {
        **{key: value for key, value in expected.items() if key != "x"},
        "x": "0.25,-1",
    }
    page.reload()
    drawn(page)
    page.wait_for_function("() => document.getElementById('one-head-title').textContent === 'Head 1.4'")
    assert query(page) == first
    page.wait_for_function("() => document.querySelectorAll('#compiled-error-graph .heatmaplayer image').length === 2")


def test_draw_with_the_mouse_and_with_the_keyboard(open_page):
    page = open_page(address(preset="drawn", knots="-1,0;0,1;1,0"))
    drawn(page)
    knots = page.locator(f"#{ids.NONLINEARITY_EDITOR} .knot")
    assert knots.count() == 3
    box = page.locator(f"#{ids.NONLINEARITY_EDITOR}").bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 0.3 * box["height"])
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    added = float(query(page)["knots"].split(";")[-1].split(",")[0])
    assert 1.4 < added < 2.0 and knots.count() == 4
    page.locator(f"#{ids.COMPILED_LAYERS} >> text='4 ReLU'").wait_for()
    knots.nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';')[1].startsWith('0.05,')")
    assert page.evaluate("document.activeElement.dataset.index") == "1"
    page.keyboard.press("Delete")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 3")
    page.click(f"#{ids.NONLINEARITY_ADD}")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    page.fill(f"#{ids.NONLINEARITY_KNOTS}", "0, 0\n1, oops")
    notice = page.locator(f"#{ids.notice(ids.NONLINEARITY_PANEL)}")
    notice.locator("text=got “1, oops”").wait_for()
    page.fill(f"#{ids.NONLINEARITY_KNOTS}", "0, 0\n1, 1")
    written(page, "knots", "0,0;1,1")
    drawn(page)
    assert knots.count() == 2 and not notice.locator("*").count()


def test_a_head_and_an_input_are_chosen(open_page, services: Services):
    page = open_page(address(eta=0.3))
    drawn(page)
    page.click("#compiled-heads-table .ag-row >> nth=3 >> [col-id='head']")
    written(page, "head", "0.3")
    page.locator(f"#{ids.title(ids.ONE_HEAD)} >> text='Head 0.3'").wait_for()
    page.click(f"#{ids.ONE_HEAD_PICKER} [data-head='1']")
    written(page, "head", "0.1")
    slider = page.locator(f"#{ids.ONE_HEAD_FIRST} [role=slider]")
    slider.focus()
    page.keyboard.press("Home")
    written(page, "x", "-2")
    page.locator(f"#{ids.ONE_HEAD_SAYS} >> text=t = x + 1 = −1").wait_for()
    made = services.nonlinearity.compile(NonlinearityState(eta=0.3))
    weight = services.nonlinearity.look(made, 0, 1, (-2.0,)).pattern[1, 1]
    assert f"σ(t/η) = {weight:.5g}" in page.locator(f"#{ids.ONE_HEAD_SAYS}").inner_text()
    plot = page.locator(f"#{ids.COMPILED_ERROR_GRAPH} .nsewdrag").first.bounding_box()
    page.mouse.move(plot["x"] + 0.75 * plot["width"], plot["y"] + 0.5 * plot["height"])
    page.wait_for_selector(
        f"#{ids.COMPILED_ERROR_GRAPH} .hoverlayer .hovertext, #{ids.COMPILED_ERROR_GRAPH} .hoverlayer .legend"
    )
    page.mouse.down()
    page.mouse.up()
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
    notice = page.locator(f"#{ids.notice(ids.NONLINEARITY_PANEL)}")
    notice.locator(f"text={why}").wait_for()
    assert page.locator("#nonlinearity-body[data-empty]").count() == 1
    assert not page.locator(f"#{ids.COMPILED_ERROR_GRAPH}").is_visible()
    page.fill(f"#{ids.NONLINEARITY_BOUND}", "1.25")
    page.fill(f"#{ids.NONLINEARITY_TOLERANCE}", "1e-3")
    if "width" in given:
        page.fill(f"#{ids.NONLINEARITY_WIDTH}", "4")
    drawn(page)
    assert query(page)["bound"] == "1.25" and query(page)["tolerance"] == "0.001"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page(address(preset="drawn", inputs=2), width=800, scheme=scheme)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 800


def test_export(open_page):
    page = open_page(address())
    drawn(page)
    starts = {
        "csv": None,
        "png": b"\x89PNG",
        "svg": b"<svg",
        "zip": b"PK",
        "py": b"import torch",
        "safetensors": None,
        "ffn": None,
    }
    panels = {
        ids.COMPILED: ("csv", "safetensors", "zip", "ffn"), ids.COMPILED_ERROR: ("png", "svg", "csv"),
        ids.GATE: ("png",),
        ids.MASK: ("svg",), ids.ONE_HEAD: ("csv", "png"), ids.SNIPPET: ("py",), ids.COMPILED_HEADS: ("csv",),
    }  # fmt: skip
    for panel, kinds in panels.items():
        for kind in kinds:
            page.click(f"#{panel}-export")
            with page.expect_download() as download:
                page.click(f"#{ids.export(panel, kind)}")
            with open(download.value.path(), "rb") as file:
                content = file.read(40)
            assert content.startswith(starts[kind]) if starts[kind] else len(content) > 20, (panel, kind)
