"""The Skip-trigrams page in a real Chromium: list, search, sort, check, read, follow; a console without errors."""

from __future__ import annotations

import re
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from aotlens.plots import glyphs
from aotlens.views.trigrams import PATH
from app.core.own_texts import key_of
from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import Trigrams
from app.shell import ids as shell
from tests.app.conftest import (
    PATIENCE,
    TEXT,
    choose,
    fits,
    focused,
    in_the_first_screen,
    opened,
    query,
    settled,
    written,
)
from tests.app.trigrams.conftest import state
from tests.app.trigrams.listing import checked, column, listed, lists, trigrams


@pytest.fixture(scope="module")
def address(served: tuple[str, Trigrams]) -> str:
    return served[0]


@pytest.mark.visit
def test_the_rows_are_the_tables(open_page, served):
    page = open_page(trigrams())
    listed(page, "300 rows.")
    service = served[1]
    frame = service.frame(service.of_address(state(k=300)))
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
    selected = page.locator("#trigrams-rows-table .ag-center-cols-container .ag-row-selected")
    expect(selected).to_have_attribute("row-id", "7")
    service = served[1]
    frame = service.frame(service.of_address(state(k=300)))
    wanted = frame["out_shown"].iloc[0]
    choose(page, page.fill, f"#{ids.OUT}", f"={wanted}")
    n = int((frame["out_shown"] == wanted).sum())
    listed(page, f"{n} of 300 rows" if n < 300 else "300")
    lists(page, "out_shown", [wanted] * n)
    written(page, "out", f"={wanted}")
    choose(page, page.fill, f"#{ids.OUT}", "")
    listed(page, "300 rows.")
    lists(page, "rank", frame["rank"].astype(str).tolist())
    choose(page, page.click, "#trigrams-rows-table .ag-header-cell[col-id=qk]")
    ranks = frame.sort_values("qk", kind="stable")["rank"]
    lists(page, "rank", ranks.astype(str).tolist())
    lowest = f"{frame['qk'].min():.2f}".replace("-", "\u2212")
    page.locator(f"#trigrams-rows-table .ag-row[row-index='0'] [col-id=qk] >> text='{lowest}'").wait_for()
    choose(page, page.click, "#trigrams-rows-table .ag-row[row-index='2'] [col-id=out_shown]")
    rank = int(ranks.iloc[2])
    page.locator(f"#trigrams-one-title >> text=Row {rank}").wait_for()
    written(page, "row", str(rank))
    # Another table: its first row again.
    choose(page, page.click, '#trigrams-heads .pick-head[data-head="2"]')
    written(page, "head", "0.2")
    written(page, "row", None)
    page.locator("#trigrams-one-title >> text='Row 1'").wait_for()
    choose(page, page.click, f"#{ids.END} >> text=suppresses")
    choose(page, page.click, f"#{ids.SCORE} >> text=z + ov")
    page.locator("#trigrams-rows-table .ag-header-cell[col-id=score]").wait_for()
    choose(page, page.click, f"#{ids.DISTANCE} >> text=mean")
    for key, value in (("end", "bottom"), ("score", "sum"), ("distance", "mean")):
        written(page, key, value)
    page.locator("#trigrams-one-body >> text=lowers the logit").wait_for()


def test_check_read_and_open_in_heads(open_page, request: pytest.FixtureRequest):
    k = 59 + getattr(request.node, "execution_count", 1)  # where it runs again, the server knows the first one's check
    page = open_page(trigrams(source="captain", destination="·", within="all", k=k, tokens=3000))
    listed(page, f"{k} rows.")
    selected = page.locator("#trigrams-rows-table .ag-center-cols-container .ag-row-selected")
    expect(selected).to_have_attribute("row-id", "1")  # the row that is explained, which nobody has picked
    settled(page)
    assert "row" not in query(page)
    opened(page, "Check against text")
    page.locator(
        f"#{shell.caption(ids.EVIDENCE)} >> text=/This text can decide \\d+ of the {k} rows.*book.txt/"
    ).wait_for()
    choose(page, page.click, f"#{shell.start(ids.EVIDENCE)}")
    checked(page)
    opened(page, "Forced skip-trigrams")
    page.locator(f"#{shell.caption(ids.FORCED)} >> text=/nothing is forced|forced by pairs/").wait_for()
    opened(page, "Kinds")
    page.locator("#trigrams-kinds-caption >> text=tokens of 1 document").wait_for()
    page.wait_for_selector("#trigrams-kinds-graph .barlayer .trace", state="attached")
    confirmed = int(re.findall(r"(\d+) confirmed", page.inner_text("#trigrams-kinds-caption"))[0])
    opened(page, "Rows")
    # The verdict's filter agrees with what is counted.
    choose(page, page.click, f"#{ids.VERDICT}")
    choose(page, page.click, "[role=option] >> text='confirmed'")
    written(page, "verdict", "confirmed")
    assert confirmed < k
    listed(page, f"{confirmed} of {k} rows match.")
    choose(page, page.click, "#trigrams-verdict ~ * button, .mantine-Select-root:has(#trigrams-verdict) button")
    listed(page, f"{k} rows.")
    header = "#trigrams-rows-table .ag-header-cell[col-id=occurrences]"
    for order in ("ascending", "descending"):
        page.locator(header).focus()
        choose(
            page, page.keyboard.press, "Enter"
        )  # columns are fitted some frames later: a pointer could meet the next one
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
    choose(page, page.click, "#trigrams-rows-table .ag-row[row-index='0'] [col-id=out_shown]")
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
    choose(page, link.click)
    page.locator(f".chip-locked[data-position='{position}']").wait_for()
    chip = page.locator(".chip-locked")
    assert chip.inner_text() == destination and chip.get_attribute("data-position") == position
    assert urlsplit(page.url).path == "/heads" and parse_qs(urlsplit(page.url).query)["head"] == ["0.1"]
    assert "%" in attention
    page.go_back()
    listed(page, f"{k} rows.")
    checked(page)  # the evidence is still there


