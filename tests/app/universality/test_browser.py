"""Universality in the browser: models are picked, one start makes both panels, tables and files are the library's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.checkpoints import CheckpointInfo
from aotlens.views.universality import GROUPS, PAIRS
from app.core.errors import RequestError
from app.pages.universality import PAGE
from app.shell.app import App
from app.shell.view_service import first_several
from tests.app.conftest import choose, opened, save_tiny, serve, written
from tests.app.declared_pages import alone
from tests.app.sufficient.numbers import save_built
from tests.messages import refused

GROUPS_PANEL, PAIRS_PANEL = "universality-groups", "universality-pairs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    saves = [partial(save_tiny, name=f"seed.{seed}", seed=seed, n_layers=1 + (seed == 3)) for seed in range(4)]
    with alone(tmp_path_factory, *saves, save_built, first_checkpoint="seed.1") as app:  # the last is of other tokens
        yield app


@pytest.fixture(scope="module")
def address(made: App) -> Iterator[str]:
    with serve(made) as address:
        yield address


def test_at_first_it_is_of_models_of_one_form_and_refuses_what_cannot_be_compared(made: App) -> None:
    service = made.services["universality"]
    names = PAGE.address.read("?models=seed.0,nobody", made.core)
    assert names[0].models == ("seed.0",) and "nobody" in names[1][0]
    assert PAGE.address.read("?models=a,b,c,d,e,f,g,h,i")[1][0].startswith("models=")
    with refused("Only seed.0", error=RequestError):
        service.workshop.told(lambda *_: None).result(GROUPS, service.values({"models": ["seed.0"]}))
    with refused("seed.0 twice", error=RequestError):
        service.values({"models": ["seed.0", "seed.0"]})
    with refused("no model of text", error=RequestError):
        service.values({"models": []})


@pytest.mark.unchecked
def test_a_training_once_more_is_not_offered_beside_the_first() -> None:
    model, stages = {"n_layers": 2}, {"stages": [{"tokens": 100}]}
    kept = {"snapshots": "log:60"}
    infos = {
        "first": CheckpointInfo(name="first", seed=2, model=model, recipe=stages),
        "first-run": CheckpointInfo(name="first-run", seed=2, model=model, recipe={**stages, **kept}),
        "seed": CheckpointInfo(name="seed", seed=3, model=model, recipe=stages),
        "deeper": CheckpointInfo(name="deeper", seed=3, model={"n_layers": 3}, recipe=stages),
        "imported": CheckpointInfo(name="imported", seed=2, model=model),
    }
    core = SimpleNamespace(catalog=SimpleNamespace(default=lambda: "first", info=infos.__getitem__))
    assert first_several(core, [*infos]) == ["first", "seed", "imported"]


def test_models_are_compared_in_the_background_and_both_panels_shown(open_page, made: App) -> None:
    page = open_page("/universality?text=repeats")
    box = page.locator("#universality-field-models").locator("xpath=ancestor::*[contains(@class, 'MultiSelect-root')]")
    expect(box).to_contain_text("seed.1")
    written(page, "models", "seed.1,seed.0,seed.2")  # not seed.3, which has two layers
    said = {panel: page.locator(f"#{panel}-caption") for panel in (GROUPS_PANEL, PAIRS_PANEL)}
    expect(said[GROUPS_PANEL]).to_contain_text("Run computes it in the background")
    choose(page, page.click, f"#{GROUPS_PANEL}-start")
    service = made.services["universality"]
    chosen = service.values({"models": ["seed.1", "seed.0", "seed.2"], "text": "repeats"})
    expect(said[GROUPS_PANEL]).to_contain_text("Groups of heads", timeout=90_000)
    result = service.workshop.result(GROUPS, chosen)
    expect(said[GROUPS_PANEL]).to_have_text(GROUPS.caption(chosen, result))
    rows = page.locator(f"#{GROUPS_PANEL} tbody tr")
    expect(rows).to_have_count(len(result.groups))
    heads = [dict(group.heads).get("seed.0") for group in result.groups]
    for place, head in enumerate(heads):
        expect(rows.nth(place).locator("td").nth(2)).to_have_text("" if head is None else "{}.{}".format(*head))
    opened(page, PAIRS.title)
    expect(said[PAIRS_PANEL]).to_have_text(PAIRS.caption(chosen, result))
    choose(page, page.click, f"#{PAIRS_PANEL}-export")
    with page.expect_download() as download:
        choose(page, page.click, f"#{PAIRS_PANEL}-export-csv")
    saved = pd.read_csv(download.value.path(), dtype={"left": str, "right": str})
    pd.testing.assert_frame_equal(saved, result.pairs_frame())


@pytest.mark.visit
def test_other_vocabularies_are_refused_in_words(open_page) -> None:
    page = open_page("/universality?models=seed.0,built&text=repeats")
    notice = page.locator(f"#{GROUPS_PANEL}-notice")
    expect(notice).to_contain_text("seed.0 and built have different vocabularies")
    choose(page, page.click, f"#{GROUPS_PANEL}-start")
    expect(page.locator(f"#{GROUPS_PANEL}")).to_contain_text("Choose models with one tokenizer")
