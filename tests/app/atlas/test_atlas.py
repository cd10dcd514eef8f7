"""The Atlas page: what it lists and says is the library's; heads open their summaries; the path lands where it says."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.checkpoints.catalog import bundled_folder  # the fixtures' own patch comes after this import
from aotlens.heads import atlas, head_summary, stored_atlas
from aotlens.plots import glyphs
from aotlens.views.atlas import HOWS, N_ABLATED
from app.core import Core
from app.core.address import parse_query
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.settings import Settings
from app.factory import create_app
from app.pages.atlas import captions, summary
from app.pages.atlas.address import ADDRESS, AtlasState
from app.pages.atlas.callbacks import order_of
from app.pages.atlas.ids import GUIDED, VIEWS, ids
from app.pages.atlas.service import Atlases, AtlasResult
from app.pages.atlas.service_path import steps
from app.shell import ids as shell
from app.shell.app import App
from app.shell.views import tables
from tests.app.atlas.numbers import CHECKPOINT
from tests.app.conftest import (
    TEXT,
    choose,
    fits,
    in_the_first_screen,
    opened,
    query,
    save_tiny,
    serve,
    settled,
    wait,
    written,
)
from tests.messages import refused

if TYPE_CHECKING:
    from playwright.sync_api import Page

STORED = stored_atlas(CHECKPOINT).atlas


@pytest.fixture(scope="module")
def own_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The bundled checkpoint that the path is about, and a tiny one without an atlas."""
    folder = tmp_path_factory.mktemp("two")
    shutil.copytree(bundled_folder() / CHECKPOINT, folder / CHECKPOINT)
    save_tiny(folder, "tiny-mhsa")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield create_app(Settings(checkpoints=(folder,), device="cpu"))


@pytest.fixture(scope="module")
def address(own_app: App) -> Iterator[str]:
    with serve(own_app) as address:
        yield address


@pytest.fixture(scope="module")
def service(own_app: App) -> Atlases:
    return own_app.services["atlas"]


@pytest.fixture(scope="module")
def made(service: Atlases) -> AtlasResult:
    found = service.stored(CHECKPOINT)
    assert found is not None
    return found


def test_the_stored_atlas_is_shown_of_its_own_weights_only(service: Atlases, made: AtlasResult, tmp_path: Path) -> None:
    assert service.choose(None, None, None) == {
        "checkpoint": None, "corpus": None, "key": None, "name": CHECKPOINT, "layers": 2, "heads": 4,
    }  # fmt: skip
    pd.testing.assert_frame_equal(made.atlas.to_frame().drop(columns="ffn_error"), STORED.to_frame())
    assert "65,536 tokens (stored)" in captions.shown(made)[1]
    assert service.choose("tiny-mhsa", None, None) is None
    save_tiny(tmp_path, CHECKPOINT)
    assert Atlases(Core.start(Settings(checkpoints=(tmp_path,)))).stored(CHECKPOINT) is None


def test_an_atlas_on_ones_own_text_is_the_librarys(own_app: App, service: Atlases) -> None:
    order = order_of(service, "tiny-mhsa", PASTED, 30 * TEXT, "16384")
    job = wait(service.start(order, session="me"))
    assert job.state == "done", job.error
    choice = service.choose("tiny-mhsa", None, job.key)
    own = service.shown(choice)
    assert own is not None and choice is not None and own.corpus == choice["corpus"] == order.corpus
    model = own_app.core.catalog.load("tiny-mhsa").model
    expected = atlas(
        model, own_app.core.corpora.own.corpus(own_app.core.corpora.own.get(order.corpus)), n_tokens=16384, hows=HOWS,
        n_ablated=N_ABLATED, cache=None,
    )  # fmt: skip
    pd.testing.assert_frame_equal(own.atlas.to_frame(), expected.to_frame())
    # The address names the text: after a reload it is found, of its own checkpoint only.
    assert service.shown(service.choose("tiny-mhsa", order.corpus, None)) is own
    assert service.shown(service.choose(CHECKPOINT, order.corpus, job.key)) is service.stored(CHECKPOINT)
    with pytest.raises(RequestError, match="There is no text to read"):
        order_of(service, "tiny-mhsa", PASTED, " ", None)
    with pytest.raises(RequestError, match="no atlas of tiny-mhsa yet"):
        service.of_address(AtlasState(checkpoint="tiny-mhsa"))


