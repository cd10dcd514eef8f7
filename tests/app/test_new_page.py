"""A new page is one folder and one line: made here, opened in the browser, deep-linked, its table saved."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from app.factory import create_app
from app.pages import PAGES
from tests.app.conftest import serve, written

#: All that the page is; the one line is `pages=[*PAGES, PAGE]`.
FOLDER = {
    "__init__.py": '''
"""Words: how often each word stands in a checkpoint's card."""

from pathlib import Path

from dash import Input

from words_page.ids import ids
from words_page.address import ADDRESS
from words_page.callbacks import register
from words_page.layout import layout
from words_page.service import Words
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.page import Page

PAGE = Page(
    title="Words",
    address=ADDRESS,
    service=Words,
    layout=layout,
    register=register,
    writes={"checkpoint": (ids.CHECKPOINT, "value"), "least": (ids.LEAST, "value")},
    browser=[
        Browser("count", inputs={"rows": Input(shell.table(ids.PANEL), "rowData")}),
        Link("checkpoints", to=ids.CARD, checkpoint=(ids.CHECKPOINT, "value")),
    ],
    file=__file__,
)
''',
    "address.py": '''
"""The Words page's address."""

from dataclasses import dataclass

from app.core import address


@dataclass(frozen=True, kw_only=True)
class WordsState:
    """Everything that the page shows."""

    checkpoint: str | None = address.checkpoint()
    least: int = address.whole(1, least=1, most=99)


ADDRESS = address.Address("words", WordsState)
''',
    "ids.py": '''
"""Ids of the Words page."""

from app.shell.ids import Ids

ids = Ids("words", "checkpoint least panel count card")
''',
    "service.py": '''
"""How often each word stands in a checkpoint's description."""

from collections import Counter

from app.core import Core
from app.core.files import File, text_file


class Words:
    """Descriptions, word by word."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def rows(self, checkpoint: str, least: int) -> list[dict]:
        words = Counter(self._core.catalog.info(checkpoint).description.split())
        return [{"word": word, "times": n} for word, n in words.items() if n >= least]

    def csv(self, checkpoint: str, least: int) -> File:
        lines = ["word,times", *(f"{row['word']},{row['times']}" for row in self.rows(checkpoint, least))]
        return text_file(f"{checkpoint}-words.csv", "\\n".join(lines), "text/csv")
''',
    "layout.py": '''
"""The Words page's layout."""

import dash_mantine_components as dmc
from dash import dcc, html

from words_page.ids import ids
from app.shell import ids as shell
from app.shell.panel import panel
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid, number


def layout(core, words, state):
    """The page for an address."""
    table = grid(shell.table(ids.PANEL), [{"field": "word"}, number("times", "times", "d")], key="word", height=200)
    link = dcc.Link("its card", id=ids.CARD, href=core.links.to("checkpoints"))
    return html.Div(
        [
            checkpoint_choice(ids.CHECKPOINT, core.catalog, state.checkpoint or core.catalog.default()),
            dmc.NumberInput(id=ids.LEAST, label="At least", value=state.least, min=1, max=99),
            panel(ids.PANEL, "Words", "", [html.P(id=ids.COUNT), table], controls=link, exports=("csv",)),
        ],
        className="words",
    )
''',
    "callbacks.py": '''
"""What the Words page asks of the server."""

from dash import Input, State

from words_page.ids import ids
from app.shell.callbacks import guarded
from app.shell.ids import export
from app.shell.sharing import save_files

CHOICE = {"checkpoint": Input(ids.CHECKPOINT, "value"), "least": Input(ids.LEAST, "value")}


def register(app, core, words):
    """The page's callbacks."""

    @guarded(app, panel=ids.PANEL, inputs=CHOICE, parts=["rows"])
    def count(checkpoint, least):
        return {"rows": words.rows(checkpoint, least)}

    state = {"checkpoint": State(ids.CHECKPOINT, "value"), "least": State(ids.LEAST, "value")}
    save_files(app, {export(ids.PANEL, "csv"): words.csv}, state)
''',
    "words.js": """
aotlens.page("words", {
    count: function ({ rows }) { document.getElementById("words-count").textContent = rows.length + " words"; },
});
""",
    "words.css": """
#words-count { font-weight: 600; }
""",
}


@pytest.fixture(scope="module")
def address(settings, services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app with one page more."""
    parent = tmp_path_factory.mktemp("new")
    folder = parent / "words_page"
    folder.mkdir()
    for name, text in FOLDER.items():
        (folder / name).write_text(text.lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(parent))
        page = importlib.import_module("words_page").PAGE
        with serve(create_app(settings, services, pages=[*PAGES, page])) as address:
            yield address
    for name in [name for name in sys.modules if name.partition(".")[0] == "words_page"]:
        del sys.modules[name]


def test_a_new_page_is_a_folder(open_page):
    page = open_page("/words?checkpoint=tiny-mssa", load=True)
    expect(page.locator(".nav-link[aria-current='page']")).to_have_text("Words")
    expect(page.locator("#words-count")).to_have_text("4 words")
    assert page.eval_on_selector("#words-count", "element => getComputedStyle(element).fontWeight") == "600"
    page.fill("#words-least", "2")
    expect(page.locator("#words-count")).to_have_text("0 words")
    written(page, "least", "2")
    written(page, "checkpoint", "tiny-mssa")
    page.click("#words-card")
    expect(page.locator("#checkpoints-card-title")).to_have_text("tiny-mssa")


def test_what_its_address_says_is_there(open_page):
    page = open_page("/words?checkpoint=nowhere&least=100")
    notice = page.locator(".taken-instead")
    expect(notice).to_contain_text("least=100: expected a whole number from 1 to 99. 99 was taken instead.")
    expect(notice).to_contain_text("checkpoint=nowhere: expected the name of a checkpoint here")
    expect(page.locator("#words-least")).to_have_value("99")


def test_its_table_is_saved(open_page):
    page = open_page("/words?checkpoint=tiny-mhsa")
    expect(page.locator("#words-count")).to_have_text("4 words")
    page.click("#words-panel-export")
    with page.expect_download() as download:
        page.click("#words-panel-export-csv")
    assert download.value.suggested_filename == "tiny-mhsa-words.csv"
    assert Path(download.value.path()).read_text().splitlines()[:2] == ["word,times", "Random,1"]
