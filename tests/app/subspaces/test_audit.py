"""The tab of trained models: what it measures is the library's, of the text that was given."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from playwright.sync_api import expect

from aotlens.checkpoints.catalog import bundled_folder  # the fixtures' own patch comes after this import
from aotlens.denoise import audit, stored_audit
from app.core import Core
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.subspaces import captions
from app.pages.subspaces.address import ADDRESS, SubspacesState
from app.pages.subspaces.audit_callbacks import _figure as audit_figure
from app.pages.subspaces.audit_callbacks import make_file
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service_audit import AuditResult, Audits
from app.shell import ids as shell
from tests.app.conftest import SCHEMES, TEXT, choose, fits, query, settled, wait

if TYPE_CHECKING:
    from playwright.sync_api import Page

BUNDLED = stored_audit("novels-2l-gpt")


@pytest.fixture(scope="module")
def service(services: Core) -> Audits:
    return Audits(services)


@pytest.fixture(scope="module")
def order(service: Audits) -> dict[str, Any]:
    order = service.order("tiny-mssa", PASTED, TEXT, 5)
    assert wait(service.start(order)).state == "done"
    return order.to_dict()


@pytest.fixture(scope="module")
def found(service: Audits, order: dict[str, Any]) -> AuditResult:
    result = service.made(order)
    assert result is not None
    return result


def test_an_audit_is_the_librarys(services: Core, found: AuditResult):
    model = services.catalog.load("tiny-mssa").model
    tokens = model.to_tokens(TEXT)[0]
    windows = tokens[: len(tokens) // 2 * 2].reshape(2, -1)  # half of it is shorter than the context of 48
    expected = audit(model, windows, n_draws=5)
    torch.testing.assert_close(found.audit.snr, expected.snr, equal_nan=True)
    torch.testing.assert_close(found.audit.null_snr, expected.null_snr, equal_nan=True)
    figure = audit_figure(found, False, "light")
    lines = {trace.name: trace for trace in figure.data if trace.name}
    np.testing.assert_allclose(lines["all tokens"].y, expected.ratios[0])
    said = captions.audited(found)
    assert f"{expected.n_tokens} tokens" in said and "subspaces of U" in said and "of 9 (grouping, layer) pairs" in said


def test_a_bundled_checkpoint_has_its_stored_audit(service: Audits, order: dict[str, Any], found: AuditResult):
    bundled = Audits(Core.start(Settings(checkpoints=(bundled_folder(),), first_checkpoint="novels-6l-mhsa")))
    assert bundled.choose("novels-6l-mhsa", None) == {"checkpoint": None, "corpus": None, "draws": None}
    for choice, name in (
        (bundled.choose("novels-6l-mhsa", None), "novels-6l-mhsa"),
        (bundled.choose("novels-2l-gpt", None), "novels-2l-gpt"),
    ):
        shown = bundled.shown(choice)
        assert shown is not None
        torch.testing.assert_close(shown.audit.null_snr, stored_audit(name).audit.null_snr, equal_nan=True)
        assert f"{name} on 5 held-out documents of 98 English novels, 1837-1930: 2,040" in captions.audited(shown)
    # What was made here comes before what is stored, of its own checkpoint only.
    assert service.shown(service.choose("tiny-mssa", order)) is found
    assert service.shown(service.choose("tiny-mhsa", order)) is None is service.shown(None)


def store(folder: Path, services: Core, name: str, monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    """A bundled audit under another checkpoint's name, as if it came with that."""
    weights = services.catalog.info(name).weights_sha256
    record = replace(BUNDLED, **{"checkpoint": name, "weights_sha256": weights, **changes})
    record.save(folder / f"{name}.safetensors", compact=True)
    monkeypatch.setattr("aotlens.denoise.audit_files.bundled_audits_folder", lambda: folder)


