"""A model of images trained on scikit-learn's digits, by the same loop as language."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
import scipy.stats
import torch
from torch import nn

import aotlens
from aotlens.checkpoints import read_info, verify
from aotlens.data.images import open_images
from aotlens.evaluate import class_share_loss, evaluate_images
from aotlens.models import AttentionOnlyTransformer, count_parameters, presets
from aotlens.train import OBJECTIVES, ImageTrainingData, Recipe, dry_run, load_recipe, train
from aotlens.train.optimiser import Lion, make_optimiser
from tests.messages import refused, says
from tests.train.agents import assert_same_weights

RECIPE = """
name = "digits"
description = "A test's."
objective = "classes"
label_smoothing = 0.1
seed = 3
log_images = 320
evaluate_images = 3_200
save_images = 1_600

[images]
spec = "digits"
source = "scikit-learn"
flip = false
shift = 1

[model]
n_layers = 2
d_model = 32
n_heads = 2
d_head = 16
n_ctx = 5
read_in = "patches"
image_size = 8
patch_size = 4
class_token = true
read_out = "classes"
d_out = 10
causal = false

[[stages]]
images = 9_600
batch_size = 32
learning_rate = 4e-3
warmup_images = 640
final_fraction = 0.05
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    path = tmp_path_factory.mktemp("recipe") / "digits.toml"
    path.write_text(RECIPE)
    return load_recipe(path)


@pytest.fixture(scope="module")
def data(recipe: Recipe) -> ImageTrainingData:
    return OBJECTIVES["classes"].prepare(recipe)


@pytest.fixture(scope="module")
def trained(recipe: Recipe, data: ImageTrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe, data, tmp_path_factory.mktemp("digits") / "digits", device="cpu")


@pytest.mark.slow
def test_it_learns_and_its_card_says_what_it_read(trained: Path, data: ImageTrainingData):
    model = aotlens.load(trained, device="cpu")
    metrics = model.card.metrics
    assert metrics["test_accuracy"] > 0.8 and metrics["validation_loss"] < 0.5 * metrics["class_share_loss"]
    assert metrics["test_images"] == len(data.test) and metrics["validation_images"] == len(data.validation)
    right = round(metrics["test_accuracy"] * len(data.test))
    interval = scipy.stats.binomtest(right, len(data.test)).proportion_ci(0.95, method="wilson")
    assert (metrics["test_accuracy_low"], metrics["test_accuracy_high"]) == pytest.approx(tuple(interval))
    assert model.card.tokens_seen == 9600 and model.card.words.counted == "images"
    card = read_info(trained).card
    for line in (
        "losses in nats per image",
        "| reads | patches |",
        "| side of a patch, pixels | 4 |",
        "| [CLS] | yes |",
        "| classes | 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 |",
        "| images | 9,600 |",
        "## Data",
        "below that of the classes' shares alone",
    ):
        assert line in card, line
    assert not any(words in card for words in ("per token", "| tokens |", "d_vocab", "## Corpus"))
    assert verify(trained) == []
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["images"] == 9600 and {"validation_loss", "validation_accuracy"} <= lines[-1].keys()


def test_a_loaded_model_can_be_fed(trained: Path, data: ImageTrainingData):
    model = aotlens.load(trained, device="cpu")
    processor = model.image_processor
    assert processor == data.processor and processor.data == "digits"
    pixels = data.train.images.double() / 255
    assert processor.mean == pytest.approx([float(pixels.mean())], abs=1e-6)
    assert processor.deviation == pytest.approx([float(pixels.std(correction=0))], abs=1e-6)
    raw = data.test.images[:4]
    by_hand = (raw.float() / 255 - processor.mean[0]) / processor.deviation[0]
    torch.testing.assert_close(model.to_images(raw), by_hand)
    torch.testing.assert_close(model(raw), model(by_hand))
    found = evaluate_images(model, data.test)
    assert found.accuracy == model.card.metrics["test_accuracy"]


