"""Varied rows, the direct path, texts of one's own, columns and the head picker, in a real Chromium."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from playwright.sync_api import expect

from aotlens.plots import glyphs
from app.core.own_texts import key_of
from app.pages.trigrams.address import TrigramsState
from app.pages.trigrams.ids import ids
from app.pages.trigrams.path_callbacks import path_choice
from app.pages.trigrams.service import Trigrams
from app.pages.trigrams.service_direct import direct_path
from app.shell import ids as shell
from tests.app.conftest import TEXT, fits, in_the_first_screen, opened, revealed, seen, settled, written
from tests.app.trigrams.listing import checked, listed, lists, trigrams


@pytest.fixture(scope="module")
def address(served: tuple[str, Trigrams]) -> str:
    return served[0]


@pytest.mark.long
def test_rows_come_after_none_however_slow_the_browser_is(open_page, served):
    """dash-ag-grid's own way of asking for rows lost those that came after an answer without any."""
    page = open_page(trigrams())
    listed(page, "300 rows.")
    choice, _ = served[1].describe(TrigramsState(checkpoint="tiny-one", head=(0, 1), k=300, fold="none"))
    expected = served[1].frame(choice, None)["out_shown"].tolist()
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    try:
        page.fill(f"#{ids.OUT}", "zzz")
        listed(page, "0 of 300 rows match.")
        page.fill(f"#{ids.OUT}", "")
        listed(page, "300 rows.")
        lists(page, "out_shown", expected)
    finally:
        session.send("Emulation.setCPUThrottlingRate", {"rate": 1})


def test_varied_rows_unfold_and_the_raw_order_is_a_switch_away(open_page, served):
    page = open_page(trigrams(fold="similar", k=40))
    listed(page, "40 rows, beneath which")
    choice, _ = served[1].describe(TrigramsState(checkpoint="tiny-one", head=(0, 1), k=40))
    assert choice.fold == "similar"  # unless the address says otherwise
    frame = served[1].frame(choice, None)
    lists(page, "out_shown", frame["out_shown"].tolist())
    beneath = int(frame["folded"][1])
    page.click("#trigrams-rows-table .ag-row[row-index='1'] [col-id=folded]")
    ranks = ["1", "2", *[""] * min(beneath, served[1].settings.members_shown), *map(str, range(3, 41))]
    lists(page, "rank", ranks)
    written(page, "row", "2")
    # A folded row is explained by the one that it is beneath.
    page.click("#trigrams-rows-table .ag-row[row-index='2'] [col-id=out_shown]")
    settled(page)
    written(page, "row", "2")
    page.locator("#trigrams-rows-table .ag-row[row-index='1'] [col-id=folded]").click()
    lists(page, "rank", [str(rank) for rank in range(1, 41)])
    page.click(f"#{ids.FOLD} >> text=raw order")
    listed(page, "40 rows.")
    written(page, "fold", "none")
    expect(page.locator("#trigrams-rows-table .ag-header-cell[col-id=folded]")).to_have_count(0)


def test_the_direct_path_has_a_tab(open_page, served):
    page = open_page(trigrams(k=30, tokens=3000))
    listed(page, "30 rows.")
    page.click("[role=tab] >> text=Direct path")
    written(page, "tab", "direct")
    caption = page.locator(f"#{shell.caption(ids.PATH)}")
    expect(caption).to_contain_text("30 largest entries of all")
    expect(caption).to_contain_text("bigrams of 1 document in book.txt")
    first = page.locator(f"#{shell.table(ids.PATH)} .ag-row[row-index='0'] [col-id=first]")
    asked = page.evaluate("id => window.dash_component_api.getLayout(id).props.data", ids.ASKED_PATH)
    path = direct_path(served[1], path_choice(asked))
    expect(first).to_have_text(glyphs(path.bigrams.first_token[0]))
    page.fill(f"#{ids.AFTER}", "captain")
    expect(first).to_have_text("·captain")
    written(page, "after", "captain")
    page.fill(f"#{ids.AFTER}", "no such token")
    page.locator(f"#{shell.notice(ids.PATH)} >> text=No token matches").wait_for()
    page = open_page(trigrams(k=30, tab="direct", after="captain", tokens=3000), width=800, scheme="dark")
    expect(first).to_have_text("·captain")
    fits(page)


