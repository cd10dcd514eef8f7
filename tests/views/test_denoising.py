"""Views of in-context denoising without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

import pandas as pd
import pytest

from aotlens.denoise import GaussianMixtures
from aotlens.views.denoising import CURVES, ERRORS, MATRICES, PLANE, RUNS, SCALES, InPlane, Trained, best_scales

PLANES = [InPlane(tokens=6, steps=2), InPlane(task="mixtures", components=4, energy="hopfield", query=(0.25, -1.0))]


@pytest.mark.parametrize("view", [PLANE, ERRORS], ids=lambda view: view.name)
@pytest.mark.parametrize("chosen", PLANES, ids=lambda chosen: chosen.task)
def test_its_python_gives_its_result_table_and_figure(view, chosen):
    result = view.result(chosen)
    space: dict[str, object] = {}
    exec(view.python(chosen), space)
    pd.testing.assert_frame_equal(space["table"], view.frame(result))
    assert space["figure"].to_json() == view.figure(chosen, result).to_json()


@pytest.mark.parametrize("view", [CURVES, MATRICES, SCALES], ids=lambda view: view.name)
def test_a_trainings_too(view):
    chosen = Trained(training="spheres-linear", run=1)
    result = view.result(chosen)
    space: dict[str, object] = {}
    exec(view.python(chosen), space)
    pd.testing.assert_frame_equal(space["table"], view.frame(result))
    assert space["figure"].to_json() == view.figure(chosen, result).to_json()
    assert "spheres" in view.caption(chosen, result)


def test_another_file_of_a_name_is_another_key():
    one, other = (Trained(training="mine", run=0, stamp=stamp) for stamp in (1, 2))
    assert RUNS.call(one).source == RUNS.call(other).source and RUNS.call(one).stamps != RUNS.call(other).stamps
    assert RUNS.key(one) != RUNS.key(other)


def test_prompts_of_the_mean_are_others_than_the_one():
    chosen = PLANES[1]
    task = GaussianMixtures(n=2, n_components=4, radius=1.0, component_variance=0.02, noise_variance=0.1)
    assert chosen.drawn_from.run() == task
    assert not (chosen.many.run().context[0] == task.sample(1, 20, 0).context[0]).any()


def test_the_best_scales_are_within_the_sliders():
    found = best_scales(InPlane(energy="hopfield", noise=2.0))
    assert found["alpha"] == 1.0 and 0.1 <= found["beta"] <= 40
