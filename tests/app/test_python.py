"""Python for this view: every panel's lines run, alone, and give what the page's service has given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import aotlens
from aotlens.views import View
from aotlens.views.trigrams import CHECK
from app.core.own_texts import key_of
from app.core.settings import Settings
from app.factory import create_app
from app.pages import PAGES
from app.pages.checkpoints.address import CheckpointsState
from app.pages.checkpoints.ids import ids as checkpoints
from app.pages.circuits import PAGE as CIRCUITS
from app.pages.compare import PAGE as COMPARE
from app.pages.denoising import PAGE as DENOISING
from app.pages.distillation import PAGE as DISTILLATION
from app.pages.heads.address import HeadsState
from app.pages.images import PAGE as IMAGES
from app.pages.nonlinearity import PAGE as NONLINEARITY
from app.pages.paths import PAGE as PATHS
from app.pages.regression import PAGE as REGRESSION
from app.pages.subspaces import PAGE as SUBSPACES
from app.pages.trigrams import PAGE as TRIGRAMS
from app.shell import ids as shell
from app.shell.app import App
from app.shell.page import Page
from app.shell.props import components
from app.shell.python import lines
from tests.app.atlas import numbers as atlas
from tests.app.conftest import TEXT as LONG
from tests.app.conftest import choose, head_drawn, save_images, save_regression, save_tiny, serve
from tests.app.distillation.conftest import distil
from tests.app.heads import numbers as heads
from tests.app.lens import numbers as lens
from tests.app.patching import numbers as patching
from tests.app.same_numbers import same
from tests.app.sufficient import numbers as sufficient
from tests.app.training import numbers as training
from tests.app.universality import numbers as universality
from tests.stored_results import store_in

TEXT = "The captain bowed to the captain."
#: What skip-trigrams are checked against.
BOOK = 30 * LONG
#: What each page shows in these tests: nothing but what its address says.
STATES: dict[str, Any] = {
    "atlas": atlas.STATE,
    "checkpoints": CheckpointsState(checkpoint="tiny-mhsa"),
    "heads": HeadsState(
        checkpoint="tiny-mhsa", text=TEXT, head=(1, 2), position=3, view="weighted", hide_first=True,
        off=((0, 1), (1, 0)), how="position_mean", corpus=key_of(BOOK), new=6, seed=2, cell=(5, 2),
    ),
    "compare": COMPARE.address.state({
        "left_model": "tiny-mhsa", "right_model": "tiny-mssa", "right": [[0, 1], [1, 0]], "how": "position_mean",
        "corpus": key_of(BOOK), "text": TEXT, "head": [1, 2], "quantity": "weighted", "first": "hide",
    }),
    "circuits": CIRCUITS.address.state({
        "checkpoint": "tiny-mhsa", "head": [1, 0], "row": 40, "columns": [12, 50], "biases": True
    }),
    "paths": PATHS.address.state({
        "checkpoint": "tiny-mhsa", "text": TEXT, "position": 4, "versus": 7, "k": 6, "without": "token@2-0.1-1.0",
        "of": "score", "head": [1, 2], "query": 5, "key": 2, "against": "1",
    }),
    "distillation": DISTILLATION.address.state({
        "results": ["tiny-mhsa"], "width": 4, "head": [1, 1], "text": TEXT, "checkpoint": "tiny-mhsa",
        "corpus": key_of(BOOK), "hidden": [0, 4], "heads": "1.1", "seeds": 1, "tokens": 1000, "replaced": 0,
    }),
    "subspaces": SUBSPACES.address.state({
        "tokens": 5, "rank": 6, "d_model": 24, "layers": 3, "picture": "angles", "head": 2, "seed": 4,
        "checkpoint": "tiny-mhsa", "corpus": key_of(BOOK), "draws": 5,
    }),
    "denoising": DENOISING.address.state({
        "task": "mixtures", "energy": "hopfield", "alpha": 0.3, "beta": 0.2, "steps": 3, "seed": 5, "run": 2
    }),
    "nonlinearity": NONLINEARITY.address.state({"preset": "sawtooth", "eta": 0.05, "head": [1, 2], "x": [0.25]}),
    "images": IMAGES.address.state({
        "checkpoint": "digits-tiny", "data": "digits", "of": 3, "start": 4, "image": 2, "head": [1, 2], "patch": [1, 2],
        "quantity": "weighted", "target": 5, "ablated": [[0, 1], [1, 0]], "how": "position_mean",
    }),
    "regression": REGRESSION.address.state({
        "models": ["regression-tiny", "regression-tied"], "checkpoint": "regression-tied", "dims": 2, "nonzero": 1,
        "noise": 0.25, "scale": 1.5, "mean": 0.5, "skew": 1.2, "seed": 3, "head": [1, 2], "prompt": 4, "query": 5,
        "quantity": "weighted", "how": "position_mean",
    }),
    "sufficient": sufficient.STATE,
    "atlas-circuit": atlas.OF_CIRCUIT,
    "atlas-tutorial": atlas.OF_CIRCUIT,
    "lens": lens.STATE,
    "training": training.STATE,
    "universality": universality.STATE,
    "patching": patching.STATE,
    "trigrams": TRIGRAMS.address.state({
        "checkpoint": "tiny-mhsa", "head": [0, 1], "k": 40, "source": "captain", "destination": "·", "within": "all",
        "row": 3, "after": "the", "kind": "other", "corpus": key_of(BOOK), "tokens": 3000,
    }),
}  # fmt: skip
Expected = Callable[[App, Any], Any]


def _of_family(page: Page, view: View) -> Expected:
    """The table of a view of a declared page."""

    def expected(app: App, at: Any) -> Any:
        service = app.services[page.name]
        return view.frame(service.workshop.told(lambda *_: None).result(view, service.values(page.address.json(at))))

    return expected


#: What the pages' services give, by panel.
EXPECTED: dict[str, Expected] = {
    checkpoints.CATALOG: lambda app, _: {i.name: i.losses for i in app.core.catalog.list() if i.problem is None},
    checkpoints.CARD: lambda app, _: app.core.catalog.info("tiny-mhsa").card,
    checkpoints.CURVE: lambda app, _: app.core.catalog.info("tiny-mhsa").history(),
    checkpoints.PARAMETERS: lambda app, _: {
        row["name"]: tuple(int(n) for n in row["shape"].split(" × "))
        for row in app.services["checkpoints"].tensors(app.core.catalog.info("tiny-mhsa"))
    },
    **heads.EXPECTED,
    **{
        id: _of_family(page, panel.view)
        for page in PAGES
        if page.declared
        for id, panel in page.declared.panels.items()
        if "python" in panel.exports
    },
}


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """An app whose checkpoints and distillation are those of a user's own folder, where a notebook finds them, too."""
    home = tmp_path_factory.mktemp("home")
    (home / "checkpoints").mkdir()
    (home / "distillations").mkdir()
    save_tiny(home / "checkpoints", "tiny-mhsa")
    save_images(home / "checkpoints", "digits-tiny")
    save_regression(home / "checkpoints", "regression-tiny")
    save_regression(home / "checkpoints", "regression-tied", attention="mssa")
    save_tiny(home / "checkpoints", "tiny-mssa", n_layers=3, n_heads=2, attention="mssa")
    atlas.save_path_checkpoint(home / "checkpoints")
    sufficient.save_built(home / "checkpoints")
    training.save_run(home / "checkpoints")
    distil(home / "distillations", "tiny-mhsa", home / "checkpoints", [0, 4], costs=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(home))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        store_in("distillation", "/nonexistent", patch)
        atlas.stored_atlases(home / "atlases-of-tests", patch)
        app = create_app(Settings(device="cpu", first_checkpoint="tiny-mhsa"))
        app.core.corpora.own.keep_text("a book", BOOK)
        service = app.services["trigrams"]  # rows that were checked are shown so
        service.workshop.told(lambda *_: None).result(CHECK, service.of_address(STATES["trigrams"]))
        yield app


