"""Matrices, tables whose cells are choices, searched rows and the buttons of heads in a real Chromium, on Circuits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.plots.colours import lookup
from aotlens.views.circuits import BLOCK, MAP, ROW
from app.pages.circuits import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import act, choose, focused, head_drawn, in_the_first_screen, opened, query, settled, written
from tests.app.declared_pages import addresses, asked

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
#: Of every table of the largest and smallest entries: its rows, and how often the Tab key stops in them.
_TABLES = """() => [...document.querySelectorAll("#circuits-top-lines table")]
    .map(({ tBodies: [body] }) => [body.rows.length, body.querySelectorAll('button[tabindex="0"]').length])"""
_PICKER = "#circuits-field-head-heads"
at = addresses(PAGE, checkpoint="tiny-mhsa", head=[1, 0])


@pytest.fixture(scope="module")
def service(app: App) -> Views:
    return app.services["circuits"]


def titled(page: Page, title: str) -> None:
    """Waits until the map has this title, and what is in view is there."""
    expect(page.locator("#circuits-map-title")).to_have_text(title)
    settled(page)


def middle(page: Page, panel: str, row: float, column: float) -> tuple[float, float]:
    """Where a share of the rows and columns of a matrix is in the window."""
    place = f"document.querySelector('#{panel}-matrix')"
    page.wait_for_function(f"() => {place}.map?.place")
    x, y = page.evaluate(
        f"""([row, column]) => {{
            const {{ canvas, place }} = {place}.map, {{ left, top }} = canvas.getBoundingClientRect();
            return [left + place.left + column * place.width, top + place.top + row * place.height]; }}""",
        [row, column],
    )
    return x, y


@pytest.mark.visit
def test_a_matrix_is_the_views_and_an_entry_chooses_by_click_and_keyboard(open_page, service: Views) -> None:
    page = open_page(at())
    titled(page, "Map of QK of head 1.0")
    in_the_first_screen(page, "circuits-map")
    in_the_first_screen(page, "circuits-top")
    result = service.workshop.result(MAP, service.values({"checkpoint": "tiny-mhsa", "head": [1, 0]}))
    values = np.array(page.evaluate("() => [...document.querySelector('#circuits-map-matrix').map.matrix.values]"))
    np.testing.assert_array_equal(values.astype(np.float32), result.values.astype(np.float32).ravel())
    pixels = np.array(page.evaluate(_PIXELS))[..., :3].reshape(-1, 3).astype(int)
    colours, share = lookup("diverging", "light", 511).astype(int), values / np.abs(values).max()
    assert np.abs(pixels - colours[np.rint(255 + 255 * share).astype(int)]).max() <= 3
    assert page.evaluate("() => !window.Plotly"), "plotly is loaded by what draws with it"
    assert query(page) == {"checkpoint": "tiny-mhsa", "head": "1.0"}
    page.locator("#circuits-map-matrix canvas").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    choose(page, page.keyboard.press, "ArrowDown")
    expect(page.locator("#circuits-map-matrix .map-tip b")).to_have_text(f"{result.values[1, 0]:.4f} nats")
    requests = asked(page)
    choose(page, page.keyboard.press, "Enter")
    written(page, "row", str(result.rows.ids[1]))
    written(page, "column", str(result.columns.ids[0]))
    written(page, "beside", "lines")
    assert len(requests) == 1, "both lists and their choices"
    choose(page, page.mouse.click, *middle(page, "circuits-map", 0.5 / 16, 2.5 / 16))
    written(page, "row", str(result.rows.ids[0]))
    written(page, "column", str(result.columns.ids[2]))
    labels = PAGE.declared.labels["row"](service, service.values({"checkpoint": "tiny-mhsa", "head": [1, 0]}))
    expect(page.locator("#circuits-field-row")).to_have_value(labels.shown(result.rows.ids[0]))


def test_heads_are_chosen_by_click_and_arrow_and_sides_follow(open_page) -> None:
    page = open_page(at())
    titled(page, "Map of QK of head 1.0")
    requests = asked(page)
    choose(page, page.click, f"{_PICKER} .pick-head >> text=1.2")
    titled(page, "Map of QK of head 1.2")
    focused(page, f"{_PICKER} .pick-head[data-layer='1'][data-head='2']")
    choose(page, page.keyboard.press, "ArrowLeft")
    titled(page, "Map of QK of head 1.1")
    choose(page, page.click, "#circuits-field-right")
    choose(page, page.get_by_role("option", name="tokens through 0.2").click)
    expect(page.locator("#circuits-circuit-caption")).to_contain_text("through 0.2")
    written(page, "right", "0.2")
    assert len(requests) == 3, "one request per choice"
    choose(page, page.get_by_text("OV: what it writes").click)
    titled(page, "Map of OV of head 1.1")
    written(page, "right", None)
    expect(page.locator("#circuits-field-right")).to_have_value("logits")
    expect(page.locator("#circuits-field-biases")).to_be_disabled()
    expect(page.locator("#circuits-field-distance")).to_be_hidden()
    opened(page, "Row and column")
    expect(page.locator("#circuits-row-title")).to_contain_text("promotes and suppresses")
    expect(page.locator("#circuits-open-atlas")).to_have_attribute(
        "href", "/atlas?checkpoint=tiny-mhsa&head=1.1&tab=head"
    )


def test_a_row_is_searched_and_a_link_opens_it_again(open_page, service: Views) -> None:
    page = open_page(at(beside="lines"))
    titled(page, "Map of QK of head 1.0")
    field = page.locator("#circuits-field-row")
    options = page.get_by_role("listbox", include_hidden=True).locator("[role=option]")
    before = options.count()
    choose(page, field.click)
    page.get_by_role("option").first.wait_for()
    assert options.count() > before
    choose(page, page.keyboard.type, "captain")
    choose(page, page.get_by_role("option", name="·captain", exact=True).click)
    expect(options).to_have_count(before)  # a closed list holds none
    expect(page.locator("#circuits-row-title")).to_contain_text("·captain")
    params = service.values({"checkpoint": "tiny-mhsa", "head": [1, 0]})
    labels = PAGE.declared.labels["row"](service, params)
    token = labels.search(" captain", 1)[0]
    written(page, "row", str(token))
    expected = service.workshop.result(ROW, service.values({"checkpoint": "tiny-mhsa", "head": [1, 0], "row": token}))
    first = page.locator("#circuits-row-lines tbody tr").first
    expect(first.locator("td.number").first).to_have_text(f"{expected.values[0]:.2f}".replace("-", "−"))
    choose(page, first.locator("button").click)
    written(page, "column", str(expected.largest_column))
    choose(page, page.click, "#circuits-field-rows")
    choose(page, page.keyboard.type, "captain")
    choose(page, page.get_by_role("option", name="·captain", exact=True).click)
    written(page, "rows", str(token))
    choose(page, page.click, f"{_PICKER} .pick-head >> text=1.1")
    written(page, "row", str(token))
    address = page.url
    again = open_page("/circuits?" + urlsplit(address).query, load=True)
    titled(again, "Map of QK of head 1.1")
    expect(again.locator("#circuits-field-row")).to_have_value("·captain")
    expect(again.locator(".mantine-Pill-root")).to_have_text("·captain")
    assert again.url == address
    choose(again, again.click, "#circuits-field-left")
    choose(again, again.get_by_role("option", name="positions").click)
    written(again, "row", None)
    written(again, "rows", None)
    assert "column" in query(again)


def test_a_block_is_chosen_in_the_whole_and_framed_there(open_page, service: Views) -> None:
    page = open_page(at(view="whole"))
    settled(page)
    choose(page, page.mouse.click, *middle(page, "circuits-overview", 0.75, 0.25))
    row, column = map(int, query(page)["block"].split("."))
    assert row == pytest.approx(0.75 * 150, abs=1.5) and column == pytest.approx(0.25 * 150, abs=1.5)
    params = service.values({"checkpoint": "tiny-mhsa", "head": [1, 0], "block": [row, column]})
    caption = BLOCK.caption(params, service.workshop.result(BLOCK, params))
    expect(page.locator("#circuits-block-caption")).to_have_text(caption)
    page.wait_for_function(
        "block => String(document.querySelector('#circuits-overview-matrix').map.frame) === String(block)",
        arg=[row, column],
    )


def test_cells_are_walked_by_keyboard_and_lead_to_heads_and_circuits(open_page) -> None:
    page = open_page(at(view="composition", kind="ov", z=1))
    settled(page)
    rows = page.locator("#circuits-composition-lines tbody tr")
    rows.first.locator("button").first.focus()
    choose(page, page.keyboard.press, "ArrowDown")
    choose(page, page.keyboard.press, "ArrowUp")
    focused(page, "#circuits-composition-lines tbody tr:first-child td:nth-child(2) button")
    choose(page, page.keyboard.press, "Enter")  # as a click
    assert query(page)["head"].startswith("0.") and query(page)["z"] == "1"
    expect(rows.first).to_contain_text("is read by")
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
    written(page, "head", "1.1")
    for mode, kind, side in (("keys (k)", None, "right"), ("queries (q)", None, "left"), ("values (v)", "ov", "left")):
        row = rows.filter(has_text=mode).first
        earlier = row.locator("button").first.inner_text()
        choose(page, row.locator("button").nth(1).click)
        titled(page, f"Map of {'OV' if kind else 'QK'} of head 1.1")
        written(page, side, earlier)
        written(page, "kind", kind)
        written(page, "left" if side == "right" else "right", None)
        expect(page.locator("#circuits-circuit-caption")).to_contain_text(f"Through {earlier}: as head {earlier}")
        opened(page, "Composition")


def test_tables_make_the_rows_that_show_and_mark_the_selected_head(open_page) -> None:
    page = open_page(at(), load=True)
    titled(page, "Map of QK of head 1.0")
    (rows, stops), (other, _) = page.evaluate(_TABLES)
    assert stops == 1 and other == rows
    choose(page, page.click, f"{_PICKER} .pick-head >> text=1.2")
    titled(page, "Map of QK of head 1.2")
    fewer = page.evaluate(_TABLES)
    assert fewer[0][0] < rows and [stops for _, stops in fewer] == [1, 1], "the box is lower than the window"
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(_TABLES)[0][0] > rows
    assert page.locator("#circuits-copying-lines tr").count() == 0, "a closed tab is not asked"
    opened(page, "Copying")
    expect(page.locator("#circuits-copying-lines tbody tr")).to_have_count(6)
    expect(page.locator("#circuits-copying-lines .here")).to_have_text("1.2")
    choose(page, page.click, f"{_PICKER} .pick-head >> text=1.1")
    expect(page.locator("#circuits-copying-lines .here")).to_have_text("1.1")
    opened(page, "Singular pairs")
    expect(
        page.locator("#circuits-singular-lines tr").nth(1).locator("td.tokens").first.locator(".token")
    ).to_have_count(8)


def test_what_is_missing_is_said_and_its_picture_is_not_there(open_page) -> None:
    page = open_page(at(checkpoint="tiny-fixed", head=[0, 0], beside="lines"))
    settled(page)
    expect(page.locator("#circuits-circuit-caption")).to_contain_text("no queries and no keys")
    expect(page.locator("#circuits-map-matrix")).to_be_hidden()
    opened(page, "Composition")
    expect(page.locator("#circuits-composition-caption")).to_contain_text("one layer")
    expect(page.locator("#circuits-composition-graph")).to_be_hidden()
    choose(page, page.get_by_text("OV: what it writes").click)
    opened(page, "Map")
    titled(page, "Map of OV of head 0.0")
    expect(page.locator("#circuits-map-matrix canvas")).to_be_visible()


def test_files_of_a_matrix_and_of_a_table(open_page) -> None:
    page = open_page(at())
    titled(page, "Map of QK of head 1.0")
    starts = {"csv": b'"row","row_label"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for kind, start in starts.items():
        choose(page, page.click, "#circuits-map-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#circuits-map-export-{kind}")
        with open(download.value.path(), "rb") as file:
            assert file.read(len(start)) == start, kind
    choose(page, page.click, "#circuits-top-export")
    with page.expect_download() as download:
        choose(page, page.click, "#circuits-top-export-json")
    assert download.value.suggested_filename == "tiny-mhsa-head-1.0-qk-tokens-tokens-top.json"


def test_a_prompt_is_carried_to_another_page_and_back(open_page, app: App) -> None:
    page = open_page(app.core.links.to("heads", checkpoint="tiny-mssa", text="The captain bowed", head=(2, 1)))
    head_drawn(page, "Head 2.1")
    choose(page, page.click, "text=Its circuits")
    titled(page, "Map of QK of head 2.1")
    choose(page, page.click, f"{_PICKER} .pick-head >> text=1.0")
    choose(page, page.click, "#circuits-open-heads")
    head_drawn(page, "Head 1.0")
    expect(page.get_by_label("Your text")).to_have_value("The captain bowed")


def test_a_step_back_counts_while_the_server_still_answers(open_page) -> None:
    page = open_page(at(head=[0, 1]))
    titled(page, "Map of QK of head 0.1")
    held: list[Route] = []
    page.route("**/_dash-update-component*", lambda route: held.append(route))
    page.locator(f"{_PICKER} [aria-pressed=true]").focus()
    for key, head in {"ArrowRight": "2", "ArrowLeft": "1"}.items():
        act(page.keyboard.press, key)
        page.wait_for_selector(f"{_PICKER} [data-layer='0'][data-head='{head}'][aria-pressed=true]")
    for route in held:
        route.continue_()
    page.unroute("**/_dash-update-component*")
    titled(page, "Map of QK of head 0.1")
    assert page.locator(f"{_PICKER} [aria-pressed=true]").get_attribute("data-head") == "1"
