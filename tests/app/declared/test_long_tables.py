"""Tables of any length, work that is checked in the background, links in cells, in Chromium, on Skip-trigrams."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from aotlens.conventions import glyphs
from aotlens.views.trigrams import CHECK, CHOICE, ONE, ROWS
from app.core import Core
from app.core.settings import Settings
from app.pages.trigrams import PAGE
from app.shell.app import App
from app.shell.props import components
from app.shell.view_service import Views
from tests.app.conftest import TEXT, choose, in_the_first_screen, opened, query, save_tiny, serve, settled, written
from tests.app.declared_pages import alone
from tests.app.test_accessibility import OPTIONS, answered, faults

if TYPE_CHECKING:
    from playwright.sync_api import Page

_ROWS = "#trigrams-rows-lines tbody tr"
_CHECKED = {"source": "captain", "destination": "·", "within": "all", "tokens": 3000}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, App]]:
    """An app with a text, and models of one layer and of twelve."""
    saves = (
        partial(save_tiny, name="tiny-one", n_layers=1, norm=None, positions="qk"),
        partial(save_tiny, name="tiny-deep", n_layers=12, n_heads=2, norm=None),
        partial(save_tiny, name="tiny-fixed", n_layers=1, phi="fixed", fixed_pattern="random"),
    )
    book = tmp_path_factory.mktemp("text") / "book.txt"
    book.write_text(TEXT * 90, encoding="utf-8")
    with alone(tmp_path_factory, *saves, corpora=(f"file:{book}",), first_checkpoint="tiny-one") as app:
        with serve(app) as address:
            yield address, app
        app.services["trigrams"].jobs.stop()


@pytest.fixture(scope="module")
def address(served: tuple[str, App]) -> str:
    return served[0]


@pytest.fixture(scope="module")
def service(served: tuple[str, App]) -> Views:
    return served[1].services["trigrams"]


def state(**changes: Any) -> dict[str, Any]:
    return {"checkpoint": "tiny-one", "head": [0, 1], "k": 300, "fold": "none", **changes}


def at(**changes: Any) -> str:
    return PAGE.address.format(PAGE.address.state(state(**changes)))


def marked(page: Page) -> str:
    """The rank of the row that is marked."""
    return page.locator(f"{_ROWS}[aria-current]").locator("td").first.inner_text()


def ranks(page: Page) -> list[int]:
    return [int(text) for text in page.locator(f"{_ROWS} td:first-child").all_inner_texts()]


@pytest.mark.visit
def test_rows_are_the_librarys_and_are_made_as_they_are_scrolled_to(open_page, service: Views) -> None:
    page = open_page(at(), load=True)
    settled(page)
    in_the_first_screen(page, "trigrams-rows")
    params = service.values(state())
    frame = service.workshop.result(ROWS, params).listed_frame()
    caption = ROWS.caption(params, service.workshop.result(ROWS, params))
    expect(page.locator("#trigrams-rows-caption")).to_have_text(" ".join(caption.split()))
    made = page.locator(_ROWS).count()
    assert made < 300 and ranks(page) == list(range(1, made + 1))
    box = page.locator("#trigrams-rows-lines .values-box")
    assert box.evaluate("box => box.scrollHeight") == pytest.approx(24 * 300, rel=0.15), "one can scroll to all"
    box.evaluate("box => { box.scrollTop = 24 * 150; }")
    page.wait_for_function("made => document.querySelectorAll('#trigrams-rows-lines tbody tr').length > made", arg=made)
    assert page.locator(_ROWS).count() < 300
    box.evaluate("box => { box.scrollTop = 24 * 300; }")
    expect(page.locator(_ROWS)).to_have_count(300)
    outs = page.locator(f"{_ROWS} td:nth-child(4)").all_inner_texts()
    assert outs == [glyphs(token) for token in frame["out"]]
    z, header = (
        frame["qk"].map("{:.2f}".format).astype(float),
        page.locator("#trigrams-rows-lines th", has_text="z (nats)"),
    )
    for ascending in (False, True):
        choose(page, header.locator("button").click)
        order = z.sort_values(kind="stable", ascending=ascending)
        assert ranks(page) == (order.index + 1).tolist(), "rows of one shown number keep their order"


def test_a_row_is_chosen_anywhere_in_it_by_keyboard_and_by_its_number(open_page) -> None:
    page = open_page(at())
    settled(page)
    title = page.locator("#trigrams-one-title")
    assert marked(page) == "1" and "row" not in query(page), "that of the best row, which nobody has chosen"
    requests: list[str] = []
    page.on("request", lambda each: requests.append(each.url) if "_dash-update" in each.url else None)
    choose(page, page.locator(_ROWS).nth(4).locator("td").nth(5).click)
    written(page, "row", "5")
    expect(title).to_contain_text("Row 5:")
    assert marked(page) == "5" and len(requests) == 1, "the table is not sent again"
    page.locator(_ROWS).nth(4).locator("button").focus()
    choose(page, page.keyboard.press, "ArrowDown")
    choose(page, page.keyboard.press, "Enter")
    expect(title).to_contain_text("Row 6:")
    choose(page, page.locator("#trigrams-field-row").fill, "9")
    written(page, "row", "9")
    assert marked(page) == "9"
    opened(page, "Check against text")
    choose(page, page.locator(_ROWS).nth(1).locator("td").nth(2).click)
    written(page, "beside", None)
    expect(title).to_contain_text("Row 2:")
    choose(page, page.click, "#trigrams-field-head-heads .pick-head[data-head='2']")
    written(page, "row", None)
    expect(page.locator("#trigrams-field-row")).to_have_value("")
    expect(title).to_contain_text("Row 1:")


def test_rows_are_filtered_without_a_search_and_what_is_asked_is_said(open_page, service: Views) -> None:
    page = open_page(at(row=7))
    settled(page)
    frame = service.workshop.result(ROWS, service.values(state())).listed_frame()
    wanted = glyphs(frame["out"].iloc[0])
    choose(page, page.fill, "#trigrams-field-out", f"={wanted}")
    written(page, "out", f"={wanted}")
    n = int((frame["out"].map(glyphs) == wanted).sum())
    expect(page.locator("#trigrams-rows-caption")).to_contain_text(f"{n} of 300 rows match")
    written(page, "row", "7")
    page.locator("#trigrams-field-source").focus()
    choose(page, page.keyboard.insert_text, "x" * 100_000)
    expect(page.locator("#trigrams-field-source")).to_have_value("x" * 60)
    choose(page, page.fill, "#trigrams-field-source", "")
    choose(page, page.fill, "#trigrams-field-out", "no such token")
    expect(page.locator("#trigrams-rows-caption")).to_contain_text("0 of 300 rows match")
    expect(page.locator(_ROWS)).to_have_count(0)
    choose(page, page.fill, "#trigrams-field-out", "")
    for words, changes in {"sources grouped": {"fold": "sources"}, "suppresses": {"end": "bottom"}}.items():
        choose(page, page.get_by_text(words, exact=True).click)
        params = service.values(state(fold="sources") | changes)
        expect(page.locator("#trigrams-choice-caption")).to_have_text(CHOICE.caption(params, None))
    choose(page, page.click, "#trigrams-field-distance")
    choose(page, page.keyboard.type, "12 tok")
    choose(page, page.get_by_role("option", name="12 tokens back", exact=True).click)
    written(page, "distance", "12")


def test_a_check_shows_verdicts_everywhere_and_a_place_opens_in_heads(open_page, service: Views) -> None:
    asked = state(k=40, **_CHECKED)
    page = open_page(at(k=40, beside="text", **_CHECKED))
    settled(page)
    check = page.locator("#trigrams-check-caption")
    expect(check).to_contain_text("Run reads the first 3,000 tokens of 1 document in book.txt")
    opened(page, "Skip-trigram bugs")
    expect(page.locator("#trigrams-forced-caption")).to_have_text("The rows have not been checked against text.")
    opened(page, "Rows")
    choose(page, page.click, "#trigrams-check-start")
    page.locator("#trigrams-rows-lines th", has_text="verdict").wait_for()
    settled(page)
    params = service.values(asked)
    assert params.checked
    result = service.workshop.result(CHECK, params)
    expect(check).to_have_text(CHECK.caption(params, result))
    verdicts = result.listed_frame()["verdict"]
    shown = page.locator(f"{_ROWS} td:nth-child(6)").all_inner_texts()
    assert len(shown) > 5 and shown == verdicts.tolist()[: len(shown)]
    word = verdicts.iloc[0]
    choose(page, page.click, "#trigrams-field-verdict")
    choose(page, page.get_by_role("option", name=word, exact=True).click)
    expect(page.locator("#trigrams-rows-caption")).to_contain_text(f"{list(verdicts).count(word)} of 40 rows match")
    opened(page, "Skip-trigram bugs")
    implied = "implied by pairs" if len(result.forced) else "they imply no other triple"
    expect(page.locator("#trigrams-forced-caption")).to_contain_text(implied)
    ones = (service.workshop.result(ONE, service.values({**asked, "row": rank})) for rank in range(1, 41))
    rank = next(one.row.number + 1 for one in ones if one.prompts and one.prompts[0])
    page = open_page(at(k=40, row=rank, **_CHECKED))
    settled(page)
    answered(page)
    assert faults(page, OPTIONS) == []
    link = page.locator("#trigrams-one-lines a").first
    expect(page.locator("#trigrams-one-lines .role-source").first).to_have_attribute("title", "source")
    destination = page.locator("#trigrams-one-lines .role-destination").first.inner_text()
    position = parse_qs(urlsplit(link.get_attribute("href") or "").query)["position"][-1]
    choose(page, link.click)
    chip = page.locator(f".chip-locked[data-position='{position}']")
    expect(chip).to_have_text(destination)
    assert urlsplit(page.url).path == "/heads" and query(page)["head"] == "0.1"


def test_all_heads_are_counted_and_a_click_goes_there(open_page) -> None:
    page = open_page(at(k=20, tab="heads", tokens=3000))
    settled(page)
    expect(page.locator("#trigrams-heads-caption")).to_contain_text("Run computes it")
    choose(page, page.click, "#trigrams-heads-start")
    lines = page.locator("#trigrams-heads-lines tbody tr")
    expect(lines).to_have_count(3)
    expect(page.locator("#trigrams-heads-lines .here")).to_have_text("0.1")
    choose(page, lines.nth(2).locator("td").nth(3).click)
    written(page, "head", "0.2")
    expect(page.locator("#trigrams-heads-lines .here")).to_have_text("0.2")


def test_a_picker_of_many_layers_scrolls(open_page) -> None:
    page = open_page(at(checkpoint="tiny-deep", head=[11, 1], k=20), width=800, scheme="dark")
    settled(page)
    in_view = """() => {
        const button = document.querySelector("#trigrams-field-head-heads [data-layer='11'][data-head='1']");
        const row = button.getBoundingClientRect(), box = button.closest(".pick-heads").getBoundingClientRect();
        return button.getAttribute("aria-pressed") === "true" && row.top >= box.top && row.bottom <= box.bottom; }"""
    page.wait_for_function(in_view)


# ── without a browser ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_page_without_a_text_says_what_a_check_needs(services: Core) -> None:
    params = Views(services, PAGE.declared.family).values({"checkpoint": "tiny-mhsa"})
    assert params.corpus is None and "--corpus" in (CHECK.missing(params) or "")


def test_the_first_text_is_read_by_default_and_long_work_waits(service: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.values(state()).corpus.name == "book.txt" and "tiny-fixed" not in service.fitting()
    asked = state(k=33)
    monkeypatch.setattr(service.workshop, "_settings", service.core.settings.__class__(max_operations=10.0))
    params = service.values(asked)
    assert all(service.workshop.waits(view, params) for view in (ROWS, ONE))
    service.workshop.told(lambda *_: None).result(ROWS, params)
    assert not service.workshop.waits(ONE, params) and len(service.workshop.result(ROWS, params)) == 33


@pytest.mark.usefixtures("real_bundled_folder")
def test_the_page_opens_on_a_confirmed_row() -> None:
    core = Core.start(Settings(device="cpu", corpora=("novels",)))
    service = PAGE.service(core)
    laid = PAGE.layout(core, service, PAGE.address.parse(None))
    values = {each.id: each for each in components(laid)}
    assert values["trigrams-field-checkpoint"].value == "novels-1l-mhsa"
    params = service.values({"checkpoint": "novels-1l-mhsa", "head": values["trigrams-field-head"].data})
    assert params.stored and not params.checked and not service.workshop.waits(CHECK, params)
    result = service.workshop.result(ONE, params)
    assert result.row.rows.evidence.verdict[result.row.number] == "confirmed" and result.examples