def test_a_text_is_uploaded_chosen_and_deleted(open_page, served):
    page = open_page(trigrams(k=20))
    listed(page, "20 rows.")
    opened(page, "Check against text")
    upload, notice = page.locator(f"#{shell.upload(ids.CORPUS)} input"), page.locator(f"#{shell.notice(ids.EVIDENCE)}")
    name = '<b onmouseover="alert(1)">novel.txt'
    most = served[1].settings.max_text_bytes
    wrong = {
        "not UTF-8: byte 0xE9": b"caf\xe9 au lait",
        "UTF-16": "text".encode("utf-16"),
        "empty": b" \n",
        "NUL bytes": b"one\x00two",
        "at most": b"x" * (most + 10),
    }
    for why, content in wrong.items():
        upload.set_input_files({"name": "wrong.txt", "mimeType": "text/plain", "buffer": content})
        expect(notice).to_contain_text(why)
    text = "\ufeff" + TEXT.replace("\n", "\r\n") * 4
    upload.set_input_files({"name": f"../../{name}", "mimeType": "text/plain", "buffer": text.encode()})
    n = len(TEXT) * 4
    expect(page.locator(f"#{shell.caption(ids.EVIDENCE)}")).to_contain_text(f"your text ‹{name}› of {n:,} characters")
    expect(notice).to_be_empty()
    key = key_of(TEXT * 4)
    written(page, "corpus", key)
    page.click(f"#{ids.CHECK}")
    checked(page)
    opened(page, "Kinds")
    expect(page.locator("#trigrams-kinds-caption")).to_contain_text(name)
    page.click(f"#{shell.delete(ids.CORPUS)}")
    expect(page.locator(f"#{shell.caption(ids.EVIDENCE)}")).to_contain_text("book.txt")
    expect(page.locator(f"#{shell.delete(ids.CORPUS)}")).to_be_hidden()
    assert served[1].corpora.own.get(key) is None


def test_a_head_picker_of_many_layers_scrolls_to_the_chosen_head(open_page):
    page = open_page(trigrams(checkpoint="tiny-deep", head=(11, 1), k=20))
    listed(page, "20 rows.")
    assert page.locator(f"#{ids.HEADS} .pick-head").count() == 24
    in_view = """([layer, head]) => {
        const button = document.querySelector(`#trigrams-heads [data-layer="${layer}"][data-head="${head}"]`);
        const row = button.getBoundingClientRect();
        const box = document.getElementById("trigrams-heads").getBoundingClientRect();
        return button.getAttribute("aria-pressed") === "true" && row.top >= box.top && row.bottom <= box.bottom
            && scrollY === 0;
    }"""
    page.wait_for_function(in_view, arg=[11, 1])
    # So it does when the keyboard moves through the layers.
    page.locator(f'#{ids.HEADS} [data-layer="11"][data-head="1"]').focus()
    for layer in range(10, -1, -1):
        page.keyboard.press("ArrowUp")
        page.wait_for_function(in_view, arg=[layer, 1])
    written(page, "head", "0.1")


def test_a_head_that_is_chosen_again_before_the_answer_is_shown(open_page, served, monkeypatch):
    page = open_page(trigrams(checkpoint="tiny-deep", head=(11, 1), k=20))
    listed(page, "20 rows.")
    settled(page)
    asked, answer, describe = threading.Event(), threading.Event(), served[1].describe

    def slow(state: TrigramsState) -> Any:
        if state.head == (10, 1):
            asked.set()
            assert answer.wait(120)
        return describe(state)

    monkeypatch.setattr(served[1], "describe", slow)
    page.locator(f'#{ids.HEADS} [data-layer="11"][data-head="1"]').focus()
    page.keyboard.press("ArrowUp")
    assert asked.wait(120)
    page.keyboard.press("ArrowDown")
    answer.set()
    settled(page)
    written(page, "head", "11.1")
    expect(page.locator(f'#{ids.HEADS} [data-layer="11"][data-head="1"]')).to_have_attribute("aria-pressed", "true")


def test_with_many_layers_the_main_views_are_in_the_first_screen(open_page):
    page = open_page(trigrams(checkpoint="tiny-deep", head=(11, 1), k=20))
    listed(page, "20 rows.")
    in_the_first_screen(page, ids.ROWS)
    page = open_page("/circuits?checkpoint=tiny-deep&head=11.1")
    for panel in ("circuits-map", "circuits-top"):
        seen(page, panel)
        page.evaluate("scrollTo(0, 0)")
        in_the_first_screen(page, panel)


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", ["/checkpoints", "/circuits?checkpoint=tiny-two", trigrams(k=40, fold="similar")])
def test_columns_fit_their_content_and_headers_break_between_words(open_page, path: str, width: int):
    page = open_page(path, width=width)
    if path.startswith("/circuits"):
        revealed(page, "circuits-top")
    page.wait_for_function(
        """() => {
            const pen = document.createElement("canvas").getContext("2d");
            const seen = (element) => element.offsetParent && element.getBoundingClientRect().width;
            const cells = [...document.querySelectorAll(".ag-cell")].filter(seen);
            const headers = [...document.querySelectorAll(".ag-header-cell-text")].filter(seen);
            const whole = (header) => {
                pen.font = getComputedStyle(header).font;
                return header.textContent.split(/\\s+/).every(
                    (word) => pen.measureText(word).width <= header.getBoundingClientRect().width + 1);
            };
            const widths = [...document.querySelectorAll(".ag-header-cell")].filter(seen).map(seen).map(Math.round);
            return new Set(widths).size > 1 // the table's own are all alike
                && cells.length > 20 && cells.every((cell) => cell.scrollWidth <= cell.clientWidth + 1)
                && headers.length > 3 && headers.every(whole);
        }"""
    )
    fits(page)
