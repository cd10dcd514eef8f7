"""Figures that move through steps; texts that are pasted, uploaded and deleted; in Chromium, on Subspaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aotlens.denoise import token_points
from aotlens.views.subspaces import AUDIT, MIXTURE, SNR, by_layer
from app.pages.subspaces import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import TEXT, choose, in_the_first_screen, query, settled, written
from tests.app.declared_pages import addresses, asked
from tests.app.test_accessibility import OPTIONS, answered, faults

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIGURES = ("tokens", "snr", "memberships")
at = addresses(PAGE)


@pytest.fixture(scope="module")
def service(app: App) -> Views:
    return app.services["subspaces"]


def at_layer(page: Page, layer: int) -> None:
    """Waits until all figures are at that layer, and nothing is under way."""
    for name in FIGURES:
        page.locator(f"#subspaces-{name}[data-frame='{layer}']").wait_for()
    settled(page)


def drawn_x(page: Page, name: str, trace: int) -> list[float]:
    """Coordinates that a trace has now."""
    return page.evaluate(
        "([graph, trace]) => [...document.querySelector(`#${graph} .js-plotly-plot`)._fullData[trace].x]",
        [f"subspaces-{name}-graph", trace],
    )


def caption_of(service: Views, **state: Any) -> str:
    params = service.values(state)
    return MIXTURE.caption(params, service.workshop.result(MIXTURE, params))


@pytest.mark.visit
def test_the_keyboard_moves_through_the_steps_without_the_server(open_page, service: Views):
    page = open_page(at(layer=2), load=True)
    at_layer(page, 2)
    in_the_first_screen(page, "subspaces-snr")
    unrolling = service.workshop.result(SNR, service.values({}))
    captions = by_layer(unrolling)
    sentence = page.locator("#subspaces-mixture-body > div:visible")
    expect(sentence).to_have_text(captions[2])
    points = token_points(unrolling).coordinates
    assert drawn_x(page, "tokens", 0) == pytest.approx(points[2, :, 0].tolist(), rel=1e-5)
    requests = asked(page)
    page.locator("#subspaces-field-layer [role=slider]").focus()
    for layer in (3, 4):
        choose(page, page.keyboard.press, "ArrowRight")
        at_layer(page, layer)
        expect(sentence).to_have_text(captions[layer])
    assert drawn_x(page, "snr", 4) == [4, 4]
    choose(page, page.keyboard.press, "End")
    at_layer(page, 10)
    written(page, "layer", "10")
    assert requests == []


def test_a_choice_keeps_the_step_that_still_exists(open_page, service: Views):
    page = open_page(at(noise=0.2, layer=10, picture="angles"), load=True)
    at_layer(page, 10)
    requests = asked(page)
    page.locator("#subspaces-field-noise [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "noise", "0.21")
    at_layer(page, 10)
    expect(page.locator("#subspaces-mixture-caption")).to_have_text(caption_of(service, noise=0.21))
    expect(page.locator("#subspaces-field-noise-value")).to_have_text("0.21")
    assert len(requests) == 1, "one request for all panels and the form's limits"
    page.locator("#subspaces-field-layers [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    written(page, "layer", "9")
    at_layer(page, 9)
    choose(page, page.locator("#subspaces-field-head").fill, "3")
    expect(page.locator("#subspaces-memberships-title")).to_have_text("Memberships φ in subspace 3")
    kept = {"checkpoint": "tiny-mhsa", "noise": "0.21", "layers": "9", "layer": "9", "picture": "angles", "head": "3"}
    assert query(page) == kept


def test_what_cannot_be_drawn_is_said_and_put_right(open_page):
    page = open_page(at(rank=30))
    settled(page)
    for name in FIGURES:
        expect(page.locator(f"#subspaces-{name}-caption")).to_contain_text("need d_model of at least 90")
        expect(page.locator(f"#subspaces-{name}-graph")).to_be_hidden()
    choose(page, page.click, "#subspaces-field-bases")
    choose(page, page.get_by_role("option", name="random").click)
    at_layer(page, 0)
    expect(page.locator("#subspaces-mixture-caption")).to_contain_text("not orthogonal")
    expect(page.locator("#subspaces-snr-caption")).to_be_hidden()


# ── texts ───────────────────────────────────────────────────────────────────────────────────────────────────────

_TEXT = "#subspaces-field-corpus"


def audited(page: Page) -> Any:
    return page.locator("#subspaces-audit-caption")


@pytest.fixture
def key(app: App) -> Iterator[str]:
    """The key of TEXT, which is not kept before and after."""
    own = app.core.corpora.own
    yield (key := own.keep_text("a book", TEXT).key)
    if own.get(key) is not None:
        own.delete(key)


def test_a_text_is_pasted_and_read_in_the_background(open_page, service: Views, app: App, key: str):
    app.core.corpora.own.delete(key)
    page = open_page(at(tab="models", checkpoint="tiny-mssa"), load=True)
    expect(audited(page)).to_have_text("No audit of tiny-mssa is stored. Choose a text, and press Run.")
    choose(page, page.click, _TEXT)
    choose(page, page.get_by_role("option", name="pasted text").click)
    choose(page, page.get_by_role("button", name="Use this text").click)
    expect(page.locator("#subspaces-audit-notice")).to_contain_text("There is no text")
    choose(page, page.get_by_label("Your text").fill, TEXT)
    choose(page, page.get_by_role("button", name="Use this text").click)
    written(page, "corpus", key)
    expect(page.locator("#subspaces-audit-notice")).to_be_empty()
    expect(audited(page)).to_contain_text("Not computed yet. Run computes it")
    expect(page.locator("#subspaces-audit-graph")).to_be_hidden()
    expect(page.locator("#subspaces-principal-caption")).to_contain_text(
        "Run in the panel ‹Do trained layers denoise?›"
    )
    page.locator("#subspaces-field-draws [role=slider]").focus()
    choose(page, page.keyboard.press, "Home")
    written(page, "draws", "5")
    choose(page, page.click, "#subspaces-audit-start")
    state = {"tab": "models", "checkpoint": "tiny-mssa", "corpus": key, "draws": 5}
    params = service.values(state)
    page.locator("#subspaces-audit-graph .scatterlayer .trace").first.wait_for()
    expect(audited(page)).to_have_text(AUDIT.caption(params, service.workshop.result(AUDIT, params)))
    page.locator("#subspaces-layers").scroll_into_view_if_needed()
    expect(page.locator("#subspaces-layers-lines tbody tr")).to_have_count(9)
    assert query(page) == {name: str(value) for name, value in state.items()}
    answered(page)
    assert faults(page, OPTIONS) == []
    page.reload()  # the address opens it again
    expect(audited(page)).to_contain_text("tiny-mssa on your text ‹Pasted: The captain bowed")


def test_a_text_is_uploaded_and_deleted(open_page, app: App, key: str):
    app.core.corpora.own.delete(key)
    page = open_page(at(tab="models", checkpoint="tiny-mhsa"), load=True)
    settled(page)
    upload = page.locator(f"{_TEXT}-upload input[type=file]")
    choose(page, upload.set_input_files, {"name": "book.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe\x00"})
    expect(page.locator("#subspaces-audit-notice")).to_contain_text("This file is UTF-16")
    choose(page, upload.set_input_files, {"name": "book.txt", "mimeType": "text/plain", "buffer": TEXT.encode()})
    written(page, "corpus", key)
    expect(page.locator(_TEXT)).to_have_value("book.txt (yours)")
    choose(page, page.get_by_role("button", name="Delete this text").click)
    written(page, "corpus", None)
    expect(page.locator(_TEXT)).to_have_value("")
    assert app.core.corpora.own.get(key) is None
