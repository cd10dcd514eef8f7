"""The Skip-trigrams page in a real Chromium: list, search, sort, check, read, follow; a console without errors."""

from __future__ import annotations

import re
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from playwright.sync_api import expect

from app.core.own_texts import key_of
from app.pages.trigrams import words
from app.pages.trigrams.address import TrigramsState
from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import Trigrams
from app.shell import ids as shell
from tests.app.conftest import PATIENCE, TEXT, fits, focused, in_the_first_screen, opened, settled, written
from tests.app.trigrams.listing import checked, column, listed, lists, trigrams

if TYPE_CHECKING:
    pass


@pytest.fixture(scope="module")
def address(served: tuple[str, Trigrams]) -> str:
    return served[0]


def test_the_rows_are_the_tables(open_page, served):
    page = open_page(trigrams())
    listed(page, "300 rows.")
    service = served[1]
    choice, _ = service.describe(TrigramsState(checkpoint="tiny-one", head=(0, 1), k=300, fold="none"))
    frame = service.frame(choice, None)
    lists(page, "out_shown", frame["out_shown"].tolist())
    expect(page.locator("#trigrams-relative")).to_have_text(re.compile("^Exact"))
    # Rows that are not in view come when they are.
    page.evaluate("() => dash_ag_grid.getApi('trigrams-rows-table').ensureIndexVisible(250)")
    page.locator("#trigrams-rows-table .ag-row[row-index='250'] [col-id=rank] >> text='251'").wait_for()


def test_a_table_ends_under_its_last_row(open_page):
    page = open_page(trigrams(k=10))
    page.set_viewport_size({"width": 1440, "height": 1400})  # in which the table may be taller than its rows
    listed(page, "10 rows.")
    page.wait_for_function(
        """() => {
            const table = document.querySelector("#trigrams-rows-table");
            const rows = [...table.querySelectorAll(".ag-center-cols-container .ag-row")];
            const bottom = (element) => element.getBoundingClientRect().bottom;
            const space = bottom(table) - Math.max(...rows.map(bottom));
            return rows.length === 10 && space >= 0 && space < 20;
        }"""
    )


def test_search_sort_and_the_address(open_page, served):
    page = open_page(trigrams(row=7))
    listed(page, "300 rows.")
    expect(page.locator("#trigrams-one-title")).to_have_text("Row 7")
    service = served[1]
    choice, _ = service.describe(TrigramsState(checkpoint="tiny-one", head=(0, 1), k=300, fold="none"))
    frame = service.frame(choice, None)
    wanted = frame["out_shown"].iloc[0]
    page.fill(f"#{ids.OUT}", f"={wanted}")
    n = int((frame["out_shown"] == wanted).sum())
    listed(page, f"{n} of 300 rows" if n < 300 else "300")
    lists(page, "out_shown", [wanted] * n)
    written(page, "out", f"={wanted}")
    page.fill(f"#{ids.OUT}", "")
    listed(page, "300 rows.")
    lists(page, "rank", frame["rank"].astype(str).tolist())
    page.click("#trigrams-rows-table .ag-header-cell[col-id=qk]")
    ranks = frame.sort_values("qk", kind="stable")["rank"]
    lists(page, "rank", ranks.astype(str).tolist())
    lowest = f"{frame['qk'].min():.2f}".replace("-", "\u2212")
    page.locator(f"#trigrams-rows-table .ag-row[row-index='0'] [col-id=qk] >> text='{lowest}'").wait_for()
    page.click("#trigrams-rows-table .ag-row[row-index='2'] [col-id=out_shown]")
    rank = int(ranks.iloc[2])
    page.locator(f"#trigrams-one-title >> text=Row {rank}").wait_for()
    written(page, "row", str(rank))
    # Another table: its first row again.
    page.click('#trigrams-heads .pick-head[data-head="2"]')
    written(page, "head", "0.2")
    written(page, "row", None)
    page.locator("#trigrams-one-title >> text='Row 1'").wait_for()
    page.click(f"#{ids.END} >> text=suppressed")
    page.click(f"#{ids.SCORE} >> text=z + ov")
    page.locator("#trigrams-rows-table .ag-header-cell[col-id=score]").wait_for()
    page.click(f"#{ids.DISTANCE} >> text=mean")
    for key, value in (("end", "bottom"), ("score", "sum"), ("distance", "mean")):
        written(page, key, value)
    page.locator("#trigrams-one-body >> text=lowers the logit").wait_for()


