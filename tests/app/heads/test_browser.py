"""The Heads page in a real Chromium: type, click a head, lock a token, follow a link; a console without errors."""

from __future__ import annotations

import re
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from app.core import Core
from app.core.head_maps import View
from app.pages.heads.ids import ids
from app.shell import ids as shell
from tests.app.conftest import (
    PATIENCE,
    act,
    choose,
    entry,
    focused,
    head_drawn,
    in_the_first_screen,
    opened,
    query,
    settled,
    written,
)
from tests.app.heads.numbers import SHORT, heads

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request


def drawn(page: Page, title: str) -> None:
    """Waits until the large map is that head's, and the picture of all heads is there."""
    head_drawn(page, title)
    page.wait_for_selector("#heads-grid-cells .cell")


def locked(page: Page, position: int) -> None:
    at = "position => document.querySelector('.chip-locked')?.dataset.position === String(position)"
    page.wait_for_function(at, arg=position)


def test_the_first_page_shows_the_first_example(open_page):
    page = open_page("/heads?checkpoint=tiny-mssa&head=0.0&text=" + "The+captain+danced")
    drawn(page, "Head 0.0")
    expect(page.locator("#heads-grid-cells .cell")).to_have_count(6)
    expect(page.locator("#heads-strip .chip").first).to_have_text("<|endoftext|>")
    # Nothing lies over a tile's map: what a click on its middle hits is the map, and its corner is outside.
    settled(page)
    hit = page.eval_on_selector_all(
        "#heads-grid-cells .tile",
        """tiles => tiles.map(tile => { const map = tile.querySelector("canvas").getBoundingClientRect();
            const corner = tile.querySelector(".head-switch").getBoundingClientRect();
            const { left, top, width, height } = map;
            const at = (x, y) => document.elementFromPoint(left + x * width, top + y * height).localName;
            return [at(.5, .5), at(.02, .5), at(.98, .02), corner.bottom <= map.top || corner.left >= map.right]; })""",
    )
    assert hit == 6 * [["canvas", "canvas", "canvas", True]]


def test_nothing_in_the_address_means_the_first_checkpoint_and_example(open_page, services: Core):
    page = open_page("/heads")
    first = services.catalog.default()
    expect(page.locator(f"#{ids.TEXT}")).to_have_value(services.inference.opening(first, None))
    assert query(page)["checkpoint"] == first


@pytest.mark.visit
def test_type_run_click_and_lock(open_page, services: Core):
    page = open_page(heads(text="ab"))
    drawn(page, "Head 0.0")
    choose(page, page.fill, f"#{ids.TEXT}", "She said that\n\the  bowed 🙂")
    choose(page, page.keyboard.press, "Control+Enter")
    page.wait_for_function("() => document.querySelectorAll('#heads-strip .chip').length > 8")
    shown = page.locator("#heads-strip .chip").all_inner_texts()
    assert any("⏎" in chip for chip in shown) and any("→" in chip for chip in shown)

    choose(page, page.click, '#heads-grid-cells .cell[data-layer="1"][data-head="2"]')
    drawn(page, "Head 1.2")
    chip = page.locator("#heads-strip .chip").nth(4)
    choose(page, chip.click)
    opened(page, "Predicted token")
    page.wait_for_function("() => document.getElementById('heads-next').textContent.includes('After position 4')")
    locked(page, 4)
    written(page, "head", "1.2")
    written(page, "position", "4")

    # The numbers on the chips are the head's row.
    text = page.input_value(f"#{ids.TEXT}")
    row = services.inference.analyse("tiny-mhsa", text).patterns.pattern[1, 2, 4]
    page.wait_for_function("() => document.querySelector('#heads-strip .chip[data-value]')")
    found = page.eval_on_selector_all("#heads-strip .chip", "chips => chips.map(c => c.dataset.value ?? null)")
    largest = int(row.argmax())
    assert float(found[largest]) == pytest.approx(float(row[largest]), abs=0.006)
    assert found[5:] == [None] * (len(found) - 5)

    choose(page, page.click, f"#{ids.DIRECTION} >> text=to this token")
    column = services.inference.analyse("tiny-mhsa", text).patterns.pattern[1, 2, :, 4]
    written(page, "direction", "from")
    # A row ends at its token, and a column begins there.
    page.wait_for_function("() => document.querySelector('.chip-locked ~ .chip[data-value]')")
    found = page.eval_on_selector_all("#heads-strip .chip", "chips => chips.map(c => c.dataset.value ?? null)")
    assert found[:4] == [None] * 4
    assert float(found[int(column.argmax())]) == pytest.approx(float(column.max()), abs=0.006)


