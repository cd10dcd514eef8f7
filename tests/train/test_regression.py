"""In-context regression is trained by the same loop as language: recipes, resume, metrics, cards, two processes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import list_checkpoints, read_info, verify
from aotlens.data import RegressionTask
from aotlens.evaluate import regression_errors
from aotlens.models import AttentionOnlyTransformer, presets
from aotlens.train import OBJECTIVES, Recipe, dry_run, list_recipes, load_recipe, run_recipe, train
from tests.messages import refused
from tests.train.agents import assert_same_weights

RECIPE = """
name = "line"
description = "A test's."
objective = "regression"
seed = 3
weight_decay = 0.0
log_prompts = 64
evaluate_prompts = 1_600
save_prompts = 800

[prompts]
d = 2
points = 5
dims_start = 1
points_start = 3
points_step = 1
grow_every = 20

[model]
n_layers = 2
d_model = 16
n_heads = 2
d_head = 8
n_ctx = 9
read_in = "vectors"
d_in = 2
read_out = "vectors"
d_out = 1
bias = true

[[stages]]
prompts = 640
batch_size = 16

[[stages]]
prompts = 3_200
batch_size = 16
learning_rate = 5e-3
warmup_prompts = 160
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "line.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def recipe(path: Path) -> Recipe:
    return load_recipe(path)