def test_all_triples_are_searched(open_page):
    page = open_page(trigrams(out="captain", within="all", k=25))
    listed(page, "25 rows.")
    page.wait_for_function(
        """() => [...document.querySelectorAll("#trigrams-rows-table .ag-row [col-id=out_shown]")].every(
            one => one.textContent)"""
    )
    settled(page)
    outs = column(page, "out_shown")
    assert len(outs) >= 10 and all("captain" in out for out in outs)
    expect(page.locator(f"#{ids.MEANING}")).to_contain_text("out contains")
    page.fill(f"#{ids.OUT}", "zzzzz")
    page.locator(f"#{shell.progress(ids.CHOICE)} >> text=No token matches").wait_for()


def test_check_read_and_open_in_heads(open_page):
    page = open_page(trigrams(source="captain", destination="·", within="all", k=60, tokens=3000))
    listed(page, "60 rows.")
    opened(page, "Check against text")
    page.locator(f"#{shell.caption(ids.EVIDENCE)} >> text=Reads 1 document in book.txt").wait_for()
    page.click(f"#{ids.CHECK}")
    checked(page)
    opened(page, "What true rows force")
    page.locator(f"#{shell.caption(ids.FORCED)} >> text=/nothing is forced|forced by pairs/").wait_for()
    opened(page, "Kinds")
    page.locator("#trigrams-kinds-caption >> text=tokens of 1 document").wait_for()
    page.wait_for_selector("#trigrams-kinds-graph .barlayer .trace", state="attached")
    confirmed = int(page.inner_text("#trigrams-kinds-caption").split(" confirmed")[0])
    opened(page, "Rows")
    # The verdict's filter agrees with what is counted.
    page.click(f"#{ids.VERDICT}")
    page.click("[role=option] >> text='confirmed'")
    written(page, "verdict", "confirmed")
    assert confirmed < 60
    listed(page, f"{confirmed} of 60 rows match.")
    page.click("#trigrams-verdict ~ * button, .mantine-Select-root:has(#trigrams-verdict) button")
    listed(page, "60 rows.")
    header = "#trigrams-rows-table .ag-header-cell[col-id=occurrences]"
    for order in ("ascending", "descending"):
        page.click(header)
        page.wait_for_selector(f"{header}[aria-sort={order}]")
    # Sorted by the server, so the first row changes some time after the header: the most frequent is on top.
    page.wait_for_function("""() => {
        const counts = [...document.querySelectorAll("#trigrams-rows-table .ag-row [col-id=occurrences]")]
            .map(cell => [Number(cell.closest(".ag-row").getAttribute("row-index")), Number(cell.textContent)])
            .sort((a, b) => a[0] - b[0]).map(([_, count]) => count);
        return counts[0] > 5 && counts.every((count, row) => !row || count <= counts[row - 1]);
    }""")
    settled(page)
    cells = [column(page, name)[0] for name in ("rank", "source_shown", "destination_shown", "out_shown")]
    page.click("#trigrams-rows-table .ag-row[row-index='0'] [col-id=out_shown]")
    written(page, "row", cells[0])
    page.wait_for_function(
        "(shown) => document.querySelector('#trigrams-one-body .trigram-big')?.textContent === shown",
        arg=f"{cells[1]}…{cells[2]}→{cells[3]}",
    )
    link = page.locator("#trigrams-one-body a.occurrence").first
    link.wait_for()
    settled(page)
    assert link.locator(".role-source").count() and link.locator(".role-destination").count()
    destination = link.locator(".role-destination").inner_text()
    attention = link.locator(".occurrence-note").inner_text()
    position = parse_qs(urlsplit(link.get_attribute("href") or "").query)["position"][-1]
    link.click()
    page.locator(f".chip-locked[data-position='{position}']").wait_for()
    chip = page.locator(".chip-locked")
    assert chip.inner_text() == destination and chip.get_attribute("data-position") == position
    assert urlsplit(page.url).path == "/heads" and parse_qs(urlsplit(page.url).query)["head"] == ["0.1"]
    assert "%" in attention
    page.go_back()
    listed(page, "60 rows.")
    checked(page)  # the evidence is still there