def test_a_link_reopens_the_view(open_page):
    state = {"head": (1, 0), "position": 3, "view": "scores", "direction": "from", "hide_first": True}
    page = open_page(heads(**state))
    drawn(page, "Head 1.0")
    locked(page, 3)
    settled(page)
    expect(page.locator(f"#{ids.VIEW} input:checked")).to_have_value("scores")
    expect(page.locator(f"#{ids.DIRECTION} input:checked")).to_have_value("from")
    expect(page.locator(f"#{ids.HIDE_FIRST}")).to_be_checked()
    first = page.url
    # The address that the browser wrote leads to the same view again.
    again = open_page(urlsplit(first).path + "?" + urlsplit(first).query, load=True)
    drawn(again, "Head 1.0")
    locked(again, 3)
    settled(again)
    assert again.url == first


def test_going_away_and_back_restores_the_view(open_page):
    page = open_page(heads())
    drawn(page, "Head 0.0")
    choose(page, page.click, '#heads-grid-cells .cell[data-layer="1"][data-head="1"]')
    drawn(page, "Head 1.1")
    choose(page, page.click, "nav >> text=Checkpoints")
    page.wait_for_selector("#checkpoints-table tbody tr")
    page.go_back()
    drawn(page, "Head 1.1")
    expect(page.locator(f"#{ids.TEXT}")).to_have_value(SHORT)


def test_too_long_a_text_is_counted_and_not_cut(open_page):
    page = open_page(heads())
    drawn(page, "Head 0.0")
    choose(page, page.fill, f"#{ids.TEXT}", " " * 10_000)
    choose(page, page.click, f"#{ids.RUN}")
    notice = page.locator(f"#{shell.notice(ids.PROMPT_PANEL)}")
    notice.locator("text=at most 48").wait_for()
    assert re.search(r"[\d,]+ tokens", notice.inner_text())
    assert len(page.input_value(f"#{ids.TEXT}")) == 10_000
    expect(page.locator("#heads-strip .chip")).to_have_count(0)
    choose(page, page.fill, f"#{ids.TEXT}", "x" * 30_000)
    choose(page, page.click, f"#{ids.RUN}")
    notice.locator("text=30,000 characters").wait_for()
    choose(page, page.fill, f"#{ids.TEXT}", SHORT)
    choose(page, page.click, f"#{ids.RUN}")
    expect(notice).to_have_text("")
    expect(page.locator("#heads-strip .chip")).not_to_have_count(0)
    settled(page)
    drawn(page, "Head 0.0")


@pytest.mark.parametrize("text", ["a\u0301🙂\u200d", "<b>x</b> &amp; %{y} $x$", "\ufeff\u202e"])
def test_strange_text_is_shown_as_it_is(open_page, services: Core, text: str):
    page = open_page(heads(text=text))
    drawn(page, "Head 0.0")
    names = services.inference.analyse("tiny-mhsa", text).patterns.str_tokens
    expect(page.locator("#heads-strip .chip")).to_have_count(len(names))
    written(page, "text", text)


def test_a_lone_surrogate_is_named(open_page):
    page = open_page(heads())
    drawn(page, "Head 0.0")
    page.evaluate("id => dash_clientside.set_props(id, {value: 'ab\\ud800'})", ids.TEXT)
    page.wait_for_function("id => document.getElementById(id).value.length === 3", arg=ids.TEXT)
    choose(page, page.click, f"#{ids.RUN}")
    page.locator(f"#{shell.notice(ids.PROMPT_PANEL)} >> text=can't be tokenised").wait_for()


