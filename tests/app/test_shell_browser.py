"""What is around every page, in a real Chromium; a console without errors."""

from __future__ import annotations

from playwright.sync_api import expect

from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids as heads
from app.shell import ids
from tests.app.conftest import focused, head_drawn, settled


def test_the_theme_is_chosen_and_kept(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    head_drawn(page, "Head 0.0")
    page.click(f"#{ids.THEME_CHOICE} >> text=Dark")
    page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'dark'")
    settled(page)
    page.reload()
    head_drawn(page, "Head 0.0")
    settled(page)
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    page.click(f"#{ids.THEME_CHOICE} >> text=System")
    page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'light'")


def test_an_explanation_opens_by_keyboard_and_closes_by_escape(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    head_drawn(page, "Head 0.0")
    mark, text = page.locator(f"#{heads.GRID} summary"), page.locator(f"#{ids.explanation(heads.GRID)}")
    expect(mark).to_have_accessible_name("About: All heads")
    expect(text).to_be_hidden()
    mark.focus()
    page.keyboard.press("Enter")
    expect(text).to_contain_text("Row = layer, column = head")
    page.locator(f"#{heads.MAP} summary").click()
    expect(text).to_be_hidden()  # one at a time
    mark.click()
    page.keyboard.press("Escape")
    expect(text).to_be_hidden()
    focused(page, f"#{heads.GRID} summary")