def test_a_check_can_be_stopped_and_every_head_checked(open_page, served, monkeypatch: pytest.MonkeyPatch):
    import aotlens.trigrams

    started, real = threading.Event(), aotlens.trigrams.evidence

    def slow(*args: Any, progress: Any, **rest: Any) -> Any:
        started.set()
        while True:  # until somebody stops it
            progress(1, 3000)
            threading.Event().wait(0.01)

    monkeypatch.setattr(aotlens.trigrams, "evidence", slow)
    page = open_page(trigrams(k=20, tokens=3000))
    listed(page, "20 rows.")
    opened(page, "Check against text")
    page.click(f"#{ids.CHECK}")
    assert started.wait(PATIENCE / 1000)
    page.locator(f"#{shell.progress(ids.CHOICE)} >> text=/Checking head 0.1 .* of 3,000 tokens/").wait_for()
    page.click(f"#{shell.stop(ids.CHOICE)}")
    page.locator(f"#{shell.progress(ids.CHOICE)} >> text=Stopped; nothing of it is kept").wait_for()
    expect(page.locator(f"#{shell.stop(ids.CHOICE)}")).to_be_hidden()
    monkeypatch.setattr(aotlens.trigrams, "evidence", real)
    opened(page, "All heads")
    page.click(f"#{ids.CHECK_ALL}")
    page.wait_for_function("""() => { const cells = [...document.querySelectorAll(
        "#trigrams-all-heads-table .ag-row [col-id='too rare']")]; return cells.length === 3
        && cells.every(cell => /^[0-9]+$/.test(cell.textContent)); }""")
    page.click("#trigrams-all-heads-table .ag-row[row-index='2'] [col-id=head]")
    written(page, "head", "0.2")


def test_the_keyboard_reaches_rows_and_heads(open_page):
    page = open_page(trigrams(k=60))
    listed(page, "60 rows.")
    settled(page)
    page.locator("#trigrams-rows-table .ag-row[row-index='0'] [col-id=rank]").focus()
    for row in (1, 2, 3):
        page.keyboard.press("ArrowDown")
        focused(page, f"#trigrams-rows-table .ag-row[row-index='{row}'] .ag-cell-focus")
    settled(page)
    assert page.locator("#trigrams-one-title").inner_text() == "Row 1"
    page.keyboard.press("Enter")
    page.locator("#trigrams-one-title >> text='Row 4'").wait_for()
    written(page, "row", "4")
    settled(page)
    opened(page, "All heads")
    page.locator("#trigrams-all-heads-table .ag-row[row-index='0'] [col-id=head]").focus()
    page.keyboard.press("Enter")
    written(page, "head", "0.0")


def test_pasted_text_is_a_corpus(open_page):
    page = open_page(trigrams(source="captain", destination="·", within="all", k=30))
    listed(page, "30 rows.")
    opened(page, "Check against text")
    page.click(f"#{ids.CORPUS}")
    page.click("[role=option] >> text='pasted text'")
    page.click(f"#{ids.CHECK}")
    page.locator(f"#{shell.notice(ids.CHECK)} >> text=Paste a text first").wait_for()
    page.fill(f"#{ids.PASTED}", TEXT * 5)
    page.locator(f"#{shell.caption(ids.EVIDENCE)} >> text=a pasted text of").wait_for()
    page.click(f"#{ids.CHECK}")
    checked(page)
    # It is in the address, and there it is found when the page is opened again.
    written(page, "corpus", key_of(TEXT * 5))
    page = open_page(trigrams(k=30, corpus=key_of(TEXT * 5), beside="text"))
    page.locator(f"#{shell.caption(ids.EVIDENCE)} >> text=Reads your text ‹Pasted: The captain").wait_for()


@pytest.mark.long  # on a loaded machine the click reads what was there before, once in some dozen presses
def test_a_check_reads_what_the_fields_hold(open_page):
    """However soon after the typing the button is pressed: fields wait for more of it before they tell the server."""
    page = open_page(trigrams(source="captain", destination="·", within="all", k=30))
    listed(page, "30 rows.")
    opened(page, "Check against text")
    page.click(f"#{ids.CORPUS}")
    page.click("[role=option] >> text='pasted text'")
    opened(page, "Kinds")
    for times in (5, 6, 7):
        page.fill(f"#{ids.PASTED}", TEXT * times)
        page.click(f"#{ids.CHECK}")
        about = f"‹Pasted: The captain bowed, and Mrs. Pendlebury› of {len(TEXT) * times:,} characters"
        expect(page.locator("#trigrams-kinds-caption")).to_contain_text(about)
        expect(page.locator(f"#{shell.notice(ids.CHECK)}")).to_be_empty()
    # So do those of the table: it is one of 20 rows that is checked.
    opened(page, "Rows")
    page.fill(f"#{ids.K}", "20")
    page.click(f"#{ids.CHECK}")
    listed(page, "20 rows.")
    checked(page)