def test_an_answer_that_comes_late_is_dropped(open_page, services: Core, monkeypatch: pytest.MonkeyPatch):
    """The maps of a text that was run first arrive after those of the text run last."""
    from app.core import head_maps as views

    pack, release = views.packed_maps, threading.Event()

    def slow(result: Any, *rest: Any) -> bytes:
        if result.patterns.n_pos == n_late:
            release.wait(PATIENCE / 1000)
        return pack(result, *rest)

    n_late = services.inference.analyse("tiny-mhsa", "The captain").patterns.n_pos
    monkeypatch.setattr(views, "packed_maps", slow)
    page = open_page(heads())
    drawn(page, "Head 0.0")
    for text in ("The captain", "She said that the captain"):
        act(page.fill, f"#{ids.TEXT}", text)
        act(page.click, f"#{ids.RUN}")
        written(page, "text", text)
    n_last = services.inference.analyse("tiny-mhsa", text).patterns.n_pos
    expect(page.locator("#heads-strip .chip")).to_have_count(n_last)
    with page.expect_response(lambda answer: "/maps?" in answer.url and answer.url.endswith("text=The+captain")):
        release.set()
    settled(page)
    expect(page.locator("#heads-strip .chip")).to_have_count(n_last)


@pytest.mark.parametrize("view", ["attention", "scores"])
def test_the_pointer_gets_the_value_to_the_last_digit(open_page, services: Core, view: View):
    """The maps come in 8 bits an entry; who rests on an entry reads the array's own number."""
    page = open_page(heads(head=(1, 1), view=view))
    drawn(page, "Head 1.1")
    page.wait_for_function(
        "quantity => document.getElementById('heads-map-canvas').map.of().quantity.startsWith(quantity)",
        arg=view.removesuffix("s"),
    )
    settled(page)
    patterns = services.inference.analyse("tiny-mhsa", SHORT).patterns
    exact = (patterns.pattern if view == "attention" else patterns.scores)[1, 1]
    page.mouse.move(*entry(page, 3, 1))
    tip = page.locator("#heads-map-canvas .map-tip")
    expect(tip).to_contain_text(f"{float(exact[3, 1]):.4f}")
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()


def test_what_is_chosen_asks_the_server_nothing_by_itself(open_page):
    """A head, a token, the direction, the ranking, position 0; and one thing at a time with predictions in view."""
    page = open_page(heads(position=3))
    drawn(page, "Head 0.0")
    page.locator("#heads-ranking button").first.wait_for()
    settled(page)
    asked: list[str] = []

    def note(request: Request) -> None:
        if "favicon" not in request.url:  # which Chromium looks up at each new address, in its cache
            asked.append(request.url)

    page.on("request", note)
    choose(page, page.click, '#heads-grid-cells .cell[data-layer="1"][data-head="2"] .cell-label')
    drawn(page, "Head 1.2")
    page.evaluate("document.querySelectorAll('#heads-strip .chip')[2].click()")  # a pointer that rests wants numbers
    locked(page, 2)
    choose(page, page.locator("#heads-ranking button").nth(1).click)
    choose(page, page.click, f"#{ids.DIRECTION} >> text=to this token")
    written(page, "direction", "from")
    choose(page, page.locator(f"#{ids.HIDE_FIRST}").click, force=True)  # `check` would look before React has drawn
    written(page, "sink", "hide")
    settled(page)
    assert asked == []
    opened(page, "Predicted token")
    page.locator("#heads-next >> text=After position 2").wait_for()
    settled(page)
    asked.clear()
    page.evaluate("document.querySelectorAll('#heads-strip .chip')[4].click()")
    page.locator("#heads-next >> text=After position 4").wait_for()
    settled(page)
    page.remove_listener("request", note)
    assert len(asked) == 1


def test_the_map_is_in_the_first_screen(open_page):
    page = open_page(heads(head=(1, 0)))
    drawn(page, "Head 1.0")
    in_the_first_screen(page, ids.MAP)
    in_the_first_screen(page, ids.GRID)
    opened(page, "Predicted token")
    written(page, "tab", "predictions")
    page = open_page(heads(head=(1, 0), tab="predictions"), load=True)
    page.locator("#heads-next table.values").wait_for()
    opened(page, "Map")
    drawn(page, "Head 1.0")


