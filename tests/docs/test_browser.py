"""Every page opens from disk in a browser without a network: a clean console, nothing missing, formulas drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE = 60_000
LOCAL = ("file:", "data:", "blob:")


class Reader:
    """A tab without a network, and what went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.trouble: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: message.type in ("error", "warning") and self.note(message.text))
        page.on("pageerror", lambda error: self.note(str(error)))
        page.on("requestfailed", lambda request: self.note(f"{request.url}: {request.failure}"))
        page.on("request", lambda request: request.url.startswith(LOCAL) or self.note(request.url))

    def note(self, words: str) -> None:
        self.trouble.append(f"{self.page.url}: {words}")

    def open(self, path: Path, query: str = "") -> None:
        self.page.goto(path.as_uri() + query)


@pytest.fixture
def reader(chromium: Browser) -> Iterator[Reader]:
    context = chromium.new_context()
    context.set_offline(True)
    yield Reader(context.new_page())
    context.close()


def test_every_page_opens_without_a_network(reader: Reader, pages: list[Path], site: Path) -> None:
    """Of the listings of source code, which are one template, a few."""
    listings = [page for page in pages if "_modules" in page.relative_to(site).parts]
    for path in [page for page in pages if page not in listings] + listings[::20]:
        reader.open(path)
        drawn = reader.page.evaluate(
            """async () => {
                const formulas = [...document.querySelectorAll(".math")].filter(each => each.textContent.trim());
                if (formulas.length) { await MathJax.startup.promise; }
                return [formulas.length, document.querySelectorAll("mjx-container").length,
                        document.querySelectorAll("mjx-merror").length];
            }"""
        )
        if drawn != [drawn[0], drawn[0], 0]:
            reader.note(f"{drawn[0]} formulas, {drawn[1]} drawn, {drawn[2]} with errors")
    assert not reader.trouble


def test_the_search_finds_a_name_and_a_page(reader: Reader, site: Path) -> None:
    for words, expected in (("motif_scores", "aotlens.heads"), ("previous token head", "Heads")):
        reader.open(site / "search.html", f"?q={words.replace(' ', '+')}")
        reader.page.locator("#search-results li a", has_text=expected).first.wait_for()
    assert not reader.trouble


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_the_readers(chromium: Browser, site: Path, theme: str) -> None:
    context = chromium.new_context(color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    assert page.locator("html").get_attribute("data-theme") == theme
    context.close()


@pytest.mark.parametrize("name", ["index", "guide", "heads", "reference/aotlens.paths", "benchmarks"])
def test_no_page_is_wider_than_the_window(reader: Reader, site: Path, name: str) -> None:
    reader.open(site / f"{name}.html")
    for width in (1440, 800):
        reader.page.set_viewport_size({"width": width, "height": 900})
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= width, width
