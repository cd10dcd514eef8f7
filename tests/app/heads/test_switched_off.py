"""The Heads page with heads switched off: continuations and files against the library, and what a browser shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.conventions import minus
from app.core import Core
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.core.settings import Settings
from app.core.switches import How
from app.core.workshop import AppWorkshop
from app.factory import create_app
from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.heads.callbacks import how_options
from app.pages.heads.continuations import Continuations, Draws, draws_of
from app.pages.heads.continuing import continued_json
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.service import Heads
from app.shell import ids as shell
from app.shell.views import record, table
from tests.app.conftest import TEXT as PARAGRAPH
from tests.app.conftest import choose, head_drawn, in_the_first_screen, opened, query, serve, settled, wait, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed."
OFF = ((0, 1), (1, 2))
DRAWS = Draws(new=8, temperature=0.9, top_k=20, seed=3, stop=None)


@pytest.fixture(scope="module")
def core(settings: Settings, services: Core, tmp_path_factory: pytest.TempPathFactory) -> Core:
    """With a corpus, whose windows stand in for heads."""
    book = tmp_path_factory.mktemp("corpus") / "book.txt"
    book.write_text(PARAGRAPH * 40, encoding="utf-8")
    return Core.start(Settings(checkpoints=settings.checkpoints, device="cpu", corpora=(f"file:{book}",)))


def result_of(core: Core, how: How = "zero", off: Any = OFF) -> PromptResult:
    return core.inference.analyse("tiny-mhsa", SHORT, off=off, how=how, corpus="book.txt")


# ── continuations ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_both_texts_are_the_librarys(core: Core, how: How):
    from aotlens.data import Encoding, open_corpus, spread_windows
    from aotlens.heads import without
    from aotlens.heads.replacement import reference_length

    model, service, result = core.catalog.load("tiny-mhsa").model, Continuations(core), result_of(core, how)
    job = wait(service.start(result, DRAWS, "me"))
    assert job.state == "done" and (job.done, job.total) == (8, 8)
    made = service.so_far(job)
    assert made is not None and not made.fills
    drawn = {"temperature": 0.9, "top_k": 20, "seed": 3}
    assert service.text(made, 0) == model.generate(SHORT, 8, **drawn)
    corpus, encoding = open_corpus(core.settings.corpora[0]), Encoding.of(model.tokenizer)
    length = reference_length(how, result.patterns.n_pos, 8)
    windows = spread_windows(corpus, corpus.names(), encoding, 32, length)
    with without(model, OFF, how, reference=windows):
        assert service.text(made, 1) == model.generate(SHORT, 8, **drawn)
    assert made.runs[0] != made.runs[1]
    content = json.loads(continued_json(service, made).content)
    assert content["off"] == ["0.1", "1.2"] and content["without"]["tokens"] == made.runs[1]
    pieces = service.pieces(made, 1)
    assert [is_new for _, is_new in pieces] == [False, True] and pieces[0][0] == SHORT


def test_the_head_after_the_last_is_none(core: Core):
    cfg = core.catalog.load("tiny-mhsa").model.cfg
    for layer, head in ((0, cfg.n_heads), (cfg.n_layers, 0)):
        with pytest.raises(RequestError, match=f"no head {layer}.{head} .*heads 0 to {cfg.n_heads - 1}"):
            result_of(core, off=((layer, head),))


def test_a_continuation_is_made_once_and_ends_at_its_stop_token(core: Core):
    service = Continuations(core)
    job = wait(service.start(result_of(core, off=()), DRAWS, "me"))
    assert service.start(result_of(core, off=()), DRAWS, "me") is job
    made = service.so_far(job)
    assert made is not None and len(made.runs) == 1
    names = core.catalog.load("tiny-mhsa").model.tokenizer.str_tokens(made.runs[0])
    n_pos = len(made.prompt)
    place = next((place for place in range(n_pos, len(names)) if names[place].strip().isalpha()), None)
    assert place is not None, names[n_pos:]
    stopping = Draws(**{**vars(DRAWS), "stop": names[place]})
    stopped = service.so_far(wait(service.start(result_of(core, off=()), stopping, "me")))
    assert stopped is not None and stopped.runs[0] == made.runs[0][: n_pos + names[n_pos:].index(names[place]) + 1]


def test_what_is_too_long_is_said(core: Core):
    job = wait(Continuations(core).start(result_of(core), Draws(**{**vars(DRAWS), "new": 99}), "me"))
    assert job.state == "failed" and "exceed the context of 48" in job.error


def test_an_empty_box_has_its_first_value():
    assert draws_of("", "", None, "", "") == Draws(new=40, temperature=0.8, top_k=40, seed=0, stop=None)
    assert draws_of(999, 99, 0, 5, ".") == Draws(new=400, temperature=10.0, top_k=1, seed=5, stop=".")


# ── files and words ─────────────────────────────────────────────────────────────────────────────────────────


def test_files_say_what_ran(core: Core):
    service = Heads(core)
    prompt = {"prompt": {"checkpoint": "tiny-mhsa", "text": SHORT}}
    whole, lesser = service.values(prompt), service.values(prompt, off=OFF, head=(0, 0))
    losses = [core.inference.losses(result_of(core, off=off)) for off in ((), OFF)]
    view = VIEWS[ids.LOSSES]
    content = json.loads(record(service.workshop, view, lesser).content)
    assert content["ablated"] == [[0, 1], [1, 2]] and content["how"] == "zero"
    assert content["rows"][0]["left"] is None
    np.testing.assert_allclose([row["right"] for row in content["rows"][1:]], losses[1][1:], rtol=1e-6)
    assert table(service.workshop, view, lesser).name == "tiny-mhsa-without-0.1-1.2-zero-losses.csv"
    assert table(service.workshop, view, whole).content.startswith(b'"position","token","loss"')
    named = table(service.workshop, VIEWS[ids.MAP_OFF], lesser).name
    assert named.startswith("tiny-mhsa-without-0.1-1.2-zero-head-0.0")
    said = view.caption(lesser, service.workshop.result(view, lesser))
    assert f"a change of {minus(np.nanmean(losses[1] - losses[0]), '+.3f')}" in said
    for panel in (ids.MAP_OFF, ids.NEXT_OFF):
        with pytest.raises(RequestError, match="No heads are ablated"):
            table(service.workshop, VIEWS[panel], whole)


@pytest.mark.parametrize("how", ["zero", "position_mean", "resample"])
def test_the_apps_runs_are_the_librarys(core: Core, how: How, monkeypatch: pytest.MonkeyPatch):
    """The page takes runs from the app's own, whose ablations are ready for any head (app/core/runs.py)."""
    monkeypatch.chdir(Path(core.settings.corpora[0].removeprefix("file:")).parent)  # a corpus' folder is not printed
    service = Heads(core)
    asked = {"prompt": {"checkpoint": "tiny-mhsa", "text": SHORT}, "off": OFF, "how": how, "corpus": "book.txt"}
    chosen = service.values(asked, head=(1, 0), view="weighted")
    plain = AppWorkshop(core, 8)
    for panel in (ids.MAP, ids.MAP_OFF, ids.NEXT, ids.NEXT_OFF, ids.LOSSES):
        here, there = (workshop.result(VIEWS[panel], chosen) for workshop in (service.workshop, plain))
        pd.testing.assert_frame_equal(VIEWS[panel].frame(here), VIEWS[panel].frame(there), rtol=1e-5, atol=1e-6)


