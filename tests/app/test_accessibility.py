"""Every page by axe, and in the long tests each of its tabs, light and dark: nothing serious, nothing critical, nothing
that sticks out; and a declared page's first finding is in the first screen, its form below it on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from app.pages import PAGES
from tests.app.conftest import choose, fits, save_images, save_regression, serve, settled
from tests.app.declared.test_pages import DECLARED
from tests.app.declared_pages import alone
from tests.app.training.numbers import save_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: Its default rules, and one more that is still said to be experimental: a name begins with what is to be read.
OPTIONS = {"resultTypes": ["violations"], "rules": {"label-content-name-mismatch": {"enabled": True}}}
#: All that a theme changes.
CONTRAST = {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": ["color-contrast"]}}


def answered(page: Page) -> None:
    """Scrolls past every panel, so that each is asked for, and waits until all have answered."""
    expect(page.locator(".first")).to_have_count(0)  # the first picture has given way
    for panel in page.locator(".panel").all():
        if panel.is_visible():
            panel.scroll_into_view_if_needed()
    page.wait_for_function(
        """() => [...document.querySelectorAll('.panel[aria-busy="true"]')].every(panel => !panel.checkVisibility())"""
    )
    still(page)


def still(page: Page) -> None:
    """Waits until colours have changed: halfway, no contrast is what it will be."""
    settled(page)
    page.wait_for_function("() => document.getAnimations().every(one => one.playState !== 'running')")


def faults(page: Page, options: dict[str, Any], within: str = "body") -> list[str]:
    """What axe finds within an element, a line each."""
    response: dict[str, Any] = Axe().run(page, context={"include": [[within]]}, options=options).response
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['html'][:200]}\n{node['failureSummary']}"
        for rule in response["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def shut(page: Page) -> list[str | None]:
    """The panels of all tabs that could be opened now."""
    return [tab.get_attribute("aria-controls") for tab in page.get_by_role("tab", selected=False).all()]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app in which some checkpoint fits each page."""
    saves = (save_run, partial(save_regression, name="three-mhsa"), partial(save_images, name="digits-tiny"))
    with alone(tmp_path_factory, *saves) as app, serve(app) as address:
        yield address


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_nobody_is_kept_out(open_page, path: str):
    """As a page opens, and nothing sticks out where it is narrow. The long tests read the dark theme and all tabs."""
    page = open_page(path)
    answered(page)
    assert faults(page, OPTIONS) == [], path
    page.set_viewport_size({"width": 800, "height": 900})
    fits(page)


@pytest.mark.long
@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_every_tab_in_the_light(open_page, path: str):
    page = open_page(path)
    answered(page)
    seen: set[str | None] = set()
    while panels := [panel for panel in shut(page) if panel not in seen]:
        panel = panels[-1]  # an outer tab, which takes others away, when all that is within the open one has been seen
        seen.add(panel)
        choose(page, page.locator(f'[aria-controls="{panel}"]').click)
        answered(page)
        assert faults(page, OPTIONS, f'[id="{panel}"]') == [], f"{path}, {panel}, light"
        fits(page)


@pytest.mark.long
@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_every_tab_in_the_dark(open_page, path: str):
    page = open_page(path, scheme="dark")
    answered(page)
    assert faults(page, CONTRAST) == [], path
    for tab in page.get_by_role("tab").all():
        choose(page, tab.click)
        answered(page)
        assert faults(page, CONTRAST) == [], f"{path}, {tab.inner_text()}, dark"


def test_an_export_menu_by_the_keyboard(open_page):
    page = open_page("/checkpoints")
    button = page.get_by_role("button", name="Export:").first
    button.focus()
    expect(button).to_have_attribute("aria-expanded", "false")
    choose(page, page.keyboard.press, "Enter")
    expect(page.get_by_role("menuitem").first).to_be_visible()
    expect(button).to_have_attribute("aria-expanded", "true")
    choose(page, page.keyboard.press, "Escape")
    expect(button).to_be_focused()


@pytest.mark.parametrize("name", DECLARED)
def test_the_first_finding_is_in_the_first_screen_and_the_form_below_it_on_a_telephone(open_page, name: str):
    page = open_page(f"/{name}", load=True)
    settled(page)
    panel = page.locator(".view-page .panel:not(.view-parameters)").first
    # An empty caption is hidden where a notice says why nothing can be shown.
    parts = [panel.locator(".panel-header"), panel.locator(":is(.caption, .panel-notice):visible").first]
    boxes = [part.bounding_box() for part in (*parts, page.locator(f"#{name}-form"))]
    assert page.evaluate("scrollY") == 0 and all(box and box["y"] + box["height"] <= 900 for box in boxes)
    finding = boxes[1]
    assert finding and finding["y"] <= 450, "and half of the screen is left for the figure"
    if panel.locator(f"#{name}-form").count():
        return  # the form is in the panel, which says what is asked
    page.set_viewport_size({"width": 390, "height": 844})
    settled(page)
    below, above = page.locator(f"#{name}-form").bounding_box(), panel.bounding_box()
    assert below and above and below["y"] >= above["y"] + above["height"]
