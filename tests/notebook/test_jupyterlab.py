"""The live widget in a local JupyterLab, with every address but its own out of reach."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from tests.app.test_start import free_port
from tests.test_structure import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterlab") is None,
        reason="needs JupyterLab beside the project's packages: .venv/bin/python -m pip install jupyterlab",
    ),
]

TEXT = "the cat </script><b> sat on the mat"
CELLS = (
    "import aotlens\n"
    "from tests.small_models import SMALL, maker, small_tokenizer\n"
    "model = maker({**SMALL, 'd_vocab': 270, 'n_ctx': 64})(tokenizer=small_tokenizer())\n"
    f"view = aotlens.show(model, {TEXT!r}, head='1.0')\nview",
    "print('said:', view.head, view.query, view.key, view.text)",
    "view.look('0.2', 6, 2)",
    "aotlens.plot(view.patterns, head='1.0')",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a notebook in a JupyterLab of its own, which is stopped in the end."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "heads.ipynb")
    homes = {name: str(tmp_path / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    environment = {**os.environ, **homes, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    port = free_port()
    options = ["--no-browser", "--allow-root", f"--port={port}", "--port-retries=0", f"--notebook-dir={tmp_path}"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options, "--IdentityProvider.token="],
            cwd=tmp_path, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5).close()
                break
            except (urllib.error.URLError, TimeoutError):
                assert process.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.2)
        yield f"{address}/lab/tree/heads.ipynb?reset"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def page(chromium: Browser, lab: str) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(120_000)
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.abort()

    context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), refuse)
    page = context.new_page()
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(lab)
    page.wait_for_selector(r"text=/\| Idle/")
    yield page
    context.close()
    assert trouble == [] and asked == []


def run_cell(page: Page, place: int) -> Locator:
    cell = page.locator(".jp-CodeCell").nth(place)
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    return cell


def test_what_is_clicked_is_pythons_and_the_other_way_round(page: Page) -> None:
    run_cell(page, 0)
    maps = page.locator("[data-drawn=yes]")
    maps.wait_for()
    assert maps.get_attribute("data-head") == "1.0" and page.locator("b").count() == 0
    maps.locator(".chip").nth(4).click()
    maps.locator(".cell-chosen").press("ArrowUp")
    maps.locator(".cell-chosen").press("ArrowRight")
    said = run_cell(page, 1)
    said.get_by_text(f"said: (0, 1) 4 None {TEXT}").wait_for()
    assert page.locator(".jp-CodeCell").count() == len(CELLS), "arrow keys were the maps', not JupyterLab's"

    run_cell(page, 2)
    page.wait_for_function("() => document.querySelector('[data-drawn]').dataset.query === '6'")
    assert (maps.get_attribute("data-head"), maps.get_attribute("data-key")) == ("0.2", "2")

    line = page.locator(".jp-OutputArea-output input[type=text]")
    line.fill("a cat")
    line.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('[data-drawn]').shadowRoot.querySelectorAll('.chip').length === 3"
    )
    run_cell(page, 1)
    said.get_by_text("said: (0, 2) None None a cat").wait_for()
    line.fill("a cat " * 60)
    line.press("Enter")
    page.locator(".jp-OutputArea-output [role=alert]", has_text="takes 1 to 64").wait_for()


def test_a_figure_is_drawn_and_offers_no_cloud(page: Page) -> None:
    run_cell(page, 0)
    page.locator("[data-drawn=yes]").wait_for()
    figure = run_cell(page, 3).locator(".js-plotly-plot")
    figure.locator(".heatmaplayer image").wait_for(state="attached")
    titles = figure.locator(".modebar-btn").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert "Zoom" in titles and not any(re.search("cloud|share|plotly", title or "", re.I) for title in titles)
