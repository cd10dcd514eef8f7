"""The masked objective: it learns, resumes to the same weights, and reports what such a model has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import verify
from aotlens.data import IGNORED, validation_windows
from aotlens.evaluate import masked_loss
from aotlens.train import Recipe, TrainingData, load_recipe, train

from .agents import assert_same_weights
from .conftest import RECIPE

MASKED = (
    RECIPE.replace("repeat_fraction = 1.0", "learning_rate = 0.01")
    .replace('repeat_fraction = 0.25\nrepeat_source = "text"', "learning_rate = 0.01")
    .replace('name = "tiny"', 'name = "tiny-masked"\nobjective = "masked"')
    .replace("n_ctx = 32", 'n_ctx = 32\ncausal = false\npositions = "qk"')
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    path = tmp_path_factory.mktemp("recipe") / "masked.toml"
    path.write_text(MASKED)
    return load_recipe(path)


@pytest.fixture(scope="module")
def trained(recipe: Recipe, data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe, data, tmp_path_factory.mktemp("run") / "masked", device="cpu")


def test_it_learns_and_says_what_it_did(trained: Path, recipe: Recipe, data: TrainingData) -> None:
    model = aotlens.load(trained, device="cpu")
    assert model.cfg.d_vocab == data.tokenizer.d_vocab + 1 and model.tokenizer.mask_id == data.tokenizer.d_vocab
    assert model.unigram_counts.sum() == len(data.train) and model.unigram_counts[-1] == 0
    metrics = model.card.metrics
    assert set(metrics) == {
        "masked_loss", "unigram_loss", "below_unigram", "masked_accuracy", "masked_tokens", "heads"
    }  # fmt: skip
    windows = validation_windows(data.validation, 32)
    assert metrics["masked_loss"] == pytest.approx(masked_loss(model, windows).loss, rel=1e-6)
    assert metrics["masked_tokens"] == len(windows) * round(0.15 * 31)
    history = model.card.history()
    assert history[-1]["loss"] < history[0]["loss"] - 0.2
    assert {"masked_loss", "previous_token", "next_token"} <= set(history[-1])
    assert model.card.recipe["objective"] == "masked" and Recipe.from_dict(model.card.recipe) == recipe
    assert "below a unigram model" in model.card.card or "above a unigram model" in model.card.card
    assert verify(trained) == []


def test_resumed_it_ends_with_the_same_weights(
    trained: Path, recipe: Recipe, data: TrainingData, tmp_path: Path
) -> None:
    out = tmp_path / "again"
    train(recipe, data, out, device="cpu", stop_after_steps=13)
    train(recipe, data, out, device="cpu", resume=True)
    assert_same_weights(trained, out)


def test_its_steps_hide_the_sampled_rows(
    recipe: Recipe, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aotlens.train import loop

    update, seen = loop._update, []

    def recording(
        trained: object, optimiser: object, rows: torch.Tensor, targets: torch.Tensor, *rest: object
    ) -> object:
        seen.append((rows, targets))
        return update(trained, optimiser, rows, targets, *rest)

    monkeypatch.setattr(loop, "_update", recording)
    train(recipe, data, tmp_path / "out", device="cpu", stop_after_steps=2)
    mask_id = data.tokenizer.d_vocab
    for rows, targets in seen:
        hidden = targets != IGNORED
        assert (hidden.sum(1) == round(0.15 * 31)).all() and (rows == mask_id).any()
        original = torch.where(hidden, targets, rows)
        assert (original < mask_id).all()
    assert not torch.equal(seen[0][1], seen[1][1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECIPE.replace("n_ctx = 32", "n_ctx = 32\ncausal = false"), "objective = 'masked'"),
        (RECIPE.replace('name = "tiny"', 'name = "tiny"\nobjective = "masked"'), "set causal = false"),
        (RECIPE.replace('name = "tiny"', 'name = "tiny"\nobjective = "both"'), "objective"),
    ],
)
def test_an_objective_that_does_not_fit_the_model_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(path)


def test_recipes_of_next_tokens_say_what_they_always_said() -> None:
    values = load_recipe("novels-2l-mhsa").to_dict()
    assert "objective" not in values and Recipe.from_dict(values).objective == "next_token"
