"""The gallery: its examples are run by the build of the site and only read here; and what draws their figures."""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from aotlens.plots import colours, matrix_map
from tests.test_structure import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TITLES = {
    "01_induction_head": "Find and prove an induction head",
    "02_what_a_head_looks_for": "What a head looks for and writes",
    "03_skip_trigrams": "Skip-trigrams with evidence",
    "04_where_a_logit_came_from": "Where a logit came from",
    "05_head_as_a_network": "A head as a network, a network as heads",
    "06_attention_as_a_denoiser": "Attention as a denoiser",
    "07_in_context_regression": "In-context regression, layer by layer",
    "08_what_an_image_head_sees": "What an image head sees",
    "09_mssa_mhsa_gpt": "MSSA, MHSA and GPT side by side",
    "10_your_own_checkpoint": "Your own checkpoint",
}
EXAMPLES = sorted((ROOT / "docs" / "gallery").glob("*.py"))
#: Lines, of a page that is read at one sitting.
MOST_LINES = 150


def test_there_are_ten_examples() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(TITLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_asks_a_question_and_ends_in_an_assert_on_what_it_computed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree)
    assert docstring is not None and docstring.startswith(f"{TITLES[path.stem]}\n===")
    assert "**The question.**" in docstring and ".. math::" in text
    assert "**How to read it.**" in text or "**A caveat.**" in text
    last = tree.body[-1]
    assert isinstance(last, ast.Assert)
    assert any(isinstance(node, ast.Name) for node in ast.walk(last.test)), "an assert that could not fail"
    assert len(text.splitlines()) <= MOST_LINES
    assert "https://" not in text, "nothing is fetched"


@pytest.fixture
def scraper(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sphinx", reason="Sphinx is not installed; make docs installs it")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; make docs installs it")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    import plotly_scraper

    return plotly_scraper


def test_a_figure_in_a_page_is_the_figure_whatever_its_words(scraper: ModuleType) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    names = ["</script>", "<b>", "é"]
    figure = matrix_map(values, names[:2], names, quantity="nats", row_title="row", column_title="column")
    html = scraper.figure_html(figure)
    assert "\n" not in html and html.count("</script>") == 1 and html.endswith("</script></div>")
    inside = json.loads(html.partition('json">')[2].removesuffix("</script></div>"))
    trace = inside["data"][0]
    assert trace["x"] == json.loads(figure.to_json())["data"][0]["x"]
    array = np.frombuffer(base64.b64decode(trace["z"]["bdata"]), dtype=trace["z"]["dtype"])
    np.testing.assert_array_equal(array, values.ravel())


def test_only_a_block_that_ends_in_a_figure_shows_one(scraper: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    figure = go.Figure(go.Scatter(x=[0, 1, 2], y=[2, 0, 1]))

    def scraped(code: str) -> str:
        variables = {"example_globals": {"___": figure}, "image_path_iterator": iter([str(path)])}
        return scraper.scrape(("code", code, 1), variables, {})

    assert scraped("x = 1") == "" and not path.exists(), "the figure is an earlier block's"
    assert scraped("figure").startswith(".. raw:: html")
    with Image.open(path) as picture:
        assert picture.size == (400, 280) and len(picture.convert("RGB").getcolors() or []) > 2


def test_each_colour_of_a_light_figure_has_one_on_a_dark_page(scraper: ModuleType) -> None:
    dark = scraper.dark_colours()
    assert dark[colours.INK["light"]] == colours.INK["dark"]
    for scale in ("sequential", "diverging"):
        assert [dark[name] for name in colours.stops(scale, "light")] == list(colours.stops(scale, "dark"))
    assert [dark[name] for name in colours.LINES["light"]] == list(colours.LINES["dark"])


def test_figures_are_drawn_from_disk_in_the_pages_theme(site: Path, chromium: Browser) -> None:
    page = chromium.new_page(color_scheme="light")
    page.set_default_timeout(60_000)
    page.goto((site / "auto_gallery" / "05_head_as_a_network.html").as_uri())
    figures = page.locator(".aotlens-figure").count()
    assert figures == 3
    inks = []
    for theme in ("light", "dark"):
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        drawn = f"document.querySelectorAll('.aotlens-figure[data-drawn={theme}] .main-svg').length >= {figures}"
        page.wait_for_function(drawn)
        inks.append(page.locator(".aotlens-figure .xtick text").first.evaluate("each => getComputedStyle(each).fill"))
    page.close()
    assert len(set(inks)) == 2