def test_what_the_page_shows_is_of_its_atlas_and_a_picked_head(service: Atlases) -> None:
    shown = {**service.choose(None, None, None), "layer": 0, "head": 0, "picked": False}
    chosen = service.values(shown, "induktion > 1", "copying", "entropy", "4")
    assert (chosen.where, chosen.readable, chosen.head, chosen.bin) == ("induktion > 1", "", None, 4)
    assert service.values({**shown, "layer": 1, "picked": True}, "layer = 1").head == (1, 0)
    saved = tables(service.workshop, VIEWS, service.values)[shell.export(ids.TABLE, "csv")](
        shown, where="induction_random > 0.4"
    )
    frame = pd.read_csv(io.BytesIO(saved.content), keep_default_na=False)
    assert list(frame["head"]) == [0, 1, 3] and set(STORED.to_frame()) <= set(frame)
    with pytest.raises(RequestError, match="no longer in memory"):
        service.values({**shown, "key": "gone"})


def test_passages_mark_where_a_head_attends(own_app: App, service: Atlases) -> None:
    core = own_app.core
    tokenizer = core.catalog.load(CHECKPOINT).model.tokenizer
    assert tokenizer is not None
    one = head_summary(STORED, "1.3", 9)
    answer = summary.passages(core, service.of_address(AtlasState(head=(1, 3), bin=9)), one)
    assert answer["bin"] == "9" and [bin["disabled"] for bin in answer["bins"]] == [n == 0 for n in one.counts]
    for line, example in zip(answer["body"], one.examples, strict=True):
        pieces = line.children[1].children
        strings = tokenizer.str_tokens(STORED.examples.tokens[example.sequence].tolist())
        (at,) = [piece for piece in pieces if "piece-query" in piece.className]
        assert at.children[0] == glyphs(strings[example.query])
        weights = dict(zip(example.keys, example.weights, strict=True))
        keys = sorted(key for key, weight in weights.items() if weight >= 0.05 and key != example.query)
        marked = [(piece.children[0], piece.children[1].children) for piece in pieces if "piece-key" in piece.className]
        assert marked == [(glyphs(strings[key]), f"{weights[key]:.2f}".removeprefix("0")) for key in keys]
        for link in line.children[2:]:
            asked = parse_query(link.href.partition("?")[2])
            _, ids_read = core.inference.tokens(CHECKPOINT, asked["text"])
            assert ids_read[int(asked["position"])] == STORED.examples.tokens[example.sequence, example.query]


def test_the_path_has_six_steps_whose_addresses_are_there(own_app: App, service: Atlases) -> None:
    made = service.stored(CHECKPOINT)
    assert made is not None
    circuit = service.workshop.result(GUIDED[ids.VERDICT], made.chosen)
    walked = steps(service, made, circuit)
    assert len(walked) == 6 and circuit.heads == ((1, 0), (1, 1), (1, 3))
    pages = {page.path: page for page in own_app.pages}
    for step in walked:
        for _, href in step.links:
            path, _, search = href.partition("?")
            state, wrong = pages[path].address.read(search, own_app.core)
            assert wrong == [] and state.checkpoint == CHECKPOINT
    scatter = ADDRESS.parse(walked[0].links[0][1].partition("?")[2])
    assert STORED.where(scatter.where) == circuit.heads
    off = parse_query(walked[5].links[0][1].partition("?")[2])
    assert (off["off"], off["tab"]) == ("1.0,1.1,1.3", "loss")
    said = " ".join(step.means for step in walked)
    for number in (circuit.induction.max(), STORED.motifs["previous_token"][0, 3], circuit.without_heads.change):
        assert f"{number:.2f}" in said
    assert f"{circuit.matching[int(circuit.induction.argmax())]:.1%}" in said


def test_the_path_is_that_of_the_model_that_is_shown_or_says_why_there_is_none(own_app: App) -> None:
    service = Atlases(own_app.core)
    order = order_of(service, "tiny-mhsa", PASTED, 30 * TEXT, "16384")
    job = wait(service.start(order))
    shown = service.choose("tiny-mhsa", order.corpus, job.key)
    chosen = service.needed(shown).chosen
    assert chosen.checkpoint == "tiny-mhsa" and service.made_of(chosen).corpus == order.corpus
    with refused("no head of", "induction score", error=RequestError):
        service.workshop.result(GUIDED[ids.VERDICT], chosen)
    with refused("no longer in memory", error=RequestError):
        service.made_of(replace(chosen, stamp=7))


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────


def names(page: Page) -> Any:
    return page.locator(f"#{shell.table(ids.TABLE)} .ag-pinned-left-cols-container .ag-cell")