def test_a_check_can_be_stopped_and_every_head_checked(open_page, served, monkeypatch: pytest.MonkeyPatch):
    from aotlens.trigrams import rows

    started, real = threading.Event(), rows.evidence

    def slow(*args: Any, progress: Any, run_model: bool = True, **rest: Any) -> Any:
        if not run_model:
            return real(*args, run_model=False, **rest)
        started.set()
        while True:  # until somebody stops it
            progress(1, 3000)
            threading.Event().wait(0.01)

    monkeypatch.setattr(rows, "evidence", slow)
    page = open_page(trigrams(k=20, tokens=3000))
    listed(page, "20 rows.")
    opened(page, "Check against text")
    choose(page, page.click, f"#{shell.start(ids.EVIDENCE)}")
    assert started.wait(PATIENCE / 1000)
    page.locator(f"#{shell.progress(ids.EVIDENCE)} >> text=/Check against text: .* of 3,000 tokens/").wait_for()
    choose(page, page.click, f"#{shell.stop(ids.EVIDENCE)}")
    page.locator(f"#{shell.progress(ids.EVIDENCE)} >> text=Stopped; nothing of it is kept").wait_for()
    expect(page.locator(f"#{shell.stop(ids.EVIDENCE)}")).to_be_hidden()
    monkeypatch.setattr(rows, "evidence", real)
    opened(page, "All heads")
    choose(page, page.click, f"#{shell.start(ids.ALL_HEADS)}")
    page.wait_for_function("""() => { const cells = [...document.querySelectorAll(
        "#trigrams-all-heads-table .ag-row [col-id='too rare']")]; return cells.length === 3
        && cells.every(cell => /^[0-9]+$/.test(cell.textContent)); }""")
    choose(page, page.click, "#trigrams-all-heads-table .ag-row[row-index='2'] [col-id=head]")
    written(page, "head", "0.2")


def test_the_keyboard_reaches_rows_and_heads(open_page):
    page = open_page(trigrams(k=60))
    listed(page, "60 rows.")
    settled(page)
    page.locator("#trigrams-rows-table .ag-row[row-index='0'] [col-id=rank]").focus()
    for row in (1, 2, 3):
        choose(page, page.keyboard.press, "ArrowDown")
        focused(page, f"#trigrams-rows-table .ag-row[row-index='{row}'] .ag-cell-focus")
    settled(page)
    expect(page.locator("#trigrams-one-title")).to_have_text("Row 1")
    choose(page, page.keyboard.press, "Enter")
    page.locator("#trigrams-one-title >> text='Row 4'").wait_for()
    written(page, "row", "4")
    settled(page)
    opened(page, "All heads")
    choose(page, page.click, f"#{shell.start(ids.ALL_HEADS)}")
    page.locator("#trigrams-all-heads-table .ag-row[row-index='0'] [col-id=head]").focus()
    choose(page, page.keyboard.press, "Enter")
    written(page, "head", "0.0")


def test_pasted_text_is_a_corpus(open_page):
    page = open_page(trigrams(source="captain", destination="·", within="all", k=30))
    listed(page, "30 rows.")
    opened(page, "Check against text")
    choose(page, page.click, f"#{ids.CORPUS}")
    choose(page, page.click, "[role=option] >> text='pasted text'")
    page.locator(f"#{shell.notice(ids.EVIDENCE)} >> text=There is no text").wait_for()
    expect(page.locator(f"#{shell.start(ids.EVIDENCE)}")).to_be_disabled()
    choose(page, page.fill, f"#{ids.PASTED}", TEXT * 5)
    page.locator(f"#{shell.caption(ids.EVIDENCE)} >> text=a pasted text of").wait_for()
    choose(page, page.click, f"#{shell.start(ids.EVIDENCE)}")
    checked(page)
    # It is in the address, and there it is found when the page is opened again.
    written(page, "corpus", key_of(TEXT * 5))
    page = open_page(trigrams(k=30, corpus=key_of(TEXT * 5), beside="text"))
    page.locator(f"#{shell.caption(ids.EVIDENCE)} >> text=your text ‹Pasted: The captain").wait_for()


