"""The Circuits page in a real Chromium: choose, search, click, walk, follow links; a console without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from app import ids
from app.services import Services, circuit_views
from app.services.circuits import Choice
from app.urlstate import CircuitsState, HeadsState, format_circuits, format_heads
from tests.app.conftest import fits, focused, head_drawn, query, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page


def circuits(**state: Any) -> str:
    return format_circuits(CircuitsState(**{"checkpoint": "tiny-mhsa", "head": (1, 0), **state}))


def drawn(page: Page, title: str) -> None:
    """Waits until the map is that head's, nothing is under way, and all tables and figures are there."""
    page.wait_for_function("title => document.getElementById('entries-title')?.textContent === title", arg=title)
    settled(page)
    page.wait_for_function(
        """() => document.querySelector("#entries-graph .js-plotly-plot .heatmaplayer image")
            && document.querySelector("#overview-graph .js-plotly-plot .heatmaplayer image")
            && document.querySelector("#top-largest .ag-row") && document.querySelector("#row-smallest .ag-row")
            && document.querySelector("#block-table .ag-row") && document.querySelector("#copying-table .ag-row")"""
    )


def choice(**changes: Any) -> Choice:
    default = {"checkpoint": "tiny-mhsa", "layer": 1, "head": 0, "kind": "qk", "left": "tokens", "right": "tokens"}
    return Choice(**{**default, "biases": False, **changes})


def test_the_map_in_the_browser_is_the_circuit(open_page, services: Services):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    shown = page.evaluate(
        """() => { const z = document.querySelector("#entries-graph .js-plotly-plot")._fullData[0].z;
                   return Array.from(z, row => Array.from(row)); }"""
    )
    view = circuit_views.entries(services.circuits, choice())
    np.testing.assert_array_equal(np.array(shown, dtype=np.float32), view.values.astype(np.float32))
    assert "nats" in page.inner_text(f"#{ids.CIRCUIT_MEANING}")
    assert "Relative" in page.inner_text(f"#{ids.CIRCUIT_EXACTNESS}")
    # The browser writes the circuit only: nothing else was chosen.
    assert query(page) == {"checkpoint": "tiny-mhsa", "head": "1.0"}


def test_choose_head_kind_and_side(open_page):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    page.click("#circuits-heads .pick-head >> text=1.2")
    drawn(page, "Map of QK of head 1.2")
    focused(page, "#circuits-heads .pick-head[data-layer='1'][data-head='2']")
    page.keyboard.press("ArrowLeft")
    drawn(page, "Map of QK of head 1.1")
    page.click(f"#{ids.CIRCUITS_RIGHT}")
    page.get_by_role("option", name="tokens through 0.2").click()
    page.wait_for_function("() => document.getElementById('circuit-meaning').textContent.includes('through 0.2')")
    written(page, "right", "0.2")
    page.click(f"#{ids.CIRCUITS_KIND} >> text=OV")
    drawn(page, "Map of OV of head 1.1")
    written(page, "kind", "ov")
    written(page, "right", None)
    page.locator("#one-row-title >> text=promotes and suppresses").wait_for()
    expect(page.locator(f"#{ids.CIRCUITS_BIASES}")).to_be_disabled()


def test_search_a_token_click_another_and_a_link_reopens_the_view(open_page, services: Services):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    page.click(f"#{ids.ROW_CHOICE}")
    page.keyboard.type("captain")
    settled(page)
    page.get_by_role("option", name="·captain", exact=True).click()
    page.locator("#one-row-title >> text=·captain").wait_for()
    labels = services.circuits.circuit(choice()).rows
    token = labels.search(" captain", 1)[0]
    written(page, "row", str(token))
    expected = services.circuits.row(choice(), token).largest
    column = int(expected.columns[0])
    first = page.locator("#row-largest .ag-row[row-index='0']")
    expect(first.locator("[col-id='value']")).to_have_text(f"{float(expected.values[0]):.2f}".replace("-", "−"))
    expect(first.locator("[col-id='column_shown']")).to_have_text(
        services.circuits.circuit(choice()).columns.short(column)
    )

    # A click on a token of a table lists its column.
    first.locator("[col-id='column_shown']").click()
    written(page, "column", str(column))
    page.locator(f"#one-column-title >> text={labels.shown(column)}").wait_for()

    expect(page.get_by_role("option")).to_have_count(0)  # the other choice's list is shut
    page.click(f"#{ids.ENTRIES_ROWS}")
    page.keyboard.type("captain")
    settled(page)
    page.get_by_role("option", name="·captain", exact=True).click()
    written(page, "rows", str(token))
    settled(page)
    kept = page.url
    again = open_page(urlsplit(kept).path + "?" + urlsplit(kept).query, load=True)
    drawn(again, "Map of QK of head 1.0")
    again.locator("#one-row-title >> text=·captain").wait_for()
    expect(again.locator(f"#{ids.ROW_CHOICE}")).to_have_value("·captain")
    assert again.url == kept


