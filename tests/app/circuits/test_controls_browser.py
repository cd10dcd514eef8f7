"""The Circuits page in a real Chromium: what a choice sets and makes, and what it leaves alone."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from app.pages.circuits.ids import ids
from tests.app.circuits.test_browser import circuits, drawn
from tests.app.conftest import choose, seen

#: Of every table of the largest and smallest entries: its rows, and how often the Tab key stops in them.
_TABLES = """() => [...document.querySelectorAll("#circuits-top-entries table")]
    .map(({ tBodies: [body] }) => [body.rows.length, body.querySelectorAll('button[tabindex="0"]').length])"""


def test_a_choice_sets_what_differs_alone(open_page):
    page: Page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    page.evaluate(
        """() => { window.wasSet = []; const set = dash_clientside.set_props;
                   dash_clientside.set_props = (id, props) => (wasSet.push(id), set(id, props)); }"""
    )
    choose(page, page.click, "#circuits-heads .pick-head >> text=1.2")
    drawn(page, "Map of QK of head 1.2")
    controls = {ids.KIND, ids.LEFT, ids.RIGHT, ids.BIASES, ids.DISTANCE, ids.MAP_ROWS, ids.ROW_CHOICE}
    assert not controls & set(page.evaluate("wasSet"))
    choose(page, page.click, f"#{ids.KIND} >> text=OV")
    drawn(page, "Map of OV of head 1.2")
    assert ids.BIASES in page.evaluate("wasSet")


def test_an_emptied_field_is_no_choice(open_page):
    page: Page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    page.evaluate("id => aotlens.setProps(id, { value: '' })", ids.DISTANCE)  # as the field itself says it
    choose(page, page.click, "#circuits-heads .pick-head >> text=1.2")
    drawn(page, "Map of QK of head 1.2")


def test_a_closed_list_that_is_searched_holds_no_options(open_page):
    page: Page = open_page(circuits())
    drawn(page, "Map of QK of head 1.0")
    seen(page, ids.ROW)
    field = page.locator(f"#{ids.ROW_CHOICE}")
    options = page.get_by_role("listbox", include_hidden=True).locator("[role=option]")
    before = options.count()
    choose(page, field.click)
    page.get_by_role("option").first.wait_for()
    assert options.count() > before
    choose(page, page.keyboard.press, "Escape")
    expect(options).to_have_count(before)


def test_a_table_makes_the_rows_that_show_and_keeps_its_tab_stop(open_page):
    page: Page = open_page(circuits(), load=True)  # where no table was laid out yet
    drawn(page, "Map of QK of head 1.0")
    (rows, stops), (other, _) = page.evaluate(_TABLES)
    assert stops == 1 and other == rows
    choose(page, page.click, "#circuits-heads .pick-head >> text=1.2")
    drawn(page, "Map of QK of head 1.2")
    fewer = page.evaluate(_TABLES)
    assert fewer[0][0] < rows and [stops for _, stops in fewer] == [1, 1], "the box is lower than the window"
    # The page is left and opened again: boxes that are gone have no height.
    page.evaluate("document.querySelector('.nav-link[href=\"/checkpoints\"]').click()")
    page.wait_for_function("() => !document.getElementById('circuits-top-entries')")
    page.go_back()
    drawn(page, "Map of QK of head 1.2")
    assert page.evaluate(_TABLES) == fewer
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(_TABLES)[0][0] > rows
