"""The Skip-trigrams page of an app that was started without a corpus."""

from __future__ import annotations

from app import ids
from app.services import Services
from app.urlstate import TrigramsState, format_trigrams


def test_the_page_says_how_to_get_verdicts(open_page, services: Services):
    assert services.trigrams.corpora.names == []
    page = open_page(format_trigrams(TrigramsState(checkpoint="tiny-mhsa", head=(0, 0), k=10)))
    page.locator(f"#{ids.TRIGRAM_COUNT} >> text=10 rows.").wait_for()
    page.locator(f"#{ids.EVIDENCE_ABOUT} >> text=--corpus").wait_for()
    page.click(f"#{ids.EVIDENCE_CHECK}")
    page.locator(f"#{ids.notice(ids.EVIDENCE_CHECK)} >> text=without a corpus").wait_for()