def test_a_click_that_waits_for_another_answer_is_heard(open_page, monkeypatch: pytest.MonkeyPatch):
    """The check needs to know the text, whose choice the server has not answered yet."""
    release, rule = threading.Event(), words.rule

    def late() -> str:
        release.wait(PATIENCE / 1000)
        return rule()

    page = open_page(trigrams(k=20))
    listed(page, "20 rows.")
    opened(page, "Check against text")
    monkeypatch.setattr(words, "rule", late)
    page.click(f"#{ids.CORPUS}")
    page.click("[role=option] >> text='pasted text'")
    page.click(f"#{ids.CHECK}")
    release.set()
    page.locator(f"#{shell.notice(ids.CHECK)} >> text=Paste a text first").wait_for()


def test_what_there_is_not_is_said(open_page):
    page = open_page(trigrams(checkpoint="tiny-fixed"))
    page.locator(f"#{shell.progress(ids.CHOICE)} .mantine-Alert-root").wait_for()
    page = open_page(trigrams(checkpoint="tiny-two", head=(1, 0), k=20), width=800, scheme="dark")
    listed(page, "20 rows.")
    page.locator(f"#{ids.RELATIVE} >> text=Relative").wait_for()
    fits(page)
    page = open_page(trigrams(checkpoint="nothing"))
    page.locator(".taken-instead >> text=checkpoint=nothing").wait_for()
    # A text that has been deleted, more tokens than are read here, and a row that the table does not have.
    page = open_page(trigrams(k=20, corpus=key_of("deleted"), tokens=200_000, distance=900, row=77))
    said = page.locator(".taken-instead")
    expect(said).to_contain_text(f"corpus={key_of('deleted')}: expected a text that is kept here: this one is not, or ")
    expect(said).to_contain_text("has been deleted. book.txt was taken instead.")
    expect(said).to_contain_text("tokens=200000: expected at most 100,000 tokens.")
    expect(said).to_contain_text("distance=900: expected a distance from 1 to 24 tokens, or 'mean'. 24 was taken")
    expect(page.locator(f"#{shell.notice(ids.ONE)}")).to_contain_text("There is no row 77 in a table of 20 rows")
    expect(page.locator("#trigrams-one-title")).to_have_text("Row 20")


def test_files(open_page):
    page = open_page(trigrams(k=40))
    listed(page, "40 rows.")
    opened(page, "Kinds")
    page.wait_for_selector("#trigrams-kinds-graph .barlayer .trace", state="attached")
    starts = {"csv": b'"kind"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for kind, start in starts.items():
        page.click("#trigrams-kinds-export")
        with page.expect_download() as download:
            page.click(f"#{shell.export(ids.KINDS, kind)}")
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(start), (kind, content[:40])
        if kind == "png":
            assert struct.unpack(">II", content[16:24]) >= (900, 800)
    opened(page, "All heads")
    page.click("#trigrams-all-heads-export")
    with page.expect_download() as download:
        page.click(f"#{shell.export(ids.ALL_HEADS, 'csv')}")
    heads = pd.read_csv(download.value.path())
    assert heads["head"].astype(str).tolist() == ["0.0", "0.1", "0.2"]
    assert heads["rows"][1] == 40
    opened(page, "Rows")
    page.click("#trigrams-rows-export")
    with page.expect_download() as download:
        page.click(f"#{shell.export(ids.ROWS, 'csv')}")
    assert len(Path(download.value.path()).read_text(encoding="utf-8").splitlines()) >= 41


def test_the_rows_are_in_the_first_screen_and_tabs_are_remembered(open_page):
    page = open_page(trigrams(k=60, fold="similar"))
    listed(page, "60 rows")
    in_the_first_screen(page, ids.ROWS)
    in_the_first_screen(page, ids.ONE)
    # What is in a tab that is shut is not asked for.
    assert page.locator(f"#{ids.KINDS}").get_attribute("aria-busy") == "true"
    opened(page, "Kinds")
    opened(page, "Check against text")
    written(page, "tab", "kinds")
    written(page, "beside", "text")
    again = open_page(trigrams(k=60, tab="forced", beside="text"), load=True)
    expect(again.locator(f"#{shell.caption(ids.FORCED)}")).to_contain_text("has not been held against text")
    expect(again.locator(f"#{ids.CHECK}")).to_be_visible()
    # A row that is clicked is explained, whatever was open.
    opened(again, "Rows")
    again.click("#trigrams-rows-table .ag-row[row-index='2'] [col-id=out_shown]")
    expect(again.locator("#trigrams-one-title")).to_have_text("Row 3")
    expect(again.locator(f"#{ids.ONE}")).to_be_visible()
    written(again, "beside", None)