def test_heads_are_ranked_by_a_motif(open_page, services: Core):
    page = open_page(heads())
    drawn(page, "Head 0.0")
    scores = services.inference.motifs("tiny-mhsa")
    for name, title in (("induction", "induction"), ("first_token", "first token")):
        if name != "induction":
            choose(page, page.click, f"#{ids.RANK}")
            choose(page, page.get_by_role("option", name=title).click)
            written(page, "rank", name)
        order = np.argsort(-scores[name], axis=None, kind="stable")
        best = [f"{index // 3}.{index % 3}" for index in order]
        page.wait_for_function(
            """best => best.join() === Array.from(document.querySelectorAll("#heads-ranking button"),
                                                  button => button.dataset.head).join()""",
            arg=best,
        )
    numbered = page.eval_on_selector_all("#heads-grid-cells .cell[data-best='1']", "all => all.map(c => c.textContent)")
    assert numbered == best[:1]
    choose(page, page.locator("#heads-ranking button").nth(1).click)
    drawn(page, f"Head {best[1]}")
    focused(page, "#heads-ranking button[aria-pressed='true']")
    choose(page, page.keyboard.press, "ArrowLeft")
    focused(page, f"#heads-ranking button[data-head='{best[0]}']")
    choose(page, page.keyboard.press, "Enter")
    drawn(page, f"Head {best[0]}")


def test_a_badge_explains_itself_on_hover_and_focus(open_page):
    page = open_page(heads())
    drawn(page, "Head 0.0")
    # The model's own motifs are there: they would take the place of those that the test gives.
    expect(page.locator(f"#{ids.MOTIFS_LINE}")).to_contain_text("induction")
    says = "ind: induction, 0.90. It attends to what followed an earlier occurrence of the query's token."
    motifs = {"badges": {"0.1": "ind"}, "says": {"0.1": says}, "scores": {}}
    page.evaluate("([id, data]) => dash_clientside.set_props(id, {data})", [ids.MOTIFS, motifs])
    cell = page.locator("#heads-grid-cells .cell[data-motif='ind']")
    tip = page.locator("#tip")
    cell.hover()
    expect(tip).to_have_text(says)
    expect(cell).to_have_accessible_description(says)
    choose(page, page.keyboard.press, "Escape")
    expect(tip).to_be_hidden()
    page.locator("#heads-grid-cells .cell").first.focus()
    choose(page, page.keyboard.press, "ArrowRight")
    expect(tip).to_have_text(says)


def test_maximise_and_export(open_page):
    page = open_page(heads(head=(1, 0)))
    drawn(page, "Head 1.0")
    choose(page, page.click, "#heads-map-maximise")
    page.wait_for_function("() => document.getElementById('heads-map').getBoundingClientRect().width === innerWidth")
    choose(page, page.keyboard.press, "Escape")
    page.wait_for_function("() => document.getElementById('heads-map').getBoundingClientRect().width < innerWidth")
    starts = {"csv": b'"query","query_token"', "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}
    for kind, start in starts.items():
        choose(page, page.click, "#heads-map-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#{shell.export(ids.MAP, kind)}")
        with open(download.value.path(), "rb") as file:
            content = file.read()
        assert content.startswith(start), (kind, content[:40])
        assert download.value.suggested_filename.endswith("." + kind)
        if kind == "png":
            assert struct.unpack(">II", content[16:24]) >= (900, 800)


def test_the_picture_of_all_heads_is_fit_for_a_paper(open_page):
    page = open_page(heads(head=(1, 0)))
    drawn(page, "Head 1.0")
    for kind, start in {"png": b"\x89PNG", "svg": b"<svg"}.items():
        choose(page, page.click, "#heads-grid-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#{shell.export(ids.GRID, kind)}")
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(start), content[:40]
        assert re.fullmatch(
            rf"aotlens-tiny-mhsa-attention-of-every-head-\d+-tokens\.{kind}", download.value.suggested_filename
        )
        if kind == "png":  # three times the figure's own size, which has 118 pixels a head
            width, height = struct.unpack(">II", content[16:24])
            assert width >= 3 * 3 * 118 and height >= 3 * 2 * 118
        else:
            said = re.sub(r"<[^>]+>", " ", content.decode())
            for text in ("tiny-mhsa: attention of every head", "layer", "head", "1.2", "part of the head's"):
                assert text in said, text
