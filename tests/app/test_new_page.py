"""A new page of views is one file and one line: made here, opened in the browser, deep-linked, its table saved."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pandas as pd
import pytest
from playwright.sync_api import expect

from app.factory import create_app
from app.pages import PAGES
from tests.app.conftest import choose, serve, written

#: All that the page is; the one line is `pages=[*PAGES, PAGE]`.
FILE = '''
"""Norms: how long a head's patterns of attention are, as a family of one view."""

from dataclasses import dataclass

from aotlens.views import Family, Load, OfCheckpoint, View, call
from aotlens.views import parameters as declare
from app.shell.view_page import view_page

MOTIFS = View(
    name="scores",
    title="Scores",
    about="Scores of heads on repeated random tokens.",
    call=lambda params: call(
        "aotlens.heads.motif_scores", Load(params.checkpoint), n_sequences=params.n, half_length=8
    ),
    caption=lambda params, result: f"{params.n} sequences, {params.motif} first: {result.labels()[0][0]}.",
    file=lambda params: f"scores-{params.checkpoint}",
    drawn=lambda params: {"motif": params.motif},
)


@dataclass(frozen=True, kw_only=True)
class ScoresParameters(OfCheckpoint):
    motif: str = declare.choice({"induction": "induction", "previous_token": "previous token"}, label="Motif")
    n: int = declare.whole(2, least=1, most=9, label="Sequences")


FAMILY = Family(
    "scores",
    "What do heads do on repeated random tokens?",
    (MOTIFS,),
    ScoresParameters,
    reads=lambda info: info.model.get("read_in", "tokens") == "tokens",
)
PAGE = view_page(FAMILY, "Scores")
'''


@pytest.fixture(scope="module")
def address(settings, services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app with one page more."""
    parent = tmp_path_factory.mktemp("new")
    (parent / "scores_page.py").write_text(FILE.lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(parent))
        page = importlib.import_module("scores_page").PAGE
        with serve(create_app(settings, services, pages=[*PAGES, page])) as address:
            yield address
    del sys.modules["scores_page"]


def test_a_new_page_is_a_file(open_page):
    page = open_page("/scores?checkpoint=tiny-mssa&motif=previous_token", load=True)
    expect(page.locator(".nav-link[aria-current='page']")).to_have_text("Scores")
    caption = page.locator("#scores-scores-caption")
    expect(caption).to_contain_text("2 sequences, previous_token first")
    expect(page.locator("#scores-scores-graph .js-plotly-plot")).to_be_visible()
    page.locator("#scores-field-n [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    expect(caption).to_contain_text("3 sequences")
    written(page, "n", "3")
    written(page, "checkpoint", "tiny-mssa")


def test_what_its_address_says_is_there(open_page):
    page = open_page("/scores?checkpoint=nowhere&n=100")
    notice = page.locator(".taken-instead")
    expect(notice).to_contain_text("n=100: expected a whole number from 1 to 9. 9 was taken instead.")
    expect(notice).to_contain_text("checkpoint=nowhere: expected a checkpoint that this page accepts")
    expect(page.locator("#scores-field-n-value")).to_have_text("9")


def test_its_table_is_saved(open_page):
    page = open_page("/scores?checkpoint=tiny-mhsa")
    expect(page.locator("#scores-scores-caption")).to_contain_text("2 sequences")
    choose(page, page.click, "#scores-scores-export")
    with page.expect_download() as download:
        choose(page, page.click, "#scores-scores-export-csv")
    assert download.value.suggested_filename == "scores-tiny-mhsa.csv"
    assert list(pd.read_csv(download.value.path()).columns[:2]) == ["layer", "head"]
