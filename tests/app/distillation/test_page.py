"""Distillation: which results are shown, what is said of those that are not, and a new one that is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from aotlens.distill import load_record, text_errors
from aotlens.views import View
from aotlens.views.distillation import COSTS, CURVE, FAMILY, HEADS, NEW, ON_TEXT, ORIGIN, TABLE
from app.core.errors import RequestError
from app.core.settings import Settings
from app.factory import create_app
from app.pages.distillation import PAGE, strip, table
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import TEXT, choose, save_tiny, settled, written
from tests.app.declared_pages import addresses
from tests.messages import refused, says
from tests.stored_results import store_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

BOTH = ["tiny-mhsa", "tiny-mssa"]
SHORT = "The captain bowed to the captain."
ORDER = {"checkpoint": "tiny-mssa", "corpus": "book.txt", "heads": "1.1, 0.0", "seeds": 1, "tokens": 1000,
         "hidden": [4, 0], "replaced": 500}  # fmt: skip


def params_of(service: Views, **shown: Any) -> Any:
    return service.values({"results": BOTH, "width": 4, **shown})


def result_of(service: Views, view: View, params: Any) -> Any:
    return service.workshop.result(view, params)


def test_without_a_text_the_other_panels_are_there(distilled: Views):
    params = distilled.of_address(PAGE.address.parse("?text="))
    assert HEADS.missing(params) is None and HEADS.python(params)
    says(ON_TEXT.missing(params) or "", "Write a text")


def test_what_cannot_be_shown_is_said(distilled: Views):
    params = params_of(distilled, results=["bad", "tiny-mssa", "nobody"])
    assert list(params.records) == ["tiny-mssa"] and params.results == ("bad", "tiny-mssa")
    caption = HEADS.caption(params, result_of(distilled, HEADS, params))
    says(caption, "bad cannot be read", "bad.safetensors")
    assert "/" not in caption.partition("read. ")[2], "where a file lies is nobody's business"
    state, (sentence,) = PAGE.address.read("?checkpoint=tiny-mhsa&results=tiny-mssa,nobody", distilled.core)
    assert state.results == ("tiny-mssa",)
    says(sentence, "nobody", "one of tiny-mhsa, tiny-mssa, bad")
    params = params_of(distilled, width=2)
    assert list(params.records) == ["tiny-mssa"]
    says(TABLE.caption(params, result_of(distilled, TABLE, params)), "tiny-mhsa has no FFNs of 2", "only of 0, 4")
    params = params_of(distilled, width=None, of="nobody", head=[9, 9])
    assert (params.units, params.name) == (4, "tiny-mhsa")
    assert params.inspected == params.records["tiny-mhsa"].distillation.order(4)[0], "the most FFN-like"
    for view, shown, parts in [(HEADS, {"results": ["bad"]}, "bad cannot be read"),
                               (COSTS, {"results": ["tiny-mssa"]}, "Nothing was replaced"),
                               (CURVE, {"width": 0, "results": ["tiny-mhsa"]}, "solved for, not trained")]:  # fmt: skip
        with refused(parts, error=RequestError):
            result_of(distilled, view, params_of(distilled, **shown))


def test_files_of_one_name_are_told_apart(distilled: Views, tmp_path: Path):
    files = []
    for corpus in ("first", "second"):
        (tmp_path / corpus).mkdir()
        files.append(tmp_path / corpus / "mine.safetensors")
        replace(params_of(distilled).records["tiny-mhsa"], corpus=corpus).save(files[-1])
    params = params_of(distilled, results=["mine"])
    service = Views(
        replace(distilled.core, settings=replace(distilled.core.settings, distillations=tuple(files))), FAMILY
    )
    params = params_of(service, results=["mine", "mine-2"])
    origin = ORIGIN.frame(result_of(service, ORIGIN, params))
    assert dict(zip(origin.result, origin.corpus, strict=True)) == {"mine": "first", "mine-2": "second"}
    says(HEADS.python(params), "load_record('mine-2.safetensors')")
    assert str(tmp_path) not in HEADS.python(params)
    replace(params.records["mine"], corpus="third").save(files[0])
    params = params_of(service, results=["mine"])
    assert ORIGIN.frame(result_of(service, ORIGIN, params)).corpus[0] == "third", (
        "a file that has changed is read again"
    )


def test_heads_are_listed_and_a_text_is_coloured_by_the_errors(distilled: Views):
    params = params_of(distilled, of="tiny-mssa", head=[1, 1], text=SHORT)
    found = params.records["tiny-mssa"].distillation
    (listed,) = table(params, result_of(distilled, TABLE, params))
    rows = {(row[1], row[0]["text"]): row for row in listed["rows"]}
    assert len(rows) == 12 and rows["tiny-mssa", "1.1"][3] == f"{found.mean_error(4)[found.place((1, 1))]:.3f}"
    assert rows["tiny-mssa", "1.1"][0]["pick"] == {"of": "tiny-mssa", "head": (1, 1)}
    cost = [column["title"] for column in listed["columns"]].index("cost: zero")
    assert rows["tiny-mssa", "1.1"][cost] == "–" != rows["tiny-mhsa", "1.1"][cost], "where none was measured"
    result = result_of(distilled, ON_TEXT, params)
    expected = text_errors(
        distilled.core.catalog.load("tiny-mssa").model, found, torch.tensor(result.tokens), (1, 1), width=4
    )
    np.testing.assert_allclose(result.relative, expected.relative, rtol=1e-6)
    chips = strip(params, result).children
    heats = [int(chip.style["--heat"].rstrip("%")) for chip in chips]
    assert len(chips) == len(result.tokens) and np.argmax(heats) == np.argmax(result.relative) and max(heats) <= 100
    params = params_of(distilled, results=["tiny-mhsa"], width=0)  # of the linear map nothing but errors was kept
    says(ON_TEXT.caption(params, result_of(distilled, ON_TEXT, params)), "Only FFNs of 4 hidden units were kept")
    with refused("expected 1 to 48 positions", error=RequestError):
        result_of(distilled, ON_TEXT, params_of(distilled, text="captain " * 200))


@pytest.mark.parametrize(
    ("order", "said"),
    [({"corpus": None}, "Choose a text"), ({"heads": "first"}, "a layer and a head"), ({"heads": "7.0"}, "head 7.0")],
)
def test_what_cannot_be_distilled_is_refused(distilled: Views, order: Any, said: str):
    says(NEW.missing(distilled.values({**ORDER, **order})), said)


def test_a_distillation_is_kept_and_not_made_again(distilled: Views, monkeypatch: pytest.MonkeyPatch):
    params = distilled.values(ORDER)
    assert distilled.workshop.waits(NEW, params)
    made = distilled.workshop.told(lambda *_: None).result(NEW, params)
    path = distilled.values({}).paths[params.new]
    record = load_record(path)
    assert record.distillation.heads == made.heads == ((0, 0), (1, 1)) and made.hidden == (0, 4)
    assert record.costs is not None and record.costs.width == 4 and "book.txt" in record.corpus
    assert record.belongs_to(distilled.core.catalog.info("tiny-mssa"))
    monkeypatch.setattr("aotlens.distill.record_distillation", lambda *_, **__: pytest.fail("made again"))
    again = create_app(distilled.core.settings).services["distillation"]
    params = again.values(ORDER)
    assert not again.workshop.waits(NEW, params), "it is a file, and quick to open"
    np.testing.assert_array_equal(result_of(again, NEW, params).squared_error, made.squared_error)
    assert params.limits()["results"].options[params.new] == f"{params.new} (made here)"
    figure = HEADS.figure(params, result_of(again, HEADS, again.values({"results": [params.new]})))
    assert np.isnan(figure.data[0].z[2][0]), "a head that was not distilled"
    path.unlink()


def test_an_app_without_results_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_tiny(tmp_path, "tiny-mhsa")
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
    store_in("distillation", "/nonexistent", monkeypatch)
    service = create_app(Settings(checkpoints=(tmp_path,), device="cpu")).services["distillation"]
    for view in FAMILY.views[:-1]:
        with refused("No distillation is here", "--distillation FILE", error=RequestError):
            result_of(service, view, service.values({"text": SHORT}))


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────────


at = addresses(PAGE, results=BOTH, width=4, checkpoint="tiny-mssa")


def head(page: Page, name: str) -> None:
    """Waits until that head is inspected."""
    expect(page.locator("#distillation-one-title")).to_have_text(f"Head {name}")
    settled(page)


@pytest.mark.visit
def test_a_click_in_a_grid_inspects_a_head(open_page):
    page = open_page(at(), load=True)
    grid = page.locator("#distillation-heads-graph .nsewdrag").nth(1)
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    assert box is not None
    place = {"x": 0.75 * box["width"], "y": box["height"] * 5 / 6}  # 3 layers × 2 heads: head 2.1
    grid.hover(position=place)
    page.locator("#distillation-heads-graph .hovertext").first.wait_for()
    choose(page, grid.click, position=place)
    head(page, "2.1 of tiny-mssa")
    written(page, "of", "tiny-mssa")
    written(page, "head", "2.1")
    choose(page, page.get_by_role("tab", name="On a text").click)
    link = page.locator("#distillation-open-heads")
    expect(link).to_have_attribute("href", "/heads?checkpoint=tiny-mssa&text=The+captain+bowed+to+the+captain%2C+and+"
                                           "the+captain+of+a+ship+danced.&head=2.1")  # fmt: skip
    choose(page, page.get_by_role("tab", name="One head").click)
    # Of the other model, which has no head 2.1, the most FFN-like head; the address no longer says 2.1.
    choose(page, page.click, "#distillation-field-of")
    choose(page, page.get_by_role("option", name="tiny-mhsa").click)
    written(page, "head", None)


def test_a_checkpoint_is_distilled_and_chosen(open_page, distilled: Views):
    page = open_page(at(beside="new", results=["tiny-mhsa"], **ORDER), load=True)
    caption = page.locator("#distillation-new-caption")
    expect(caption).to_contain_text("Not computed yet")
    choose(page, page.click, "#distillation-new-start")
    page.locator("#distillation-new-graph .heatmaplayer image").wait_for()
    name = distilled.values(ORDER).new
    expect(caption).to_contain_text(f"Kept as {name}")
    choose(page, page.click, "#distillation-field-results")
    choose(page, page.get_by_role("option", name=f"{name} (made here)").click)
    written(page, "results", f"tiny-mhsa,{name}")
    expect(page.locator("#distillation-heads-graph .heatmaplayer image")).to_have_count(2)
    distilled.values({}).paths[name].unlink()


def test_an_old_selection_is_whole_without_the_results_of_before(distilled_app: App):
    """An app's first results are listed in the control, though no address names them."""
    control = str(PAGE.layout(distilled_app.core, distilled_app.services["distillation"], PAGE.address.parse(None)))
    assert "value=['tiny-mhsa']" in control and TEXT not in control
