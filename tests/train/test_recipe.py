"""Recipes: what TOML may say, the schedule, and the facts that the bundled comparison rests on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from aotlens.models import AttentionOnlyTransformer
from aotlens.train import Recipe, Stage, list_recipes, load_recipe
from aotlens.train.optimiser import learning_rate, make_optimiser

COMPARED = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt")


@pytest.mark.parametrize("name", list_recipes())
def test_bundled_recipes_load_and_survive_a_round_trip(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.description
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert recipe.data_section.source and recipe.data_section.license


def test_the_comparison_differs_in_architecture_and_learning_rate_only() -> None:
    recipes = [load_recipe(name) for name in COMPARED]
    sizes = set()
    for recipe in recipes:
        model = AttentionOnlyTransformer(recipe.model_config(4096))
        parts = ("attn.U", "attn.W_", "mlp.W_")
        sizes.add(sum(p.numel() for name, p in model.named_parameters() if any(part in name for part in parts)))
    assert sizes == {24 * 128**2}
    schedules = {
        (
            r.seed,
            r.corpus,
            s.tokens,
            s.batch_size,
            s.sequence_length,
            s.warmup_tokens,
            s.final_fraction,
            s.repeat_fraction,
        )
        for r in recipes
        for s in r.stages
    }
    assert len(schedules) == 1


def test_the_schedule_warms_up_linearly_and_falls_as_a_cosine() -> None:
    stage = Stage(
        tokens=1000, batch_size=1, sequence_length=10, learning_rate=0.01, warmup_tokens=100, final_fraction=0.1
    )
    rates = [learning_rate(stage, step) for step in range(stage.n_steps)]
    assert rates[:10] == pytest.approx([0.01 * (i + 1) / 10 for i in range(10)])
    expected = [0.01 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (i - 10) / 90))) for i in range(10, 100)]
    assert rates[10:] == pytest.approx(expected)


def test_a_short_stage_does_not_end_within_its_warm_up() -> None:
    stage = Stage(tokens=50_000, batch_size=4, sequence_length=250)  # warmup_tokens is 100,000 by default
    assert stage.n_steps == 50 and stage.warmup_steps == 5
    assert learning_rate(stage, 4) == stage.learning_rate


def test_weight_decay_acts_on_matrices_only() -> None:
    recipe = load_recipe("novels-2l-gpt")
    model = AttentionOnlyTransformer(recipe.model_config(300))
    decayed, others = (group["params"] for group in make_optimiser(model, recipe).param_groups)
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert {names[p].rsplit(".", 1)[-1] for p in decayed} == {"W_E", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "W_U"}
    assert {names[p].rsplit(".", 1)[-1] for p in others} == {"W_pos", "w", "b"}
    assert len(decayed) + len(others) == len(names)
    assert torch.is_tensor(decayed[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("colour = 1\n", "unknown keys colour"),
        ("name = 'x'\n[model]\nn_layers = 1\n", "missing keys stages"),
        ("name = 'x'\nstages = []\n[model]\n", "at least one stage"),
        ("name = 'x'\n[model]\nlayers = 2\n[[stages]]\ntokens = 5\n", "unknown model configuration keys: layers"),
        ("name = 'x'\n[model]\nd_vocab = 2\n[[stages]]\ntokens = 5\n", "d_vocab belongs in"),
        ("name = 'x'\n[model]\n[[stages]]\ntokens = 0\n", "tokens=0: expected"),
        ("name = \n", "not valid TOML"),
        (
            "name = 'x'\n[[stages]]\ntokens = 5\n"
            "[model]\nn_layers = 1\nd_model = 8\nn_heads = 1\nd_head = 8\nn_ctx = 64\n",
            "sequence_length = 256 .*set sequence_length to at most 64",
        ),
    ],
)
def test_bad_recipes_are_named(tmp_path: Path, change: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(change)
    with pytest.raises(ValueError, match=message):
        load_recipe(path)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="novels-12l-mssa"):
        load_recipe("novels-3l")
    with pytest.raises(ValueError, match="cannot be read"):
        load_recipe("nowhere.toml")