def test_what_there_is_not_is_said(open_page):
    page = open_page(trigrams(checkpoint="tiny-fixed"))
    page.locator(f"#{shell.notice(ids.CHOICE)} .mantine-Alert-root").wait_for()
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
    expect(page.locator(f"#{shell.notice(ids.ONE)}")).to_contain_text("There is no row 77 among 20 rows")
    expect(page.locator("#trigrams-one-title")).to_have_text("Row 20")


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
    again = open_page(trigrams(k=61, tab="forced", beside="text"), load=True)
    expect(again.locator(f"#{shell.caption(ids.FORCED)}")).to_contain_text("have not been checked against text")
    expect(again.locator(f"#{shell.start(ids.EVIDENCE)}")).to_be_visible()
    # A row that is clicked is explained, whatever was open.
    opened(again, "Rows")
    choose(page, again.click, "#trigrams-rows-table .ag-row[row-index='2'] [col-id=out_shown]")
    expect(again.locator("#trigrams-one-title")).to_have_text("Row 3")
    expect(again.locator(f"#{ids.ONE}")).to_be_visible()
    written(again, "beside", None)


def test_groups_are_listed_and_all_rows_are_a_switch_away(open_page, served):
    page = open_page(trigrams(fold="similar", k=40))
    listed(page, "40 rows, with which")
    frame = served[1].frame(served[1].of_address(state(k=40, fold="similar")))
    lists(page, "out_shown", frame["out_shown"].tolist())
    beneath = int(frame["grouped"][1])
    choose(page, page.click, "#trigrams-rows-table .ag-row[row-index='1'] [col-id=grouped]")
    ranks = ["1", "2", *[""] * min(beneath, served[1].core.settings.members_shown), *map(str, range(3, 41))]
    lists(page, "rank", ranks)
    written(page, "row", "2")
    # A folded row is explained by the one that it is beneath.
    choose(page, page.click, "#trigrams-rows-table .ag-row[row-index='2'] [col-id=out_shown]")
    written(page, "row", "2")
    choose(page, page.locator("#trigrams-rows-table .ag-row[row-index='1'] [col-id=grouped]").click)
    lists(page, "rank", [str(rank) for rank in range(1, 41)])
    choose(page, page.click, f"#{ids.FOLD} >> text=all")
    listed(page, "40 rows.")
    written(page, "fold", "none")
    expect(page.locator("#trigrams-rows-table .ag-header-cell[col-id=grouped]")).to_have_count(0)


def test_the_direct_path_has_a_tab(open_page, served):
    page = open_page(trigrams(k=30, tokens=3000))
    listed(page, "30 rows.")
    choose(page, page.click, "[role=tab] >> text=Direct path")
    written(page, "tab", "direct")
    caption = page.locator(f"#{shell.caption(ids.PATH)}")
    expect(caption).to_contain_text("30 largest entries of all")
    expect(caption).to_contain_text("bigrams of 1 document in book.txt")
    first = page.locator(f"#{shell.table(ids.PATH)} .ag-row[row-index='0'] [col-id=first]")
    path = served[1].workshop.result(PATH, served[1].of_address(state(k=30)))
    expect(first).to_have_text(glyphs(path.first_token[0]))
    choose(page, page.fill, f"#{ids.AFTER}", "captain")
    expect(first).to_have_text("·captain")
    written(page, "after", "captain")
    choose(page, page.fill, f"#{ids.AFTER}", "no such token")
    page.locator(f"#{shell.notice(ids.PATH)} >> text=No token matches").wait_for()
    page = open_page(trigrams(k=30, tab="direct", after="captain", tokens=3000), width=800, scheme="dark")
    expect(first).to_have_text("·captain")
    fits(page)


@pytest.mark.parametrize("width", [1440, 800])
@pytest.mark.parametrize("path", ["/checkpoints", trigrams(k=40, fold="similar")])
def test_columns_fit_their_content_and_headers_break_between_words(open_page, path: str, width: int):
    page = open_page(path, width=width)
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
            return !widths.includes(200) // the table's own
                && cells.length > 20 && cells.every((cell) => cell.scrollWidth <= cell.clientWidth + 1)
                && headers.length > 3 && headers.every(whole);
        }"""
    )
    fits(page)
