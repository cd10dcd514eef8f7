"""The Skip-trigrams page of an app that was started without a corpus."""

from __future__ import annotations

from playwright.sync_api import expect

from app.pages.trigrams.address import ADDRESS
from app.pages.trigrams.ids import ids
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import opened


def test_the_page_says_once_what_a_check_needs(open_page, app: App):
    assert app.core.corpora.names == []
    page = open_page(ADDRESS.to(checkpoint="tiny-mhsa", head=(0, 0), k=10, fold="none"))
    page.locator(f"#{shell.caption(ids.ROWS)} >> text=10 rows.").wait_for()
    opened(page, "Check against text")
    notice = page.locator(f"#{shell.notice(ids.EVIDENCE)}")
    expect(notice).to_contain_text("--corpus")
    expect(page.locator(f"#{shell.start(ids.EVIDENCE)}")).to_be_disabled()
    assert page.inner_text("body").count("--corpus file:PATH") == 1
