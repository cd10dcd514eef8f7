"""What is around every page, in a real Chromium; a console without errors."""

from __future__ import annotations

from playwright.sync_api import expect

from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.shell import ids
from tests.app.conftest import head_drawn, settled


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
