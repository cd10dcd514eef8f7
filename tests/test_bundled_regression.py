"""The bundled models of in-context regression do what their page says, measured again on the stored weights."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import aotlens
from aotlens.checkpoints import bundled_folder, read_info
from aotlens.data import RegressionTask
from aotlens.denoise.regression import baseline_errors, read_layers
from aotlens.evaluate import regression_errors
from aotlens.heads.scores import attention_in_prompts
from aotlens.models import AttentionOnlyTransformer

NAMES = ("regression-5d-mhsa", "regression-5d-mssa", "regression-5d-transformer")
LARGER = ("regression-10d-mhsa", "regression-10d-mssa", "regression-10d-transformer", "regression-10d-sparse-mhsa")
TASK = RegressionTask(d=5)

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@functools.cache
def load(name: str) -> AttentionOnlyTransformer:
    return aotlens.load(name, device="cpu")


@pytest.mark.parametrize("name", (*NAMES, *LARGER))
def test_its_errors_are_those_of_its_card_on_other_prompts(name: str) -> None:
    info = read_info(bundled_folder() / name)
    metrics, trained = info.metrics, info.recipe["prompts"]
    task = RegressionTask(d=trained["d"], n_nonzero=trained["n_nonzero"])
    result = regression_errors(load(name), task, n_prompts=640, seed=5)
    spread = result.errors.std(0, ddof=1) * (1 / 640 + 1 / 1280) ** 0.5
    assert (np.abs(result.mean - np.array(metrics["error_by_examples"])) < 4.5 * spread + 1e-3).all()
    assert info.command == f"aotlens train {name}"
    if task.n_nonzero is not None:
        return
    least_squares = baseline_errors("least squares", task, n_prompts=640, seed=5)
    assert (result.mean[:5] > least_squares.mean[:5] - 0.02).all(), "nothing linear is better with so few examples"


def test_attention_alone_is_below_a_tenth_and_the_subspace_kind_has_left_the_plateau() -> None:
    after = {name: read_info(bundled_folder() / name).metrics["error_after_2d"] for name in (*NAMES, *LARGER)}
    assert max(after[name] for name in after if name.endswith("mhsa")) < 0.1
    assert after["regression-5d-mssa"] < 0.5 and after["regression-10d-mssa"] < 0.25


def test_they_are_of_one_size_and_small() -> None:
    infos = [read_info(bundled_folder() / name) for name in NAMES]
    sizes = [info.n_weights or 0 for info in infos]
    assert max(sizes) < 1.03 * min(sizes)
    files = [path for name in (*NAMES, *LARGER) for path in (bundled_folder() / name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 1.2e6


def test_a_head_copies_inputs_to_their_labels_and_the_answer_comes_layer_by_layer() -> None:
    model = load("regression-5d-mhsa")
    scores = attention_in_prompts(model, TASK.sample(64, 11, seed=3).tokens)
    assert scores["own_input"][0].max() > 0.9 and scores["all_labels"][1].max() > 0.8
    errors = read_layers(model, TASK, n_prompts=200, n_steps=2).probe_errors[:, 1:].mean(1)
    assert errors[1] > 0.9 and errors[4] < errors[3] < errors[2] < 0.7
