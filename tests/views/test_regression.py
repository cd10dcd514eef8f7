"""Views of in-context regression without an app: what was chosen, the executed call, what is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.conventions import minus
from aotlens.data import RegressionTask
from aotlens.denoise.regression import baseline_errors, read_layers
from aotlens.denoise.regression.baselines import RegressionComparison
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views.regression import FAMILY, LAYERS, SUPPORT, WITHOUT
from tests.messages import refused
from tests.views.executed import same_by_python


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models with random weights that read five and three numbers."""
    folder = tmp_path_factory.mktemp("models")
    for name, d in (("five", 5), ("three", 3)):
        ends = {"read_in": "vectors", "d_in": d, "read_out": "vectors", "d_out": 1}
        cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=4 * d + 1, seed=2, **ends)
        save_checkpoint(folder / name, AttentionOnlyTransformer(cfg), CheckpointInfo(name=name))
    return folder


@pytest.fixture(scope="module")
def five(folder):
    return str(folder / "five")


def test_what_is_chosen_is_a_task_and_its_prompts(five):
    params = FAMILY.parse(five, nonzero=2, noise=0.25, seed=3)
    assert params.task.run() == RegressionTask(d=5, n_nonzero=2, noise_std=0.25)
    prompts = RegressionTask(d=5, n_nonzero=2, noise_std=0.25).sample(7, 11, 3)
    np.testing.assert_array_equal(params.prompts(7).run().tokens, prompts.tokens)


@pytest.mark.parametrize(
    ("models", "params", "said"),
    [((), {}, "got 0"), (("five", "three"), {}, "equally many"),
     (("five",), {"noise": 9.0}, "noise: expected a number from 0 to 2, got 9.0"), (("five",), {"seed": -1}, "seed")],
)  # fmt: skip
def test_what_cannot_be_chosen_is_refused(folder, models, params, said):
    with refused(said):
        FAMILY.parse(*(str(folder / name) for name in models), **params)


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
def test_its_python_gives_its_result_table_and_figure(view, five):
    params = FAMILY.parse(five, nonzero=2)
    result = same_by_python(view, params)
    said = view.caption(params, result)
    if view.name in ("maps", "map"):
        assert f"says {minus(result.answers[-1], '+.3f')}, the label is {minus(result.labels[-1], '+.3f')}" in said
    else:
        assert five in said or str(result.n_prompts if view is SUPPORT else 128) in said


def test_the_call_is_the_librarys(five):
    params, model = FAMILY.parse(five, scale=0.5), aotlens.load(five)
    expected = read_layers(model, RegressionTask(d=5, input_scale=0.5), n_prompts=200, seed=0)
    np.testing.assert_array_equal(LAYERS.result(params).probe_errors, expected.probe_errors)


def test_what_is_missing_is_said_and_part_of_the_key(five):
    with refused("Set Nonzero weights below the dimension"):
        SUPPORT.result(FAMILY.parse(five))
    assert SUPPORT.key(FAMILY.parse(five)) != SUPPORT.key(FAMILY.parse(five, nonzero=2))
    assert WITHOUT.key(FAMILY.parse(five)) != WITHOUT.key(FAMILY.parse(five, how="zero"))
    assert LAYERS.key(FAMILY.parse(five)) != LAYERS.key(replace(FAMILY.parse(five), axis="log")), "the axis is drawn"
    assert WITHOUT.key(FAMILY.parse(five)) == WITHOUT.key(replace(FAMILY.parse(five), axis="log")), (
        "where there is none, nothing changes"
    )


def test_errors_of_different_tasks_are_not_compared():
    one, other = (baseline_errors("averaging", RegressionTask(d=d), n_prompts=3, n_points=4) for d in (2, 3))
    with refused("expected errors on one task, got 2"):
        RegressionComparison([one, other])
    with refused("got 0"):
        RegressionComparison([])
    frame = RegressionComparison([one, one]).to_frame()
    assert len(frame) == 8 and set(frame.name) == {"averaging"}
