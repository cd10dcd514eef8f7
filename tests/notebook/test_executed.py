"""A notebook with figures and maps, executed as a user's and looked at without its kernel and without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.notebook.executed import PLOTLY, WIDGET, as_page, execute

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TEXT = "the cat </script><b> sat on the mat"
CELLS = (
    "import aotlens, plotly.io\n"
    "from tests.small_models import SMALL, maker, small_tokenizer\n"
    "model = maker({**SMALL, 'd_vocab': 270, 'n_ctx': 64})(tokenizer=small_tokenizer())\n"
    f"patterns = aotlens.heads.attention_patterns(model, {TEXT!r})",
    "aotlens.plot(patterns, head='1.0')",
    f"view = aotlens.show(model, {TEXT!r}, head='1.2')\nview.look('1.2', 7, 3)\nview",
    f"aotlens.show(model, {TEXT!r}, live=False)",
    "view.widget.set_state({'head': [0, 1], 'query': 5, 'key': None})  # as the browser would\n"
    "print(view.head, view.query, view.key)",
    "plotly.io.renderers.default = 'plotly_mimetype+notebook'\naotlens.plot(patterns, head='1.0')",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    return execute(tmp_path_factory.mktemp("notebook"), *CELLS)


@pytest.mark.slow
def test_a_figure_is_plotlys_own_and_offers_no_cloud(outputs: list[list[Any]]) -> None:
    (output,) = outputs[1]
    figure = output["data"][PLOTLY]
    assert figure["config"]["showSendToCloud"] is False and figure["data"][0]["type"] == "heatmap"


def test_the_maps_are_a_widget_and_beside_it_html(outputs: list[list[Any]]) -> None:
    (live,), (plain,) = outputs[2], outputs[3]
    assert set(live["data"]) == {WIDGET, "text/html", "text/plain"} and live["data"][WIDGET]["model_id"]
    assert set(plain["data"]) == {"text/html", "text/plain"}
    assert outputs[4][0]["text"] == "(0, 1) 5 None\n"


@pytest.fixture
def page(chromium: Browser, outputs: list[list[Any]], tmp_path: Path) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1100, "height": 900})
    context.set_offline(True)
    context.set_default_timeout(120_000)
    page = context.new_page()
    trouble: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = as_page([output for cell in outputs for output in cell], tmp_path / "notebook.html")
    page.goto(address)
    page.wait_for_function("() => document.querySelectorAll('[data-drawn=yes]').length === 2")
    yield page
    context.close()
    assert trouble == []
    elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert all("mathjax" in url.lower() for url in elsewhere), "plotly asks for MathJax, which no figure here needs"


def test_exported_it_is_drawn_without_a_network_and_hover_and_lock_work(page: Page) -> None:
    maps = page.locator("[data-drawn]").first
    held = {name: maps.get_attribute(f"data-{name}") for name in ("head", "query", "key", "held")}
    assert held == {"head": "1.2", "query": "7", "key": "3", "held": "true"}, "what Python held"
    maps.locator(".chip").nth(4).click()
    expect(maps).to_have_attribute("data-query", "4")
    expect(maps.locator(".said")).to_contain_text("(4) attends to")
    maps.locator(".chip").nth(6).hover()
    assert maps.get_attribute("data-query") == "4"
    page.keyboard.press("Escape")
    maps.locator(".chip").nth(8).hover()
    expect(maps).to_have_attribute("data-query", "8")
    other = page.locator("[data-drawn]").nth(1)
    assert other.get_attribute("data-query") == "" and page.locator("b").count() == 0


def test_exported_a_figure_is_drawn_without_a_network_or_a_cloud(page: Page) -> None:
    figure = page.locator(".js-plotly-plot")
    figure.locator(".heatmaplayer image").wait_for(state="attached")
    figure.hover()
    titles = figure.locator(".modebar-btn").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert "Zoom" in titles and not any(re.search("cloud|share|plotly", title or "", re.I) for title in titles)