@pytest.fixture(scope="module")
def trained(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_recipe(str(path), out=tmp_path_factory.mktemp("line") / "line", device="cpu")


@pytest.mark.slow
def test_it_learns_and_its_card_says_what_it_read(trained: Path) -> None:
    model = aotlens.load(trained, device="cpu")
    metrics = model.card.metrics
    again = regression_errors(model, RegressionTask(d=2), n_points=5)
    assert metrics["regression_error"] == pytest.approx(float(again.mean.mean()), rel=1e-5)
    assert metrics["error_after_2d"] == pytest.approx(float(again.mean[4]), rel=1e-5) and metrics["prompts"] == 1280
    assert metrics["error_after_2d_low"] <= metrics["error_after_2d"] <= metrics["error_after_2d_high"]
    assert metrics["least_squares_error"] == pytest.approx((1 + 0.5) / 5)
    assert metrics["error_by_examples"] == pytest.approx(again.mean.tolist(), abs=1e-4)
    card = read_info(trained).card
    for line in (
        "linear regression in context, d = 2",
        "| prompts | 3,840 |",
        "squared errors ÷ those of the zero predictor",
        "above that of least squares",
        "| reads | vectors |",
    ):
        assert line in card, line
    assert not any(word in card for word in ("nats", "bigram", "d_vocab")) and verify(trained) == []
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["prompts"] == 3840 and {"regression_error", "error_after_2d"} <= lines[-1].keys()
    untrained = regression_errors(AttentionOnlyTransformer(model.cfg), RegressionTask(d=2), n_points=5)
    assert metrics["regression_error"] < untrained.mean.mean() - 0.02
    (listed,) = [info for info in list_checkpoints([trained.parent]) if info.name == "line"]
    assert listed.problem is None and listed.losses[0] == metrics["regression_error"]


@pytest.mark.slow
def test_interrupted_in_the_curriculum_it_ends_with_the_same_weights(
    recipe: Recipe, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "line"
    task = OBJECTIVES["regression"].prepare(recipe)
    train(recipe, task, out, device="cpu", stop_after_steps=33)  # in the first stage, between two growths
    train(recipe, task, out, device="cpu", resume=True)
    assert_same_weights(trained, out)
    assert read_info(trained).metrics == read_info(out).metrics


def test_prompts_grow_over_both_stages_and_are_new_at_every_step(recipe: Recipe) -> None:
    objective = OBJECTIVES["regression"](recipe, OBJECTIVES["regression"].prepare(recipe))
    sizes = []
    for stage, step in ((0, 0), (0, 19), (0, 20), (0, 39), (1, 0), (1, 150)):
        tokens, targets = objective.batch(stage, step)
        assert targets is not None and tokens.shape[:2] == targets.shape[:2]
        sizes.append((tokens.shape[1], bool(tokens[:, ::2, 1].any())))
    assert sizes == [(5, False), (5, False), (7, True), (7, True), (9, True), (9, True)]
    first, other = objective.batch(0, 0)[0], objective.batch(0, 1)[0]
    assert torch.equal(first, objective.batch(0, 0)[0]) and not torch.equal(first, other)
    assert not torch.equal(objective.batch(0, 39)[0][:, :5], objective.batch(1, 39)[0][:, :5])


def test_the_loss_is_of_labels_alone(recipe: Recipe) -> None:
    objective = OBJECTIVES["regression"](recipe, OBJECTIVES["regression"].prepare(recipe))
    model, (tokens, targets) = objective.make_model(), objective.batch(1, 150)
    loss = model(tokens, return_type="loss", targets=targets)
    prompts = RegressionTask(d=2).sample(16, 5, objective.stage_seed(1), 150)
    by_hand = (model(prompts.tokens)[:, ::2, 0] - prompts.labels).pow(2).mean()
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert all(weight.grad is not None and bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_it_trains_in_full_precision(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 would round errors away: `cpu_autocast`, as a GPU's, changes nothing."""
    from aotlens.train.loop import add_gradients

    fast = dataclasses.replace(recipe, cpu_autocast=True)
    gradients = []
    for each in (recipe, fast):
        objective = OBJECTIVES["regression"](each, OBJECTIVES["regression"].prepare(each))
        model, batch = objective.make_model(), objective.batch(1, 0)
        add_gradients(model, *batch, each)
        gradients.append([weight.grad for weight in model.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_in": 3}, "d_in = 2"),
        ({"n_ctx": 8}, "9 positions"),
        ({"causal": False}, "sees later keys"),
        ({"read_out": "classes", "d_out": 3}, "read_out = 'vectors'"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(recipe: Recipe, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(recipe, model={**recipe.model, **change})


def test_data_and_other_sections_are_refused(path: Path, recipe: Recipe, tmp_path: Path) -> None:
    with refused("drawn"):
        run_recipe(str(path), corpus="stdlib", out=tmp_path / "out", device="cpu")
    with refused("[corpus]"):
        dataclasses.replace(recipe, objective="next_token", model={**recipe.model, "read_in": "tokens"})
    with pytest.raises(ValueError, match="needs a section"):
        dataclasses.replace(recipe, prompts=None)


def test_recipes_of_one_size_have_equally_many_parameters() -> None:
    for d in (5, 10):
        names = [name for name in list_recipes() if name.startswith(f"regression-{d}d-") and "sparse" not in name]
        counts = {name: dry_run_parameters(name) for name in names}
        assert len(counts) == 3 and max(counts.values()) < 1.03 * min(counts.values()), counts
        assert {load_recipe(name).prompts for name in names if "mssa" not in name} == {load_recipe(names[0]).prompts}


def dry_run_parameters(name: str) -> int:
    from aotlens.models.count import build_on_meta

    model = build_on_meta(load_recipe(name).model_config())
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_papers_recipes_are_table_5() -> None:
    for name in ("icl-aot-mssa-l", "icl-aot-mhsa-l", "icl-transformer"):
        recipe = load_recipe(name)
        assert recipe.model_config() == dataclasses.replace(presets.config(name), seed=recipe.seed)
        assert recipe.n_steps == 50_000 and recipe.stages[0].batch_size == 64 and recipe.prompts is not None
        curriculum = recipe.prompts.curriculum
        assert (curriculum.at(0), curriculum.at(1999), curriculum.at(30_000)) == ((5, 11), (5, 11), (20, 41))


def test_what_a_run_would_take_is_told_in_prompts(recipe: Recipe) -> None:
    told = dry_run(recipe, device="cpu").text
    assert "3,840 prompts in 240 steps" in told and "prompts a second" in told