def test_a_click_on_the_whole_matrix_shows_its_block(open_page, services: Services):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    whole = page.locator("#overview-graph .nsewdrag")
    whole.scroll_into_view_if_needed()
    box = whole.bounding_box()
    assert box is not None
    whole.click(position={"x": box["width"] * 0.25, "y": box["height"] * 0.75})
    page.wait_for_function("() => new URLSearchParams(location.search).get('block')")
    row, column = map(int, query(page)["block"].split("."))
    n = services.circuits.overview(choice(), "extreme").values.shape[0]
    assert row == pytest.approx(0.75 * n, abs=1.5) and column == pytest.approx(0.25 * n, abs=1.5)
    caption = circuit_views.block(services.circuits, choice(), [row, column]).caption
    expect(page.locator(f"#{ids.BLOCK_CAPTION}")).to_contain_text(caption)
    page.wait_for_function(
        """([row, column]) => {
            const shapes = document.querySelector("#overview-graph .js-plotly-plot").layout.shapes ?? [];
            return shapes.length === 1 && shapes[0].x0 < column && column < shapes[0].x1
                && shapes[0].y0 < row && row < shapes[0].y1
                && Math.abs((shapes[0].x0 + shapes[0].x1) / 2 - column) < 1e-6;
        }""",
        arg=[row, column],
    )


def test_walk_along_the_composition(open_page):
    page = open_page(circuits(z=0))
    drawn(page, "Map of QK of head 1.0")
    page.locator("#composition-table .ag-row[row-index='0'] [col-id='head']").focus()
    focused(page, "#composition-table .ag-row[row-index='0'] [col-id='head']")
    page.keyboard.press("Enter")  # as a click
    page.wait_for_function("() => new URLSearchParams(location.search).get('head')?.startsWith('0.')")
    drawn(page, f"Map of QK of head {query(page)['head']}")
    page.locator("#composition-table >> text=is read by").first.wait_for()
    written(page, "z", "0")

    # The same by a click on a head of the picture: 1.1 stands half way down the later layer.
    page.wait_for_function("() => !document.querySelector('#composition [data-dash-is-loading]')")
    x, y = page.evaluate(
        """() => { const { xaxis, yaxis } = document.querySelector("#composition-graph .js-plotly-plot")._fullLayout;
                   return [xaxis.l2p(1), yaxis.l2p(0)]; }"""
    )
    plot = page.locator("#composition-graph .nsewdrag")
    plot.hover(position={"x": x, "y": y})
    page.locator("#composition-graph .hovertext").first.wait_for()
    plot.click(position={"x": x, "y": y})
    drawn(page, "Map of QK of head 1.1")


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [("tiny-fixed", "no queries and no keys"), ("broken", "can't be opened"), ("nothing", "No checkpoint is called")],
)
def test_what_there_is_not_is_said(open_page, checkpoint: str, message: str):
    page = open_page(circuits(checkpoint=checkpoint, head=(0, 0)))
    page.locator(f"#{ids.CIRCUIT_PANEL} >> text={message}").wait_for()
    settled(page)
    expect(page.locator("#entries-graph")).to_be_hidden()
    if checkpoint == "tiny-fixed":
        page.locator(f"#{ids.COMPOSITION_CAPTION} >> text=one layer").wait_for()
        page.click(f"#{ids.CIRCUITS_KIND} >> text=OV")
        drawn(page, "Map of OV of head 0.0")


def test_from_heads_and_back(open_page):
    page = open_page(format_heads(HeadsState(checkpoint="tiny-mssa", text="The captain bowed", head=(2, 1))))
    head_drawn(page, "Head 2.1")
    page.click(f"#{ids.OPEN_CIRCUITS}")
    drawn(page, "Map of QK of head 2.1")
    expect(page.locator(f"#{ids.COMPOSITION_CAPTION}")).to_contain_text("one matrix")
    page.click("#circuits-heads .pick-head >> text=1.0")
    drawn(page, "Map of QK of head 1.0")
    page.click(f"#{ids.OPEN_HEADS}")
    head_drawn(page, "Head 1.0")
    expect(page.locator(f"#{ids.TEXT}")).to_have_value("The captain bowed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_800_pixels(open_page, scheme: str):
    page = open_page(circuits(kind="ov"), width=800, scheme=scheme)
    drawn(page, "Map of OV of head 1.0")
    fits(page)


def test_exports(open_page):
    page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    starts = {"csv": b'"row","row_label"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for kind, start in starts.items():
        page.click(f"#{ids.ENTRIES}-export")
        with page.expect_download() as download:
            page.click(f"#{ids.export(ids.ENTRIES, kind)}")
        with open(download.value.path(), "rb") as file:
            assert file.read(len(start)) == start, kind
    page.click(f"#{ids.TOP}-export")
    with page.expect_download() as download:
        page.click(f"#{ids.export(ids.TOP, 'csv')}")
    assert download.value.suggested_filename == "tiny-mhsa-head-1.0-qk-tokens-tokens-top.csv"