@pytest.mark.slow
def test_interrupted_and_resumed_it_ends_with_the_same_weights(
    recipe: Recipe, data: ImageTrainingData, trained: Path, tmp_path: Path
):
    out = tmp_path / "digits"
    train(recipe, data, out, device="cpu", stop_after_steps=137)  # in the middle of an epoch
    train(recipe, data, out, device="cpu", resume=True)
    assert_same_weights(trained, out)
    assert read_info(trained).metrics == read_info(out).metrics


def test_the_three_sets_share_no_image(data: ImageTrainingData):
    whole = open_images("digits")
    assert len(data.train) + len(data.validation) == len(whole.train)
    assert torch.equal(data.test.images, whole.test.images)
    rows = [set(map(bytes, one.images.flatten(1).numpy())) for one in (data.train, data.validation, data.test)]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]
    for label in range(10):
        n = int((whole.train.labels == label).sum())
        assert int((data.validation.labels == label).sum()) == round(0.1 * n)


def test_what_the_shares_of_the_classes_lose(data: ImageTrainingData):
    counts = [int((data.train.labels == label).sum()) + 1 for label in range(10)]
    losses = [-math.log(counts[label] / sum(counts)) for label in data.validation.labels.tolist()]
    assert class_share_loss(data.train, data.validation) == pytest.approx(sum(losses) / len(losses))


def test_the_state_is_of_these_images(recipe: Recipe, data: ImageTrainingData, tmp_path: Path):
    train(recipe, data, tmp_path / "digits", device="cpu", stop_after_steps=2)
    other = dataclasses.replace(data, sha256="0" * 64)
    with refused("images sha256"):
        train(recipe, other, tmp_path / "digits", device="cpu", resume=True)


def test_lion_steps_by_the_sign(recipe: Recipe):
    """Against the paper's program, weight by weight in Python."""
    torch.manual_seed(1)
    weight = nn.Parameter(torch.randn(7, dtype=torch.float64))
    rate, decay, (beta_step, beta_mean) = 0.01, 0.3, (0.9, 0.99)
    lion = Lion([{"params": [weight], "weight_decay": decay}], lr=rate, betas=(beta_step, beta_mean))
    expected, mean = weight.tolist(), [0.0] * 7
    for _ in range(5):
        gradient = torch.randn(7, dtype=torch.float64)
        weight.grad = gradient.clone()
        lion.step()
        for i, g in enumerate(gradient.tolist()):
            direction = math.copysign(1, beta_step * mean[i] + (1 - beta_step) * g)
            expected[i] -= rate * (direction + decay * expected[i])
            mean[i] = beta_mean * mean[i] + (1 - beta_mean) * g
    assert weight.tolist() == pytest.approx(expected, abs=1e-12)
    model = AttentionOnlyTransformer(recipe.model_config())
    groups = make_optimiser(model, dataclasses.replace(recipe, optimiser="lion")).param_groups
    names = {parameter: name.rsplit(".", 1)[-1] for name, parameter in model.named_parameters()}
    assert {names[p] for p in groups[1]["params"]} >= {"W_pos", "cls", "w", "b"}


def test_resumed_with_lion_too(recipe: Recipe, data: ImageTrainingData, tmp_path: Path):
    short = dataclasses.replace(
        recipe, optimiser="lion", betas=(0.9, 0.99),
        stages=(dataclasses.replace(recipe.stages[0], tokens=320, learning_rate=3e-4),),
    )  # fmt: skip
    whole = train(short, data, tmp_path / "whole", device="cpu")
    train(short, data, tmp_path / "parts", device="cpu", stop_after_steps=4)
    train(short, data, tmp_path / "parts", device="cpu", resume=True)
    assert_same_weights(whole, tmp_path / "parts")
    assert read_info(whole).recipe["optimiser"] == "lion"


