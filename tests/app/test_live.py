"""`serve(model)`: the app on models that a script holds, as they are."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from aotlens.heads import attention_patterns
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from app import serve
from app.__main__ import StartError
from app.core import Core
from app.core.settings import Settings
from app.live import Served
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokenizer

TEXT = "the cat sat on the mat"


def trained(seed: int = 0) -> AttentionOnlyTransformer:
    return maker({**SMALL, "d_vocab": 270, "n_ctx": 32}, seed=seed)(tokenizer=small_tokenizer())


@pytest.fixture
def core(services: Core, settings: Settings) -> Core:
    """`services` hides the user's own and the bundled checkpoints."""
    return Core.start(replace(settings, first_checkpoint="mine"), models={"mine": trained(), "tiny-mhsa": trained(1)})


def test_live_models_come_first_and_hide_checkpoints_of_their_name(core: Core) -> None:
    names = [info.name for info in core.catalog.list()]
    assert names[:2] == ["mine", "tiny-mhsa"] and names.count("tiny-mhsa") == 1 and "tiny-mssa" in names
    assert core.catalog.default() == "mine" and core.catalog.shape("mine") == (2, 3)
    assert core.catalog.load("tiny-mhsa").model.cfg.d_model == SMALL["d_model"] != 24


def test_what_is_shown_is_the_live_models(core: Core) -> None:
    for name, seed in (("mine", 0), ("tiny-mhsa", 1)):
        shown = core.inference.analyse(name, TEXT).patterns.pattern
        np.testing.assert_array_equal(shown, attention_patterns(trained(seed), TEXT).pattern)


def test_a_model_without_words_is_not_changed(services: Core, settings: Settings) -> None:
    model = AttentionOnlyTransformer(ModelConfig(**SMALL))
    loaded = Core.start(settings, models={"ids": model}).catalog.load("ids").model
    assert model.tokenizer is None and loaded.tokenizer is not None and loaded.W_E is model.W_E


@pytest.fixture
def served(services: Core) -> Iterator[Served]:
    made = serve(trained(), port=0, block=False)
    assert made is not None
    with made:
        yield made


def test_it_serves_and_stops(served: Served) -> None:
    with urllib.request.urlopen(served.address) as answer:
        assert answer.status == 200 and b"<title>" in answer.read()
    assert repr(served) == f"Served at {served.address}"
    port = int(served.address.rpartition(":")[2])
    with pytest.raises(StartError, match="in use"):
        serve(trained(), port=port, block=False)
    served.stop()
    served.stop()
    assert repr(served) == "Served, stopped"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(served.address)


def test_what_is_no_model_is_refused(services: Core) -> None:
    with pytest.raises(ValueError, match="empty mapping"):
        serve({})
    with refused("model of aotlens", "got a str"):
        serve({"x": "novels-2l-mhsa"})  # type: ignore[dict-item]


def test_without_dash_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import app

    monkeypatch.setattr("app.missing", lambda: ["dash"])
    with refused("dash", "pip install 'aotlens[app]'", error=ImportError):
        _ = app.__getattr__("serve")