def test_ways_that_read_other_texts_need_a_corpus():
    assert [one["value"] for one in how_options(None) if one["disabled"]] == [
        "mean", "position_mean", "fixed_pattern", "resample",
    ]  # fmt: skip
    assert all("needs a corpus" in one["label"] for one in how_options(None) if one["disabled"])
    assert not any(one["disabled"] for one in how_options("book.txt"))


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def address(core: Core) -> Iterator[str]:
    with serve(create_app(core.settings, core)) as address:
        yield address


def heads(**state: Any) -> str:
    return HEADS.format(HeadsState(**{"checkpoint": "tiny-mhsa", "text": SHORT, **state}))


def switch(page: Page, layer: int, head: int) -> None:
    choose(page, page.click, f'#heads-grid-cells .head-switch[data-layer="{layer}"][data-head="{head}"]')


def test_heads_are_switched_off_in_the_grid(open_page, core: Core):
    page = open_page(heads(head=(1, 0)))
    head_drawn(page, "Head 1.0")
    pixels = "() => document.querySelector('#heads-grid-cells .cell[data-layer=\"1\"] canvas').toDataURL()"
    before = page.evaluate(pixels)
    expect(page.locator(f"#{ids.MAP_OFF}")).to_be_hidden()
    switch(page, 1, 2)
    switch(page, 0, 1)
    written(page, "off", "0.1,1.2")
    expect(page.locator(f"#{shell.title(ids.MAP_OFF)}")).to_have_text("1.0 under ablation")
    expect(page.locator(f"#{ids.OFF_LINE}")).to_contain_text("Ablated: 0.1, 1.2")
    page.wait_for_function(f"before => ({pixels})() !== before", arg=before)
    page.wait_for_selector("#heads-map-off-canvas[data-head='1.0']")
    expect(page.locator(f"#{shell.caption(ids.MAP_OFF)}")).to_contain_text("0.1, 1.2 ablated by zero")
    in_the_first_screen(page, ids.MAP_OFF)

    opened(page, "Loss")
    whole, lesser = (core.inference.losses(result_of(core, off=off)) for off in ((), OFF))
    shown = page.eval_on_selector_all(
        "#heads-losses-change .chip", "all => all.map(c => c.dataset.value?.replace('−', '-') ?? null)"
    )
    assert shown[0] is None
    np.testing.assert_allclose([float(value) for value in shown[1:]], (lesser - whole)[1:], atol=0.0051)
    expect(page.locator(f"#{ids.LOSSES_CHANGE_HEADING}")).to_contain_text(f"mean {np.nanmean(lesser):.3f} nats")
    choose(page, page.locator("#heads-losses-change .chip").nth(2).click)
    page.wait_for_selector("#heads-strip .chip-locked[data-position='2']")

    opened(page, "Predicted token")
    found = result_of(core).logits[2].max()
    expect(page.locator(f"#{ids.NEXT_OFF} tbody tr").first).to_contain_text(f"{found:.2f}")

    # Who leaves the page and comes back to the same view finds it filled: its stores are new ones.
    page.evaluate("history.pushState({}, '', '/checkpoints'); dispatchEvent(new PopStateEvent('popstate'))")
    page.wait_for_selector("#checkpoints-catalog")
    page.go_back()
    opened(page, "Predicted token")
    expect(page.locator(f"#{ids.NEXT_OFF} tbody tr").first).to_contain_text(f"{found:.2f}")
    page.wait_for_selector("#heads-strip .chip-locked[data-position='2']")

    assert "/atlas?checkpoint=tiny-mhsa&head=1.0&tab=head" in str(page.get_attribute(f"#{ids.OPEN_ATLAS}", "href"))
    beside = str(page.get_attribute(f"#{ids.OPEN_COMPARE}", "href"))
    assert beside.startswith("/compare?left=tiny-mhsa&") and "&right-off=0.1%2C1.2&head=1.0" in beside

    # The address leads there again; and one click ends it.
    written(page, "position", "2")
    again = open_page(urlsplit(page.url).path + "?" + urlsplit(page.url).query, load=True)
    expect(again.locator(f"#{shell.caption(ids.NEXT_OFF)}")).to_contain_text("0.1, 1.2 ablated by zero")
    choose(page, again.click, f"#{ids.ALL_ON}")
    written(again, "off", None)
    expect(again.locator(f"#{ids.NEXT_OFF}")).to_be_hidden()


