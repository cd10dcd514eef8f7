"""What is around every page, in a real Chromium; a console without errors."""

from __future__ import annotations

from app import ids
from app.urlstate import HeadsState, format_heads


def test_the_theme_is_chosen_and_kept(open_page):
    page = open_page(format_heads(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    page.wait_for_selector("#map-graph .js-plotly-plot .heatmaplayer image")
    page.click(f"#{ids.THEME_CHOICE} >> text=Dark")
    page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'dark'")
    page.reload()
    page.wait_for_selector("#map-graph .js-plotly-plot .heatmaplayer image")
    assert page.locator("html").get_attribute("data-mantine-color-scheme") == "dark"
    page.click(f"#{ids.THEME_CHOICE} >> text=System")
    page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'light'")