@pytest.mark.visit
def test_it_opens_on_the_stored_atlas_and_a_click_opens_a_summary(open_page) -> None:
    page = open_page("/atlas", load=True)
    expect(names(page)).to_have_text([f"{layer}.{head}" for layer in (0, 1) for head in range(4)])
    in_the_first_screen(page, ids.TABLE)
    in_the_first_screen(page, ids.SCATTER)
    search = page.get_by_label("Heads where")
    choose(page, search.fill, "induction_random > 0.4")
    expect(names(page)).to_have_text(["1.0", "1.1", "1.3"])
    written(page, "where", "induction_random > 0.4")
    choose(page, search.fill, "induktion > 0.4")
    expect(page.locator(f"#{shell.notice(ids.TABLE)}")).to_contain_text("Did you mean induction")
    choose(page, search.fill, "previous token")
    expect(names(page)).to_have_text(["0.3"])
    choose(page, names(page).first.click)
    expect(page.locator(f"#{shell.title(ids.SUMMARY)}")).to_have_text(f"Head 0.3 of {CHECKPOINT}")
    expect(page.locator(f"#{shell.body(ids.SUMMARY)}")).to_have_text(STORED.sentence("0.3"))
    settled(page)
    assert query(page)["head"] == "0.3" and query(page)["tab"] == "head" and query(page)["where"] == "previous token"


def test_a_summary_by_its_address_leads_to_partners_and_other_pages(open_page) -> None:
    page = open_page(ADDRESS.format(AtlasState(head=(1, 3), bin=4, tab="head")), scheme="dark")
    expect(page.locator(f"#{shell.body(ids.EXAMPLES)} .atlas-example")).to_have_count(len(STORED.examples.of("1.3", 4)))
    expect(page.locator(f"#{shell.body(ids.LOSSES)}")).to_contain_text(
        captions.signed(float(STORED.ablations["position_mean"].changes[STORED.heads.index((1, 3))]))
    )
    expect(page.locator(f"#{shell.body(ids.WEIGHTS)}")).to_contain_text("keys through 0.3")
    expect(page.locator(f"#{ids.OPEN_CIRCUITS}")).to_have_attribute(
        "href", "/circuits?checkpoint=novels-2l-mhsa&head=1.3"
    )
    choose(page, page.locator(f"#{shell.body(ids.PARTNERS)} .atlas-go", has_text="0.3").click)
    expect(page.locator(f"#{shell.title(ids.SUMMARY)}")).to_contain_text("Head 0.3")
    written(page, "head", "0.3")
    page.set_viewport_size({"width": 800, "height": 900})
    fits(page)


def test_shapley_values_are_started_and_listed_beside_the_loss_without_a_head(open_page, service: Atlases) -> None:
    order = order_of(service, "tiny-mhsa", PASTED, 30 * TEXT, "16384")
    job = wait(service.start(order))
    page = open_page(f"/atlas?checkpoint=tiny-mhsa&corpus={order.corpus}")
    panel, caption = page.locator(f"#{ids.SHAPLEY}"), page.locator(f"#{shell.caption(ids.SHAPLEY)}")
    expect(caption).to_contain_text("Not computed yet")
    choose(page, page.click, f"#{shell.start(ids.SHAPLEY)}")
    expect(caption).to_contain_text("means at each position; all orders", timeout=120_000)
    made = service.done(job.key)
    assert made is not None
    changes = made.atlas.ablations["position_mean"].changes
    for place, change in enumerate(changes):
        cell = panel.locator(f".ag-center-cols-container [row-index='{place}'] [col-id=loss_position_mean]")
        expect(cell).to_have_text(f"{change:+.3f}".replace("-", "−"))
    expect(panel.locator(".scatterlayer .trace")).to_have_count(3)
    choose(page, page.click, f"#{ids.SHAPLEY}-export")
    with page.expect_download() as download:
        choose(page, page.click, f"#{shell.export(ids.SHAPLEY, 'csv')}")
    frame = pd.read_csv(download.value.path())
    assert frame.shapley.sum() == pytest.approx(-made.atlas.together["position_mean"].change, abs=1e-5)


def test_the_path_ends_in_a_verdict_and_its_steps_open(open_page, service: Atlases) -> None:
    verdict = service.workshop.result(GUIDED[ids.VERDICT], service.of_address(AtlasState())).verdict
    page = open_page("/atlas")
    opened(page, "Guided path")
    expect(page.locator(f"#{ids.PATH} li")).to_have_count(6)
    expect(page.locator(f"#{ids.VERDICT}")).to_contain_text(verdict)
    expect(page.locator(f"#{ids.VERDICT} .met")).to_have_count(5)
    choose(page, page.get_by_role("link", name="Open the scatter").click)
    expect(names(page)).to_have_text(["1.0", "1.1", "1.3"])


def test_a_checkpoint_without_an_atlas_says_how_one_is_made(open_page) -> None:
    page = open_page("/atlas?checkpoint=tiny-mhsa&x=nonsense", width=800)
    expect(page.locator(f"#{shell.body(ids.FORM)}")).to_contain_text("There is no atlas of tiny-mhsa yet")
    fits(page)