def test_means_come_from_a_corpus(open_page, core: Core):
    page = open_page(heads(off=OFF, tab="loss"))
    page.locator("#heads-losses-change .chip").first.wait_for()
    choose(page, page.click, f"#{ids.HOW}")
    expect(page.get_by_role("option", name="mean pattern (needs a corpus)")).to_have_attribute(
        "data-combobox-disabled", "true"
    )
    choose(page, page.keyboard.press, "Escape")
    choose(page, page.click, f"#{ids.CORPUS}")
    choose(page, page.get_by_role("option", name="book.txt").click)
    written(page, "corpus", "book.txt")
    settled(page)
    choose(page, page.click, f"#{ids.HOW}")
    choose(page, page.get_by_role("option", name="mean pattern").click)
    lesser = core.inference.losses(result_of(core, "fixed_pattern"))
    expect(page.locator(f"#{ids.LOSSES_CHANGE_HEADING}")).to_contain_text(f"mean {np.nanmean(lesser):.3f} nats")
    assert query(page)["how"] == "fixed_pattern"


def test_the_text_goes_on_with_and_without(open_page, core: Core):
    page = open_page(heads(off=OFF, tab="continue", new=6, temperature=0.0))
    page.locator("#heads-strip .chip").first.wait_for()
    settled(page)
    choose(page, page.click, f"#{shell.start(ids.CONTINUE)}")
    texts = page.locator(f"#{shell.body(ids.CONTINUE)} .continued-text")
    expect(texts).to_have_count(2)
    model = core.catalog.load("tiny-mhsa").model
    n_new = len(str(model.generate(SHORT, 6, temperature=0))) - len(SHORT)
    page.wait_for_function("n => document.querySelector('.continued-text mark')?.textContent.length === n", arg=n_new)
    assert texts.first.text_content() == model.generate(SHORT, 6, temperature=0)
    expect(page.locator(f"#{shell.body(ids.CONTINUE)}")).to_contain_text("0.1, 1.2 ablated")


def test_checkpoints_differ_in_heads(open_page):
    """What the other checkpoint does not have is on again."""
    page = open_page(heads(off=((0, 1), (0, 2))))
    head_drawn(page, "Head 0.0")
    choose(page, page.click, f"#{ids.CHECKPOINT}")
    choose(page, page.get_by_role("option", name="tiny-mssa").click)
    written(page, "off", "0.1")
    written(page, "checkpoint", "tiny-mssa")
