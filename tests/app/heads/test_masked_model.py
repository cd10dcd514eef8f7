"""A masked language model on the Heads page: its predictions are of the position itself, and are named so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotlens.views.paths import FAMILY as PATHS
from aotlens.views.paths import notes
from app.core import Core
from app.core.settings import Settings
from app.pages.checkpoints.service import Checkpoints
from app.pages.heads.continuations import Continuations, Draws
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.service import Heads
from app.shell.view_service import Views
from tests.app.conftest import wait


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Core:
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint
    from aotlens.data import Tokenizer
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
    tokenizer = Tokenizer.train(["The captain bowed, and the captain of a ship danced. " * 9], 265).with_mask()
    cfg = ModelConfig(
        n_layers=1, d_model=16, n_heads=2, d_head=8, d_vocab=tokenizer.d_vocab, n_ctx=24, causal=False, positions="qk"
    )
    metrics = {"masked_loss": 5.0, "unigram_loss": 6.0}
    folder = tmp_path / "checkpoints"
    save_checkpoint(folder / "masked", AttentionOnlyTransformer(cfg, tokenizer), CheckpointInfo(
        name="masked", metrics=metrics), history=[{"tokens": 8, "loss": 6.0, "masked_loss": 5.0}])  # fmt: skip
    return Core.start(Settings(checkpoints=(folder,), device="cpu"))


def test_predictions_are_of_the_position_itself(services: Core) -> None:
    text = "The<|mask|> bowed"
    result = services.inference.analyse("masked", text)
    where = result.patterns.str_tokens.index("<|mask|>")
    heads = Heads(services)
    at = [heads.values({"prompt": {"checkpoint": "masked", "text": text}, "position": i}) for i in (where, where - 1)]
    hidden, before = (heads.workshop.result(VIEWS[ids.NEXT], chosen) for chosen in at)
    assert hidden.at_position and hidden.actual is None
    assert before.actual is not None and before.actual.token_id == result.patterns.tokens[where - 1]
    assert VIEWS[ids.NEXT].file(at[0]) == f"masked-at-{where}"
    assert VIEWS[ids.NEXT].caption(at[0], hidden).startswith(f"At position {where}, ")
    assert result.patterns.visible.all()


def test_without_a_head_its_losses_are_of_hidden_tokens(services: Core) -> None:
    from aotlens.evaluate import token_losses
    from aotlens.heads import without

    text = "The<|mask|> bowed"
    model = services.catalog.load("masked").model
    lesser = services.inference.analyse("masked", text, off=((0, 1),), how="uniform")
    with without(model, "0.1", "uniform"):
        expected = token_losses(model, text)
    np.testing.assert_allclose(services.inference.losses(lesser), expected, rtol=1e-5)
    assert np.isnan(expected[lesser.patterns.str_tokens.index("<|mask|>")])


def test_it_fills_masks_with_and_without_a_head_and_continues_nothing(services: Core) -> None:
    from aotlens.heads import without
    from aotlens.models import fill

    text, service = "The<|mask|> bowed<|mask|>.", Continuations(services)
    result = services.inference.analyse("masked", text, off=((0, 1),))
    draws = Draws(new=5, temperature=0.0, top_k=5, seed=0, stop=None)
    job = wait(service.start(result, draws, "me"))
    made, model = service.so_far(job), services.catalog.load("masked").model
    assert made is not None and made.fills and (job.done, job.total) == (2, 2)
    with without(model, "0.1"):
        lesser = fill(model, text)
    assert [service.text(made, run) for run in (0, 1)] == [fill(model, text), lesser]
    assert sum(is_new for _, is_new in service.pieces(made, 0)) == 2
    without_masks = wait(service.start(services.inference.analyse("masked", "The captain"), draws, "me"))
    assert without_masks.state == "failed" and "no mask to fill" in without_masks.error


def test_the_paths_page_says_what_is_predicted(services: Core):
    params = Views(services, PATHS).values({"checkpoint": "masked", "text": "a b"})
    assert "not the next one" in notes(params)


def test_its_training_curve_has_the_unigram_models_loss_beside_it(services: Core) -> None:
    curve = Checkpoints(services).curve("masked", "light")
    assert curve is not None and any("unigram 6.000" in note.text for note in curve.layout.annotations)