def offered(app: App, page: Page) -> set[str]:
    """The panels of a page that have the entry."""
    there = {one.id for one in components(page.content(app.core, app.services[page.name], page.address.parse(None)))}
    return {shell.exporting(one) for one in there if one.endswith("-export-python")}


def test_every_panel_with_numbers_has_the_entry(at_home: App):
    for page in PAGES:
        if page.python is not None:
            expected = {panel for panel in EXPECTED if shell.page_of(panel) == page.name}
            assert offered(at_home, page) == expected, page.name


@pytest.mark.parametrize("panel", EXPECTED)
def test_the_lines_give_what_is_shown(at_home: App, panel: str):
    page = next(one for one in PAGES if one.name == shell.page_of(panel))
    state = STATES.get(panel, STATES.get(page.name, page.address.parse(None)))
    written = lines(at_home, page.name, panel, page.address.format(state).partition("?")[2])
    for name in re.findall(r"(?<!from )(?<!import )\baotlens[\w.]*\w", written):
        # A package brings its own packages; a module is there only once somebody has imported it, as this suite has.
        objects = accumulate(name.split(".")[1:], lambda holder, part: getattr(holder, part, None), initial=aotlens)
        modules = [each for each in objects if isinstance(each, ModuleType)]
        assert all(hasattr(module, "__path__") for module in modules), f"{name}: its module is not imported"
    space: dict[str, Any] = {"print": lambda *_: None}
    exec(written, space)
    same(space["table" if "table = result." in written else "result"], EXPECTED[panel](at_home, state))


