"""Texts that are too long for an address: kept by the server, and named by their key."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from app.core.own_texts import is_key, key_of
from app.pages import PAGES
from app.pages.heads.ids import ids
from app.shell.app import App
from tests.app.conftest import choose
from tests.messages import says

HOST = {"Host": "localhost"}
#: Longer than what an address says itself.
LONG = "the cat and the dog; " * 40


def test_a_page_that_takes_a_prompt_has_its_key() -> None:
    named = {page.name: page.address.browser() for page in PAGES}
    takes = {name for name, fields in named.items() if fields.get("text", {}).get("prompt")}
    assert {"heads", "paths", "compare", "distillation"} <= takes
    # The text of a page of views is bounded by its parameter, or one of a list.
    assert {name for name, fields in named.items() if "text" in fields} - takes == {"lens", "training", "universality"}


def test_a_long_text_is_kept_and_read_by_its_key(app: App) -> None:
    client = app.server.test_client()
    key = client.post("/texts", data=LONG.encode(), headers=HOST).text
    assert is_key(key) and key == key_of(LONG)
    for page in PAGES:
        if "prompt" in page.address.browser().get("text", {}):
            state, sentences = page.address.read(f"?text={key}", app.core)
            assert state.text == LONG and not sentences
            _, sentences = page.address.read(f"?text={'text-' + 16 * '0'}", app.core)
            assert "deleted" in sentences[0]
    assert client.post("/texts", data=b"short", headers=HOST).text == "short"
    too_long = "a" * (app.core.settings.max_pasted + 1)
    assert client.post("/texts", data=too_long.encode(), headers=HOST).status_code == 413
    assert (
        client.post("/texts", data=LONG.encode(), headers={**HOST, "Origin": "http://evil.example"}).status_code == 400
    )


def test_a_home_that_is_a_file_is_named_and_is_no_defect(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "file"))
    answer = app.server.test_client().post("/texts", data=LONG.encode(), headers=HOST)
    assert answer.status_code == 507 and str(tmp_path) not in answer.text
    says(answer.text, "could not be kept", "AOTLENS_HOME")


@pytest.mark.parametrize("length", [600, 601])
def test_the_address_says_a_long_text_by_its_key(open_page, length: int) -> None:
    text = LONG[:length]
    page = open_page("/heads")
    choose(page, page.locator(f"#{ids.TEXT}").fill, text)
    choose(page, page.locator(f"#{ids.RUN}").click)
    expect(page).to_have_url(re.compile("text=the" if length == 600 else f"text={key_of(text)}"))
    assert len(page.url) < 800
    page.reload()
    expect(page.locator(f"#{ids.TEXT}")).to_have_value(text)
    said = parse_qs(urlsplit(page.url).query)["text"]
    assert said == [text if length == 600 else key_of(text)]
