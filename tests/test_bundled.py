"""The bundled checkpoints show what they are there to show, measured again on the stored weights."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, bundled_folder, read_info, render_card, verify
from aotlens.data import open_corpus
from aotlens.data.images import open_images
from aotlens.evaluate import evaluate_images, images_of, masked_predictions, repeat_losses, validation_loss
from aotlens.heads import (
    attention_by_place,
    motif_scores,
    open_bracket,
    previous_indentation,
    previous_use,
    targeted_attention,
)
from aotlens.models import AttentionOnlyTransformer
from aotlens.train import load_recipe

BUNDLED = sorted(path.parent.name for path in bundled_folder().glob("*/config.json"))
OF_IMAGES = [name for name in BUNDLED if read_info(bundled_folder() / name).words.counted == "images"]
OF_TEXT = [name for name in BUNDLED if read_info(bundled_folder() / name).words.counted == "tokens"]
MASKED = ("novels-4l-masked",)  # see both sides: their loss is on hidden tokens, beside a unigram model's

COMPARED = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt")


pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@functools.cache
def load(name: str) -> AttentionOnlyTransformer:
    return aotlens.load(name, device="cpu")


def info(name: str) -> CheckpointInfo:
    return read_info(bundled_folder() / name)


def test_there_are_some_and_together_they_are_small() -> None:
    assert {"novels-1l-mhsa", "novels-2l-mhsa", "code-2l-mhsa", *COMPARED} <= set(BUNDLED)
    size = sum(path.stat().st_size for path in Path(bundled_folder()).rglob("*") if path.is_file())
    assert size <= 40e6


@pytest.mark.parametrize("name", BUNDLED)
def test_each_is_whole_and_says_how_to_train_it_again(name: str) -> None:
    assert verify(bundled_folder() / name) == []
    described = info(name)
    assert described.recipe == json.loads(json.dumps(load_recipe(name).to_dict()))
    assert described.command.startswith(f"aotlens train {name}") and described.device and described.seed is not None
    assert described.corpus["sha256"] and described.corpus["source"] and described.corpus["license"]
    assert described.card == render_card(described)


@pytest.mark.parametrize("name", OF_TEXT)
def test_those_of_text_know_their_text(name: str) -> None:
    assert info(name).corpus["validation"]
    assert load(name).unigram_counts.sum() > 1_000_000


@pytest.mark.parametrize("name", OF_IMAGES)
def test_those_of_images_see_what_their_cards_say(name: str) -> None:
    """A hundred images of the test set are right about as often as all 10,000 were."""
    metrics, model = info(name).metrics, load(name)
    assert metrics["test_accuracy"] > 0.88 and metrics["test_images"] == 10_000
    assert metrics["validation_images"] == 6000 and model.image_processor.data == "Fashion-MNIST"
    found = evaluate_images(model, images_of(model, open_images("fashion-sample")))
    low, high = found.accuracy_interval
    assert low < metrics["test_accuracy"] < high
    assert "nats per image" in info(name).card and "| classes | T-shirt/top, " in info(name).card


def test_those_of_images_are_one_size() -> None:
    folder = bundled_folder()
    sizes = [info(name).n_weights for name in OF_IMAGES]
    assert max(sizes) < 1.03 * min(sizes)
    files = [path for name in OF_IMAGES for path in (folder / name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 8e6


@pytest.mark.parametrize("name", [name for name in OF_TEXT if name not in MASKED])
def test_each_is_below_a_bigram_model_by_the_margin(name: str) -> None:
    metrics = info(name).metrics
    margin = 0.1 if name in ("novels-1l-mhsa", "novels-2l-rotary-mssa") else 0.25
    assert metrics["bigram_loss"] - metrics["validation_loss"] >= margin


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_model_is_far_below_a_unigram_model(name: str) -> None:
    metrics = info(name).metrics
    assert metrics["unigram_loss"] - metrics["masked_loss"] >= 1.5
    assert metrics["masked_accuracy"] >= 0.2 and metrics["masked_tokens"] > 100_000
    assert "validation_loss" not in metrics, "next tokens are before its eyes"


def test_the_masked_model_guesses_from_both_sides() -> None:
    model = load("novels-4l-masked")
    assert model.tokenizer is not None and model.sees_later_keys
    guesses = {
        "He shook<|mask|> head and went out of the room.": {" his", " her"},
        '"I do not know what you mean,"<|mask|> she, with a smile.': {" said"},
    }
    for text, expected in guesses.items():
        tokens = model.to_tokens(text)[0]
        hidden = int((tokens == model.tokenizer.mask_id).nonzero())
        assert masked_predictions(model, tokens, hidden, k=1).str_tokens[0] in expected
    rows = model.to_tokens("The lady at the window saw that the rain had not yet come to an end. " * 3)
    places = attention_by_place(model, rows)
    assert places["previous_token"].max() >= 0.7 and places["next_token"].max() >= 0.4
    with pytest.raises(ValueError, match="only a causal model"):
        validation_loss(model, rows)


def test_the_compared_models_differ_in_their_layers_alone() -> None:
    models = [load(name) for name in COMPARED]
    sizes = {sum(w.numel() for b in m.blocks for w in b.parameters() if w.ndim >= 2) for m in models}
    assert sizes == {393_216}
    assert [m.cfg.attention for m in models] == ["mssa", "mhsa", "mhsa"]
    assert [m.cfg.attn_only for m in models] == [True, True, False]
    recipes = [info(name).recipe for name in COMPARED]
    for key in ("stages", "seed", "corpus", "weight_decay", "betas", "clip"):
        assert recipes[0][key] == recipes[1][key] == recipes[2][key]


def test_the_two_layer_model_has_an_induction_head() -> None:
    model = load("novels-2l-mhsa")
    scores = motif_scores(model, seed=11)
    assert scores["induction"][1].max() >= 0.5
    assert scores["previous_token"][0].max() >= 0.5
    assert repeat_losses(model, seed=11).gain >= 3.0


def test_the_one_layer_model_is_the_clean_case() -> None:
    cfg = load("novels-1l-mhsa").cfg
    assert (cfg.n_layers, cfg.norm, cfg.positions, cfg.attn_only) == (1, None, "qk", True)


@pytest.mark.slow
def test_the_code_model_has_heads_for_brackets_indentation_and_self() -> None:
    model = load("code-2l-mhsa")
    assert model.tokenizer is not None
    held_out = set(info("code-2l-mhsa").corpus["validation"])
    rows = []
    for document in open_corpus("stdlib").documents():
        if document.name in held_out:
            ids = model.tokenizer.encode(document.text)
            rows += [[0, *ids[start : start + 255]] for start in range(0, len(ids) - 254, 255)]
        if len(rows) >= 64:
            break
    tokens = torch.tensor(rows)
    texts = [model.tokenizer.str_tokens(row) for row in rows]
    found = {}
    for name, mark in {
        "open bracket": open_bracket,
        "indentation": previous_indentation,
        "self": functools.partial(previous_use, word="self"),
    }.items():
        found[name] = targeted_attention(model, tokens, torch.stack([mark(text) for text in texts]))
    assert found["open bracket"].ratio[1, 1] >= 3 and found["open bracket"].attention[1, 1] >= 0.1
    assert found["indentation"].ratio[1, 0] >= 2
    assert found["self"].ratio[0, 0] >= 4 and found["self"].attention[0, 0] >= 0.05


def test_text_comes_back_from_a_bundled_tokenizer() -> None:
    model = load("novels-2l-mhsa")
    tokens = model.to_tokens("It was a bright cold day in April.")
    assert model.to_string(tokens[0, 1:]) == "It was a bright cold day in April."
    assert torch.isfinite(model(tokens)).all()