def test_an_audit_of_other_weights_is_not_shown(service: Audits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store(tmp_path, service.core, "tiny-mssa", monkeypatch)
    assert service.stored("tiny-mssa") is not None
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    said = r"can't be read. tiny-mssa.safetensors: expected a result of type AuditRecord"
    with pytest.raises(RequestError, match=said):
        service.stored("tiny-mssa")
    file.unlink()
    store(tmp_path, service.core, "tiny-mssa", monkeypatch, weights_sha256="0" * 64)
    assert service.stored("tiny-mssa") is None


def test_what_cannot_be_audited_is_said(service: Audits):
    with pytest.raises(RequestError, match="fixed patterns"):
        service.start(service.order("tiny-fixed", PASTED, TEXT, 5))
    with pytest.raises(RequestError, match="There is no text"):
        service.order("tiny-mssa", PASTED, "  ", 5)
    job = wait(service.start(service.order("tiny-mssa", PASTED, "a b", 5)))
    assert job.state == "failed" and "at least 16 tokens" in job.error
    with pytest.raises(RequestError, match="No text is called 'nowhere'"):
        service.start(service.order("tiny-mssa", "nowhere", None, 5))


def test_files_hold_both_measurements(service: Audits, order: dict[str, Any], found: AuditResult):
    for panel, expected in ((ids.RATIOS, found.audit.to_frame()), (ids.PRINCIPAL, found.audit.pca_frame())):
        content = make_file(service, shell.export(panel, "csv"), order).content
        pd.testing.assert_frame_equal(pd.read_csv(io.BytesIO(content)), expected)
    with pytest.raises(RequestError, match="press Audit first"):
        make_file(service, shell.export(ids.RATIOS, "csv"), None)


def test_press_audit_and_see_it(open_page, found: AuditResult):
    page: Page = open_page(ADDRESS.format(SubspacesState(tab="models", checkpoint="tiny-mssa")))
    said = page.locator(f"#{shell.body(ids.AUDIT)}")
    expect(said).to_have_text("No audit of tiny-mssa is stored. Choose a text, and press Audit.")
    choose(page, page.fill, f"#{ids.TEXT}", TEXT)
    thumb = page.locator(f"#{ids.DRAWS} [role=slider]")
    thumb.focus()
    choose(page, page.keyboard.press, "Home")
    expect(thumb).to_have_attribute("aria-valuenow", "5")
    settled(page)
    choose(page, page.click, f"#{shell.start(ids.AUDIT)}")
    expect(said).to_have_text(captions.audited(found))
    page.locator(f"#{shell.graph(ids.RATIOS)} .scatterlayer .trace").first.wait_for()
    rows = page.locator(f"#{shell.body(ids.LAYERS_TABLE)} tbody tr")
    rows.first.scroll_into_view_if_needed()
    expect(rows).to_have_count(9)
    expect(page.locator(f"#{shell.stop(ids.AUDIT)}")).to_be_hidden()
    # The address names the audit, and opens it again; where it is gone, that is said.
    named = {"tab": "models", "checkpoint": "tiny-mssa", "corpus": found.order.corpus, "draws": "5"}
    assert query(page) == named
    page.reload()
    expect(said).to_have_text(captions.audited(found))
    settled(page)
    assert query(page) == named
    page.goto(page.url.replace("draws=5", "draws=7"))
    expect(said).to_contain_text("not kept any more: press Audit to make it again")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_opens_on_the_stored_audit(
    open_page, services: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
):
    store(tmp_path, services, "tiny-mhsa", monkeypatch)
    page: Page = open_page("/subspaces?tab=models&checkpoint=tiny-mhsa", width=800, scheme=scheme, load=True)
    expect(page.locator(f"#{shell.body(ids.AUDIT)}")).to_contain_text("tiny-mhsa on 5 held-out documents of 98")
    page.locator(f"#{shell.graph(ids.RATIOS)} .scatterlayer .trace").first.wait_for()
    rows = page.locator(f"#{shell.body(ids.LAYERS_TABLE)} tbody tr")
    page.locator(f"#{ids.LAYERS_TABLE}").scroll_into_view_if_needed()  # what is below is asked for when it is seen
    expect(rows).to_have_count(6)
    fits(page)
    settled(page)
    first = services.catalog.default()
    assert query(page) == {"tab": "models"} | ({} if first == "tiny-mhsa" else {"checkpoint": "tiny-mhsa"})