def test_links_in_tables_open_what_they_name(at_home: App):
    pages, n_links = {page.name: page for page in PAGES}, 0
    for page in filter(lambda page: page.declared, PAGES):
        service = at_home.services[page.name]
        for id, panel in page.declared.panels.items():
            if not getattr(panel, "lines", None):
                continue
            state = STATES.get(id, STATES.get(page.name, page.address.parse(None)))
            params = service.values(page.address.json(state))
            result = service.workshop.told(lambda *_: None).result(panel.view, params)
            for table in panel.lines(params, result):
                parts = [part for row in table.get("rows", ()) for cell in row for part in np.ravel([cell])]
                for link in (part for part in parts if isinstance(part, dict) and "page" in part):
                    fields = json.loads(json.dumps({**table["along"], **link["fields"]}))
                    there = pages[link["page"]].address
                    named = {name: getattr(there.state(fields), name) for name in fields}
                    opened, wrong = there.read(there.to(**named).partition("?")[2], at_home.core)
                    assert wrong == [] and {name: getattr(opened, name) for name in named} == named, link
                    n_links += 1
    assert n_links > 10


@pytest.fixture(scope="module")
def address(at_home: App) -> Iterator[str]:
    with serve(at_home) as address:
        yield address


def test_the_menu_shows_the_lines_of_what_is_shown_and_a_link_is_copied(open_page, at_home: App):
    page = open_page(at_home.core.links.to("heads", checkpoint="tiny-mhsa", text=TEXT, head=(1, 0)))
    head_drawn(page, "Head 1.0")
    choose(page, page.click, "#heads-grid-cells .cell[data-layer='1'][data-head='2']")
    head_drawn(page, "Head 1.2")
    choose(page, page.get_by_role("button", name="Export: One head").click)
    choose(page, page.get_by_role("menuitem", name="Python for this view").click)
    code = page.locator(f"#{shell.PYTHON_CODE}")
    expect(code).to_contain_text("run.map('1.2'")
    expect(code).to_contain_text(repr(TEXT))
    with page.expect_download() as download:
        choose(page, page.get_by_role("button", name="Save (PY)").click)
    assert Path(download.value.path()).read_text() == code.text_content()
    choose(page, page.keyboard.press, "Escape")
    expect(code).to_be_hidden()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    choose(page, page.get_by_role("button", name="Copy link").click)
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert "head=1.2" in page.url
