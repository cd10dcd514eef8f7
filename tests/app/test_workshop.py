"""Where views' calls are run: what one request may take, refused before it starts or stopped on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.views.regression import SUPPORT, WITHOUT, Chosen
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.regression.address import RegressionState
from app.pages.regression.service import Regressions
from tests.app.conftest import save_regression
from tests.messages import refused


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    folder = tmp_path_factory.mktemp("models")
    save_regression(folder, "regression-tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield Core.start(Settings(checkpoints=(folder,), device="cpu"))


def service(core: Core, **settings: float) -> tuple[Regressions, Chosen]:
    made = Regressions(replace(core, settings=replace(core.settings, **settings)))
    return made, made.chosen(RegressionState(nonzero=2))


def test_what_would_take_too_much_is_refused_before_it_starts(core: Core):
    chosen = service(core)[1]
    n_weights = core.catalog.info("regression-tiny").n_weights
    assert SUPPORT.cost(chosen) == 2 * n_weights * 2 * chosen.points["regression-tiny"] * 256
    assert WITHOUT.cost(chosen) == SUPPORT.cost(chosen) / 2 * (6 + 2), "128 prompts, six heads, the whole and its means"
    limited, _ = service(core, max_operations=SUPPORT.cost(chosen))
    assert limited.workshop.result(SUPPORT, chosen).n_prompts == 256
    with refused("about", f"{WITHOUT.cost(chosen):.0e} operations", "aotlens view", error=RequestError):
        limited.workshop.result(WITHOUT, chosen)
    assert not limited.workshop.known(WITHOUT, chosen)
    told: list[int] = []
    limited.workshop.told(lambda done, total: told.append(done)).result(WITHOUT, chosen)  # the background may
    assert told and limited.workshop.known(WITHOUT, chosen)
    assert len(limited.workshop.result(WITHOUT, chosen).heads) == 6, "what is there is shown"


def test_what_takes_too_long_is_stopped_and_says_how_far_it_was(core: Core):
    page, chosen = service(core, request_seconds=-1.0)
    with refused("Stopped after", "1 of 12 steps", error=RequestError):
        page.workshop.result(WITHOUT, chosen)
    assert not page.workshop.known(WITHOUT, chosen)
