"""An app without a checkpoint, or without one that fits a page: every page opens and says how to get one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from aotlens.views import family
from app.core.catalog import GET_ONE, NO_CHECKPOINT
from app.core.errors import RequestError
from app.pages import PAGES
from app.shell.app import App
from app.shell.page import Page
from app.shell.python import lines
from tests.app.conftest import save_images, save_regression, save_tiny, serve, settled
from tests.app.declared_pages import alone

#: By kind of checkpoint, what saves one in a folder.
KINDS: dict[str, Callable[[Path, str], None]] = {
    "none": lambda folder, name: None,
    "text": save_tiny,
    "images": save_images,
    "regression": save_regression,
}
#: By page, the kinds of checkpoints that it shows; pages that need none are left out.
FITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("heads", "compare", "universality", "atlas", "patching", "lens"), ("text",)),
    **dict.fromkeys(("trigrams", "paths", "distillation", "subspaces"), ("text",)),
    **dict.fromkeys(("circuits", "checkpoints"), ("text", "images", "regression")),
    "sufficient": ("text", "regression"),
    "training": (),
    "regression": ("regression",),
    "images": ("images",),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def of_kind(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An app with one checkpoint of a kind, or with none."""
    with alone(tmp_path_factory, lambda folder: KINDS[kind](folder, f"tiny-{kind}")) as app:
        yield app


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_how_to_get_a_checkpoint_if_none_fits(of_kind: App, kind: str, page: Page):
    laid = str(page.content(of_kind.core, of_kind.services[page.name], page.address.parse(None)))
    advice = GET_ONE if page.declared is None else family(page.name).none or NO_CHECKPOINT
    lacks = page.name in FITS and kind not in FITS[page.name]
    assert (advice in laid) == lacks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_a_page_without_a_checkpoint_is_refused_in_words(of_kind: App, page: Page):
    for panel in () if page.python is None else page.python.panels:
        try:
            lines(of_kind, page.name, panel, "")
        except RequestError as error:
            assert "'None'" not in str(error) and "None is called" not in str(error)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app without any checkpoint."""
    with alone(tmp_path_factory) as app, serve(app) as address:
        yield address


@pytest.mark.visit
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_goes_wrong_in_the_browser(open_page, page: Page):
    tab = open_page(page.path, load=True)
    settled(tab)
    expect(tab.get_by_text("This is a defect of aotlens")).to_have_count(0)
    expect(tab.get_by_text("'None'")).to_have_count(0)