def test_a_dry_run_counts_images(recipe: Recipe):
    run = dry_run(recipe, device="cpu")
    says(run.text, "9,600 images in 300 steps", "32 images in 1 pass")
    assert "images a second" in run.text and "tokens" not in run.text.split("token embedding)")[1]
    assert dry_run(dataclasses.replace(recipe, optimiser="lion")).state_bytes == run.state_bytes * 3 // 4


def test_a_recipe_is_as_its_card_has_it(recipe: Recipe):
    values = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe.from_dict(values) == recipe
    assert values["stages"][0]["images"] == 9600 and values["images"]["spec"] == "digits"
    assert not any("token" in key for key in (*values, *values["stages"][0])) and "corpus" not in values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("images = 9_600", "tokens = 9_600"), r"unknown keys tokens; known: images, batch_size"),
        (("batch_size = 32", "batch_size = 32\nsequence_length = 5"), "unknown keys sequence_length"),
        (("[images]", "[corpus]"), r"unknown keys .*known: spec"),
        (('[images]\nspec = "digits"', '[corpus]\nd_vocab = 99\n[images]\nspec = "digits"'), r"from \[images\], got"),
        (('objective = "classes"', ""), "unknown keys .*images"),
        (('read_out = "classes"', 'read_out = "vectors"'), "read_out = 'classes' and a pooling, got 'patches', 'vec"),
        (("label_smoothing = 0.1", "label_smoothing = 1"), "label_smoothing=1: expected"),
        (("seed = 3", 'optimiser = "sgd"'), r"optimiser"),
    ],
)
def test_recipes_that_do_not_fit_are_named(tmp_path: Path, change: tuple[str, str], message: str):
    assert change[0] in RECIPE
    path = tmp_path / "bad.toml"
    path.write_text(RECIPE.replace(*change))
    with pytest.raises(ValueError, match=message):
        load_recipe(path)


def test_a_model_of_vectors_trains_no_tokenizer(tmp_path: Path):
    path = tmp_path / "vectors.toml"
    path.write_text(
        "name = 'v'\n[model]\nn_layers = 1\nd_model = 8\nn_heads = 1\nd_head = 8\nn_ctx = 64\nread_in = 'vectors'\n"
        "[[stages]]\ntokens = 5\nsequence_length = 8\n"
    )
    with refused("tokens", "vectors"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_size": 16, "n_ctx": 17}, "reads 1 × 16 × 16 pixels in 10 classes, but digits has 1 × 8 × 8 in 10"),
        ({"d_out": 7}, "in 7 classes, but digits"),
    ],
)
def test_images_that_do_not_fit_the_model_are_named(recipe: Recipe, change: dict[str, int], message: str):
    other = dataclasses.replace(recipe, model={**recipe.model, **change})
    with pytest.raises(ValueError, match=message):
        OBJECTIVES["classes"].prepare(other)
    with refused("images", "--data"):
        OBJECTIVES["classes"].prepare(dataclasses.replace(recipe, images=dataclasses.replace(recipe.images, spec=None)))


def test_the_fashion_recipes_are_as_large_as_each_other():
    sizes = []
    for name in ("fashion-mssa", "fashion-mhsa", "fashion-vit"):
        recipe = load_recipe(name)
        assert recipe.counted == "images" and recipe.images is not None and len(recipe.images.classes) == 10
        sizes.append(count_parameters(recipe.model_config()))
    assert max(sizes) / min(sizes) < 1.03


@pytest.mark.parametrize(("name", "millions"), [("aot-mhsa-v", 15), ("aot-mssa-v", 22), ("vit-s", 22)])
def test_the_papers_recipes_are_its_models(name: str, millions: int):
    """Tables 1 and 2 of *aot* print 15M and 22M parameters."""
    recipe = load_recipe(name)
    assert recipe.model_config() == presets.config(name)
    assert round(count_parameters(recipe.model_config()) / 1e6) == millions
    stage = recipe.stages[-1]
    assert (recipe.optimiser, stage.batch_size, recipe.label_smoothing) == ("lion", 2048, 0.1)
    assert round(stage.tokens / (1_281_167 * 0.99)) == 150  # epochs
