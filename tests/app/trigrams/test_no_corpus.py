"""The Skip-trigrams page of an app that was started without a corpus."""

from __future__ import annotations

from app.pages.trigrams.address import ADDRESS
from app.pages.trigrams.ids import ids
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import opened


def test_the_page_says_how_to_get_verdicts(open_page, app: App):
    assert app.core.corpora.names == []
    page = open_page(ADDRESS.to(checkpoint="tiny-mhsa", head=(0, 0), k=10, fold="none"))
    page.locator(f"#{shell.caption(ids.ROWS)} >> text=10 rows.").wait_for()
    opened(page, "Check against text")
    page.locator(f"#{shell.caption(ids.EVIDENCE)} >> text=--corpus").wait_for()
    page.click(f"#{ids.CHECK}")
    page.locator(f"#{shell.notice(ids.CHECK)} >> text=without a corpus").wait_for()
