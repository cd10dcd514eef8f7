"""Where views' calls are run: what one request may take, refused before it starts or stopped on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from aotlens.views import family
from aotlens.views.regression import SUPPORT, WITHOUT, RegressionParameters
from app.core import Core
from app.core.cache import Memory
from app.core.errors import RequestError
from app.core.inference import Inference
from app.shell.view_service import Views
from tests.app.conftest import save_regression, save_tiny
from tests.app.declared_pages import alone
from tests.messages import refused


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    saves = (partial(save_regression, name="regression-tiny"), partial(save_tiny, name="tiny"))
    with alone(tmp_path_factory, *saves) as app:
        yield app.core


def service(core: Core, **settings: float) -> tuple[Views, RegressionParameters]:
    made = Views(replace(core, settings=replace(core.settings, **settings)), family("regression"))
    return made, made.values({"nonzero": 2})


def test_what_would_take_too_much_is_refused_before_it_starts(core: Core):
    chosen = service(core)[1]
    n_weights = core.catalog.info("regression-tiny").n_weights
    assert SUPPORT.cost(chosen) == 2 * n_weights * 2 * chosen.points["regression-tiny"] * 256
    assert WITHOUT.cost(chosen) == SUPPORT.cost(chosen) / 2 * (6 + 2), "128 prompts, six heads, the whole and its means"
    limited, _ = service(core, max_operations=SUPPORT.cost(chosen))
    assert limited.workshop.result(SUPPORT, chosen).n_prompts == 256
    with refused("about", f"{WITHOUT.cost(chosen):.0e} operations", "aotlens", error=RequestError):
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


def of_text(core: Core, name: str, *, text: str = "🙂" * 6, **settings: float) -> tuple[Views, Any]:
    page = Views(replace(core, settings=replace(core.settings, **settings)), family(name))
    first = {field: each.first for field, each in page.family.parameters.items()}
    texts = {"text": text} if "text" in first else {"clean": text, "corrupted": f"{text}!"}
    return page, page.values({**first, **texts, "checkpoint": "tiny"})


@pytest.mark.parametrize(("name", "view"), [("lens", "heads"), ("patching", "by-head")])
@pytest.mark.parametrize(("limit", "estimate"), [("max_operations", "cost"), ("max_held_bytes", "held")])
def test_a_text_is_counted_in_tokens_and_told_how_many_fit(core: Core, name: str, view: str, limit: str, estimate: str):
    """Characters do not say: an emoji is four tokens, so that 600 of them were taken for 202 and are 2,401."""
    page, chosen = of_text(core, name)
    view = page.family.view(view)
    counted = replace(chosen, n_tokens=20)
    most = getattr(view, estimate)(counted)
    assert most > 4 * getattr(view, estimate)(chosen), "by its characters it is 4 tokens long"
    page, _ = of_text(core, name, **{limit: most})
    with refused("text of at most 20 tokens (this has 2", error=RequestError):
        page.workshop.result(view, chosen)
    page, _ = of_text(core, name, **{limit: 2 * most})
    page.workshop.result(view, chosen)


def test_what_fills_memory_does_so_in_the_background_too(core: Core):
    page, chosen = of_text(core, "patching", text="The captain bowed", max_held_bytes=1000)
    with refused("hold about", "bytes", error=RequestError):
        page.workshop.told(lambda done, total: None).result(page.family.view("circuit"), chosen)


def test_motifs_of_many_heads_are_scored_within_what_a_request_may_take(core: Core):
    for limit, said in (({"max_operations": 1e6}, "operations"), ({"request_seconds": -1.0}, "Stopped after")):
        settings = replace(core.settings, **limit)
        inference = Inference(core.catalog, settings, core.inference._switches, Memory(settings.memory_bytes))
        with refused(said, error=RequestError):
            inference.motifs("tiny")
    assert inference._motifs.known(core.catalog.load("tiny").key) is None
