"""The Circuits page in a real Chromium: choose, search, click, walk, follow links; a console without errors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.circuits import copying_scores
from aotlens.plots.colours import lookup
from aotlens.views.circuits import BLOCK, MAP, ROW
from app.pages.circuits.address import ADDRESS, CircuitsState
from app.pages.circuits.ids import VIEWS, ids
from app.pages.circuits.service import CircuitRequest, Circuits
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import (
    PATIENCE,
    SCHEMES,
    act,
    choose,
    fits,
    focused,
    head_drawn,
    in_the_first_screen,
    query,
    revealed,
    seen,
    settled,
    written,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


#: The canvas's pixel in the middle of every entry of the map.
_PIXELS = """() => {
    const { canvas, matrix, place } = document.querySelector("#circuits-map-matrix").map, pen = canvas.getContext("2d");
    const at = (start, side, labels, index) => devicePixelRatio * (start + ((index + .5) * side) / labels.length);
    return matrix.rows.map((_, row) => matrix.columns.map((_, column) => {
        const x = at(place.left, place.width, matrix.columns, column);
        const y = at(place.top, place.height, matrix.rows, row);
        return [...pen.getImageData(x, y, 1, 1).data]; }));
}"""


@pytest.fixture
def service(app: App) -> Circuits:
    return app.services["circuits"]


def circuits(**state: Any) -> str:
    return ADDRESS.to(**{"checkpoint": "tiny-mhsa", "head": (1, 0), **state})


def drawn(page: Page, title: str) -> None:
    """At the page's top: waits until the map is that head's, nothing is under way, and what is in view is there."""
    seen(page, ids.MAP)
    seen(page, ids.TOP)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function("title => document.getElementById('circuits-map-title')?.textContent === title", arg=title)
    settled(page)
    page.wait_for_function(
        """() => document.querySelector("#circuits-map-matrix").map?.place
            && document.querySelector("#circuits-top-entries tbody tr")
            && !document.querySelector("#circuits-map[aria-busy]")"""
    )


def chosen(service: Circuits, **state: Any) -> CircuitRequest:
    return service.of_address(CircuitsState(**{"checkpoint": "tiny-mhsa", "head": (1, 0), **state}))


@pytest.mark.visit
def test_the_map_in_the_browser_is_the_circuit(open_page, service: Circuits):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    result = service.workshop.result(MAP, chosen(service))
    shown = np.array(page.evaluate("() => [...document.querySelector('#circuits-map-matrix').map.matrix.values]"))
    np.testing.assert_array_equal(shown.astype(np.float32), result.values.astype(np.float32).ravel())
    # What is drawn: in the middle of every entry, the colour of its value.
    pixels = np.array(page.evaluate(_PIXELS))[..., :3].reshape(-1, 3).astype(int)
    colours, share = lookup("diverging", "light", 511).astype(int), shown / np.abs(shown).max()
    assert np.abs(pixels - colours[np.rint(255 + 255 * share).astype(int)]).max() <= 3
    page.locator("#circuits-map-matrix canvas").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    choose(page, page.keyboard.press, "ArrowDown")
    expect(page.locator("#circuits-map-matrix .map-tip b")).to_have_text(f"{result.values[1, 0]:.4f} nats")
    assert page.evaluate("() => !window.Plotly"), "plotly is loaded by what draws with it"
    assert "nats" in page.inner_text(f"#{ids.MEANING}")
    assert "Relative" in page.inner_text(f"#{ids.EXACTNESS}")
    # The browser writes the circuit only: nothing else was chosen.
    assert query(page) == {"checkpoint": "tiny-mhsa", "head": "1.0"}


def test_the_map_is_in_the_first_screen_and_tabs_are_remembered(open_page):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    in_the_first_screen(page, ids.MAP)
    in_the_first_screen(page, ids.TOP)
    seen(page, ids.EIGENVALUES)
    written(page, "view", "eigenvalues")
    # A click in a table opens the list of what was clicked.
    choose(page, page.click, "#circuits-top-entries tbody tr >> nth=0 >> button >> nth=0")
    written(page, "beside", "lines")
    again = open_page(circuits(view="composition", beside="copying"), load=True)
    again.locator("#circuits-copying-heads tbody tr").first.wait_for()
    again.locator("#circuits-composition-pairs tbody tr").first.wait_for()
    assert again.locator("#circuits-map").get_attribute("aria-busy") == "true"


def test_what_the_address_names_and_is_not_there_is_said(open_page):
    page = open_page(circuits(left="1.1", row=99_999, columns=(3, 999_999), beside="block", block=(900, 2)))
    said = page.locator(f"#{shell.notice(ids.CHOICE)}")
    expect(said).to_contain_text("left=1.1: expected a side of this circuit. tokens was taken instead.")
    expect(said).to_contain_text("row=99999: expected tokens from 0 to 299. It was left out.")
    expect(said).to_contain_text("columns=3-999999: expected tokens from 0 to 299. 3 was taken instead.")
    expect(page.locator(f"#{shell.notice(ids.BLOCK)}")).to_contain_text(
        "block=900.2: expected one of 150 × 150 blocks."
    )


def test_choose_head_kind_and_side(open_page):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    choose(page, page.click, "#circuits-heads .pick-head >> text=1.2")
    drawn(page, "Map of QK of head 1.2")
    focused(page, "#circuits-heads .pick-head[data-layer='1'][data-head='2']")
    choose(page, page.keyboard.press, "ArrowLeft")
    drawn(page, "Map of QK of head 1.1")
    choose(page, page.click, f"#{ids.RIGHT}")
    choose(page, page.get_by_role("option", name="tokens through 0.2").click)
    page.wait_for_function("() => document.getElementById('circuits-meaning').textContent.includes('through 0.2')")
    written(page, "right", "0.2")
    choose(page, page.click, f"#{ids.KIND} >> text=OV")
    drawn(page, "Map of OV of head 1.1")
    written(page, "kind", "ov")
    written(page, "right", None)
    seen(page, ids.ROW)
    page.locator("#circuits-row-title >> text=promotes and suppresses").wait_for()
    expect(page.locator(f"#{ids.BIASES}")).to_be_disabled()


def test_search_a_token_click_another_and_a_link_reopens_the_view(open_page, service: Circuits):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    seen(page, ids.ROW)
    choose(page, page.click, f"#{ids.ROW_CHOICE}")
    choose(page, page.keyboard.type, "captain")
    choose(page, page.get_by_role("option", name="·captain", exact=True).click)
    page.locator("#circuits-row-title >> text=·captain").wait_for()
    labels = service.labels(chosen(service))[1]
    token = labels.search(" captain", 1)[0]
    written(page, "row", str(token))
    expected = service.workshop.result(ROW, chosen(service, row=token))
    column = expected.largest_column
    first = page.locator("#circuits-row-entries tbody tr").first
    expect(first.locator("td.number").first).to_have_text(f"{expected.values[0]:.2f}".replace("-", "−"))
    expect(first.locator("button")).to_have_text(labels.short(column))

    # A click on a token of a table lists its column.
    choose(page, first.locator("button").click)
    written(page, "column", str(column))
    page.locator(f"#circuits-column-title >> text={labels.shown(column)}").wait_for()

    expect(page.get_by_role("option")).to_have_count(0)  # the other choice's list is shut
    choose(page, page.click, f"#{ids.MAP_ROWS}")
    choose(page, page.keyboard.type, "captain")
    choose(page, page.get_by_role("option", name="·captain", exact=True).click)
    written(page, "rows", str(token))
    settled(page)
    kept = page.url
    again = open_page(urlsplit(kept).path + "?" + urlsplit(kept).query, load=True)
    drawn(again, "Map of QK of head 1.0")
    seen(again, ids.ROW)
    again.locator("#circuits-row-title >> text=·captain").wait_for()
    expect(again.locator(f"#{ids.ROW_CHOICE}")).to_have_value("·captain")
    assert again.url == kept


def test_a_click_on_the_whole_matrix_shows_its_block(open_page, service: Circuits):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    seen(page, ids.OVERVIEW)
    seen(page, ids.BLOCK)
    whole = page.locator("#circuits-overview-matrix canvas")
    whole.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#circuits-overview-matrix').map.place")
    place = page.evaluate("() => document.querySelector('#circuits-overview-matrix').map.place")
    choose(
        page,
        whole.click,
        position={"x": place["left"] + place["width"] * 0.25, "y": place["top"] + place["height"] * 0.75},
    )
    page.wait_for_function("() => new URLSearchParams(location.search).get('block')")
    row, column = map(int, query(page)["block"].split("."))
    n = 150
    assert row == pytest.approx(0.75 * n, abs=1.5) and column == pytest.approx(0.25 * n, abs=1.5)
    block = chosen(service, block=(row, column))
    caption = BLOCK.caption(block, service.workshop.result(BLOCK, block))
    expect(page.locator(f"#{shell.caption(ids.BLOCK)}")).to_contain_text(caption)
    page.wait_for_function(
        "block => String(document.querySelector('#circuits-overview-matrix').map.frame) === String(block)",
        arg=[row, column],
    )


def test_a_panel_is_asked_for_when_it_is_seen(open_page, service: Circuits, monkeypatch: pytest.MonkeyPatch):
    asked, release = threading.Event(), threading.Event()

    def slow(*given: Any, **options: Any) -> Any:
        asked.set()
        release.wait(PATIENCE / 1000)
        return copying_scores(*given)

    monkeypatch.setattr("aotlens.circuits.copying_scores", slow)
    page = open_page(circuits(checkpoint="tiny-mssa"))  # of which no other test has asked it: what is kept is not asked
    drawn(page, "Map of QK of head 1.0")
    panel = page.locator(f"#{ids.COPYING}")
    assert not asked.is_set() and panel.get_attribute("aria-busy") == "true"
    # What waits says so, and does not say that there is nothing.
    revealed(page, ids.COPYING)
    page.wait_for_function(
        """id => {
            const said = getComputedStyle(document.querySelector(`#${id} .panel-content`), "::after");
            return said.content.includes("Computing") && said.opacity === "1";
        }""",
        arg=ids.COPYING,
    )
    assert asked.wait(PATIENCE / 1000)
    release.set()
    seen(page, ids.COPYING)
    expect(page.locator("#circuits-copying-heads tbody tr")).to_have_count(6)
    choose(page, page.click, "#circuits-heads .pick-head >> text=1.1")
    page.evaluate("scrollTo(0, 0)")
    drawn(page, "Map of QK of head 1.1")
    seen(page, ids.COPYING)
    expect(page.locator("#circuits-copying-heads .here")).to_have_text("1.1")


def test_walk_along_the_composition(open_page):
    page = open_page(circuits(z=1))
    drawn(page, "Map of QK of head 1.0")
    seen(page, ids.COMPOSITION)
    page.locator("#circuits-composition-pairs tbody button").first.focus()
    choose(page, page.keyboard.press, "ArrowDown")
    choose(page, page.keyboard.press, "ArrowUp")
    focused(page, "#circuits-composition-pairs tbody tr:first-child td:nth-child(2) button")
    choose(page, page.keyboard.press, "Enter")  # as a click
    page.wait_for_function("() => new URLSearchParams(location.search).get('head')?.startsWith('0.')")
    drawn(page, f"Map of QK of head {query(page)['head']}")
    seen(page, ids.COMPOSITION)
    page.locator("#circuits-composition-pairs >> text=is read by").first.wait_for()
    written(page, "z", "1")

    # The same by a click on a head of the picture: 1.1 stands half way down the later layer.
    page.wait_for_function("() => !document.querySelector('#circuits-composition [data-dash-is-loading]')")
    page.locator("#circuits-composition-graph .nsewdrag").first.wait_for()  # plotly comes when it is seen
    x, y = page.evaluate(
        """() => { const plot = document.querySelector("#circuits-composition-graph .js-plotly-plot");
                   const { xaxis, yaxis } = plot._fullLayout;
                   return [xaxis.l2p(1), yaxis.l2p(0)]; }"""
    )
    plot = page.locator("#circuits-composition-graph .nsewdrag")
    plot.hover(position={"x": x, "y": y})
    page.locator("#circuits-composition-graph .hovertext").first.wait_for()
    choose(page, plot.click, position={"x": x, "y": y})
    drawn(page, "Map of QK of head 1.1")


def test_a_composition_leads_to_the_circuit_through_the_earlier_head(open_page):
    page = open_page(circuits(kind="ov"))
    drawn(page, "Map of OV of head 1.0")
    seen(page, ids.COMPOSITION)
    for mode, kind, side in (("keys (k)", None, "right"), ("queries (q)", None, "left"), ("values (v)", "ov", "left")):
        row = page.locator("#circuits-composition-pairs tbody tr", has_text=mode).first
        earlier = row.locator("button").first.inner_text()
        choose(page, row.locator("button").nth(1).click)
        written(page, side, earlier)
        written(page, "kind", kind)
        written(page, "left" if side == "right" else "right", None)
        expect(page.locator(f"#{ids.MEANING}")).to_contain_text(f"Through {earlier}: as head {earlier} writes it")
        drawn(page, f"Map of {'OV' if kind else 'QK'} of head 1.0")
        assert query(page)["head"] == "1.0"
        seen(page, ids.COMPOSITION)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [("tiny-fixed", "no queries and no keys"), ("broken", "can't be opened")],
)
def test_what_there_is_not_is_said(open_page, checkpoint: str, message: str):
    page = open_page(circuits(checkpoint=checkpoint, head=(0, 0)))
    page.locator(f"#{ids.CHOICE} >> text={message}").wait_for()
    settled(page)
    expect(page.locator("#circuits-map-matrix")).to_be_hidden()
    if checkpoint == "tiny-fixed":
        seen(page, ids.COMPOSITION)
        page.locator(f"#{shell.caption(ids.COMPOSITION)} >> text=one layer").wait_for()
        choose(page, page.click, f"#{ids.KIND} >> text=OV")
        drawn(page, "Map of OV of head 0.0")


def test_from_heads_and_back(open_page, app: App):
    page = open_page(app.core.links.to("heads", checkpoint="tiny-mssa", text="The captain bowed", head=(2, 1)))
    head_drawn(page, "Head 2.1")
    choose(page, page.click, "text=Its circuits")
    drawn(page, "Map of QK of head 2.1")
    seen(page, ids.COMPOSITION)
    expect(page.locator(f"#{shell.caption(ids.COMPOSITION)}")).to_contain_text("one matrix")
    choose(page, page.click, "#circuits-heads .pick-head >> text=1.0")
    drawn(page, "Map of QK of head 1.0")
    summary = page.locator(f"#{ids.OPEN_ATLAS}")
    expect(summary).to_have_attribute("href", "/atlas?checkpoint=tiny-mssa&head=1.0&tab=head")
    choose(page, page.click, f"#{ids.OPEN_HEADS}")
    head_drawn(page, "Head 1.0")
    expect(page.get_by_label("Your text")).to_have_value("The captain bowed")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page(circuits(kind="ov"), width=800, scheme=scheme)
    page.locator(f"#{ids.MAP}").scroll_into_view_if_needed()
    expect(page.locator(f"#{shell.title(ids.MAP)}")).to_have_text("Map of OV of head 1.0")
    for panel in VIEWS:  # what is out of view is asked for only when it is scrolled to
        seen(page, panel)
    fits(page)


def test_exports(open_page):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    starts = {"csv": b'"row","row_label"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for kind, start in starts.items():
        choose(page, page.click, f"#{ids.MAP}-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#{shell.export(ids.MAP, kind)}")
        with open(download.value.path(), "rb") as file:
            assert file.read(len(start)) == start, kind
    choose(page, page.click, f"#{ids.TOP}-export")
    with page.expect_download() as download:
        choose(page, page.click, f"#{shell.export(ids.TOP, 'csv')}")
    assert download.value.suggested_filename == "tiny-mhsa-head-1.0-qk-tokens-tokens-top.csv"


def test_a_step_back_counts_while_the_server_still_answers(open_page):
    page = open_page(circuits(checkpoint="tiny-mhsa", head=(0, 1)))
    drawn(page, "Map of QK of head 0.1")
    held: list[Route] = []
    page.route("**/_dash-update-component*", lambda route: held.append(route))
    page.locator("#circuits-heads [aria-pressed=true]").focus()
    for key, head in {"ArrowRight": "2", "ArrowLeft": "1"}.items():
        act(page.keyboard.press, key)
        page.wait_for_selector(f"#circuits-heads [data-layer='0'][data-head='{head}'][aria-pressed=true]")
        page.wait_for_selector("#circuits-map[aria-busy]")
    for route in held:
        route.continue_()
    page.unroute("**/_dash-update-component*")
    drawn(page, "Map of QK of head 0.1")
    assert page.locator("#circuits-heads [aria-pressed=true]").get_attribute("data-head") == "1"
