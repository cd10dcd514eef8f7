"""Non-linearity in Chromium: η slides, a function is drawn, a head and an input are chosen, what cannot be compiled."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from aotlens.views.nonlinearity import ERROR, GATE, HEAD, LAYERS, eta
from app.pages.nonlinearity import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import choose, opened, query, written
from tests.app.declared_pages import addresses, asked, shows

at = addresses(PAGE)


@pytest.fixture(scope="module")
def service(app: App) -> Views:
    return app.services["nonlinearity"]


@pytest.mark.visit
def test_eta_slides_from_the_proofs_and_returns_to_it(open_page, service: Views) -> None:
    page = open_page(at(), load=True)
    shows(page, service, ERROR, LAYERS)
    slider, thumb = (page.locator(f"#nonlinearity-field-eta{part}") for part in ("-value", " [role=slider]"))
    first = service.values({}).model.etas[0]
    expect(slider).to_have_text(f"{first:.3g}")
    assert query(page) == {}
    requests = asked(page)
    thumb.focus()
    choose(page, page.keyboard.press, "ArrowRight")
    page.wait_for_function("() => new URLSearchParams(location.search).has('eta')")
    value = float(query(page)["eta"])
    assert first < value < 1.3 * first and len(requests) == 1
    shows(page, service, ERROR, LAYERS, eta=value)
    expect(page.locator("#nonlinearity-error-body")).to_contain_text(eta(service.values({"eta": value})))
    opened(page, "The gate")
    shows(page, service, GATE, eta=value)
    choose(page, page.get_by_role("button", name="η of the proof").click)
    written(page, "eta", None)
    shows(page, service, ERROR, GATE)
    choose(page, page.click, "#nonlinearity-field-preset")
    choose(page, page.get_by_role("option", name="sawtooth (deep)").click)
    written(page, "preset", "sawtooth")
    shows(page, service, ERROR, GATE, preset="sawtooth")
    expect(slider).to_have_text(f"{service.values({'preset': 'sawtooth'}).model.etas[0]:.3g}")
    assert "eta" not in query(page), "the slider stands at the η of another proof"


def test_a_function_is_drawn_with_the_mouse_and_with_the_keyboard(open_page, service: Views) -> None:
    page = open_page(at(preset="drawn", knots="-1,0;0,1;1,0"))
    shows(page, service, ERROR, preset="drawn", knots="-1,0;0,1;1,0")
    knots, editor = (page.locator(f"#nonlinearity-editor {part}") for part in (".knot", "svg"))
    expect(knots).to_have_count(3)
    box = editor.bounding_box()
    assert box is not None
    choose(page, editor.click, position={"x": 0.9 * box["width"], "y": 0.3 * box["height"]})
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots')?.split(';').length === 4")
    assert 1.4 < float(query(page)["knots"].split(";")[-1].split(",")[0]) < 2.0
    expect(page.locator("#nonlinearity-layers-lines >> text='4 ReLU'")).to_be_visible()
    knots.nth(1).focus()
    choose(page, page.keyboard.press, "ArrowRight")
    page.wait_for_function("() => new URLSearchParams(location.search).get('knots').split(';')[1] === '0.05,1'")
    expect(knots.nth(1)).to_be_focused()
    choose(page, page.keyboard.press, "Delete")
    expect(knots).to_have_count(3)
    choose(page, page.get_by_role("button", name="Add a point").click)
    expect(knots).to_have_count(4)
    choose(page, page.locator("#nonlinearity-field-knots").fill, "0,0;1,oops")
    expect(page.locator("#nonlinearity-error-notice")).to_contain_text("got “1,oops”")
    choose(page, page.locator("#nonlinearity-field-knots").fill, "0,0;1,1")
    written(page, "knots", "0,0;1,1")
    shows(page, service, ERROR, preset="drawn", knots="0,0;1,1")
    expect(knots).to_have_count(2)
    choose(page, page.click, "#nonlinearity-field-preset")
    choose(page, page.get_by_role("option", name="hat").click)
    expect(page.locator("#nonlinearity-drawing")).to_be_hidden()
    expect(page.locator("#nonlinearity-field-knots")).to_be_hidden()


def test_a_head_and_an_input_are_chosen(open_page, service: Views) -> None:
    page = open_page(at(eta=0.3, beside="heads"))
    choose(page, page.get_by_role("button", name="0.3", exact=True).click)
    written(page, "head", "0.3")
    written(page, "view", "one")
    expect(page.locator("#nonlinearity-head-title")).to_have_text("Head 0.3")
    sliders = page.locator("#nonlinearity-inputs input")
    choose(page, sliders.first.press, "Home")
    written(page, "x", "-2")
    shows(page, service, HEAD, eta=0.3, head=[0, 3], x=[-2.0])
    choose(page, page.get_by_role("button", name="0.0", exact=True).click)
    opened(page, "The gate")
    expect(page.locator("#nonlinearity-gate-caption")).to_contain_text("This head has no gate")
    opened(page, "Error over the inputs")
    plot = page.locator("#nonlinearity-error-graph .nsewdrag").first
    box = plot.bounding_box()
    assert box is not None
    place = {"x": 0.75 * box["width"], "y": 0.5 * box["height"]}
    plot.hover(position=place)
    page.wait_for_selector("#nonlinearity-error-graph .hoverlayer :is(.hovertext, .legend)")
    choose(page, plot.click, position=place)
    page.wait_for_function("() => Math.abs(Number(new URLSearchParams(location.search).get('x')) - 1) < 0.05")
    choose(page, page.locator("#nonlinearity-field-inputs [role=slider]").press, "ArrowRight")
    written(page, "inputs", "2")
    written(page, "head", None)
    expect(sliders).to_have_count(2)


def test_weights_are_saved_and_what_cannot_be_compiled_is_said(open_page) -> None:
    page = open_page(at())
    for kind, start in (("zip", b"PK"), ("safetensors", b"")):
        choose(page, page.click, "#nonlinearity-layers-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#nonlinearity-layers-export-{kind}")
        with open(download.value.path(), "rb") as file:
            assert file.read(2).startswith(start)
    choose(page, page.locator("#nonlinearity-field-tolerance").fill, "99999999")
    written(page, "tolerance", "1000000")  # the largest, while somebody still types
    choose(page, page.locator("#nonlinearity-field-auxiliary").fill, "1,,2")
    expect(page.locator("#nonlinearity-error-notice")).to_contain_text("Auxiliary token: expected a number")
    expect(page.locator("#nonlinearity-layers-caption")).to_contain_text("Auxiliary token: expected a number")
