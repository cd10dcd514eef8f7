"""Views of in-context denoising without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.denoise import GaussianMixtures, LinearSubspaces, Spheres, attend, predict, stored, trainings
from aotlens.denoise.stored import scales
from aotlens.views.denoising import CURVES, ERRORS, FAMILY, MATRICES, PLANE, RUNS, DenoisingParameters
from tests.messages import refused, says
from tests.views.executed import same_by_python

TASKS = {
    "spheres": Spheres(n=2, d=1, radius=1.0, noise_variance=0.3),
    "subspaces": LinearSubspaces(n=2, d=1, signal_variance=1.0, noise_variance=0.3),
    "mixtures": GaussianMixtures(n=2, n_components=4, component_variance=0.02, noise_variance=0.3),
}
CHOICES = [
    DenoisingParameters(tokens=6, steps=2, scales="best", training="spheres-linear", run=1),
    DenoisingParameters(
        task="mixtures", components=4, energy="hopfield", query=(0.25, -1.0), training="mixtures-linear"
    ),
]


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
@pytest.mark.parametrize("params", CHOICES, ids=lambda params: params.task)
def test_its_python_gives_its_result_table_and_figure(view, params):
    same_by_python(view, params)


@pytest.mark.parametrize("task", TASKS)
def test_the_plane_is_the_librarys(task):
    params = DenoisingParameters(
        task=task, tokens=7, noise=0.3, components=4, alpha=0.8, beta=3.0, share=0.5, steps=4, seed=3
    )
    prompts = TASKS[task].sample(1, 7, 3)
    drawn = {trace.name: trace for trace in PLANE.figure(params, PLANE.result(params)).data}
    np.testing.assert_allclose(np.stack([drawn["context"].x, drawn["context"].y], 1), prompts.context[0])
    answers = {"query": prompts.query, "clean": prompts.target, "Bayes": predict(TASKS[task], prompts)}
    for name, points in answers.items():
        np.testing.assert_allclose([drawn[name].x[0], drawn[name].y[0]], points[0])
    eye = torch.eye(2, dtype=torch.float64)
    layer = attend(prompts.context, prompts.query, 3.0 * eye, 0.8 * eye, "softmax")[0]
    arrow, path = drawn["attention, one step"], drawn["4 steps"]
    np.testing.assert_allclose([arrow.x[1], arrow.y[1]], layer)
    np.testing.assert_allclose([path.x[1], path.y[1]], (prompts.query[0] + layer) / 2)  # half of attention's step size
    x, y, energy = (np.asarray(getattr(drawn["energy"], name)) for name in "xyz")
    point = np.array([x[11], y[40]])
    scores = 3.0 * prompts.context[0].numpy() @ point
    assert energy[40, 11] == pytest.approx(point @ point / 1.6 - np.log(np.exp(scores).sum()) / 3.0, rel=1e-5)


def test_errors_are_means_over_prompts_of_which_none_is_shown():
    params = DenoisingParameters(steps=3)
    task = Spheres(n=2, d=1, radius=1.0, noise_variance=0.1)
    prompts = task.sample(400, 20, 1000)
    result = ERRORS.result(params)
    figure = ERRORS.figure(params, result)
    mean = figure.data[0].y
    eye = torch.eye(2, dtype=torch.float64)
    layer = attend(prompts.context, prompts.query, 10.0 * eye, eye, "softmax")
    expected = [float((states - prompts.target).square().sum(1).mean()) for states in (prompts.query, layer)]
    assert len(mean) == 4 and list(mean[:2]) == pytest.approx(expected)
    bayes = float((predict(task, prompts) - prompts.target).square().sum(1).mean())
    assert figure.layout.shapes[1].y0 == pytest.approx(bayes)
    says(ERRORS.caption(params, result), f"{mean[1]:.3g} after one step", f"{bayes:.3g} by Bayes")
    assert not (prompts.context[0] == task.sample(1, 20, 0).context[0]).any()
    best = DenoisingParameters(scales="best")
    found = ERRORS.result(best)
    assert found.mean.attention_errors.mean() < result.mean.attention_errors.mean()
    says(ERRORS.caption(best, found), f"The best scales are α = {found.mean.alpha:.3g}")


def test_a_descent_to_infinity_is_said():
    params = DenoisingParameters(
        task="subspaces", energy="hopfield", beta=40.0, alpha=4.0, tokens=200, steps=60, share=2.0
    )
    result = ERRORS.result(params)
    assert bool(result.single.errors.isfinite().all()), "sixty steps do not leave float64's range; the picture may"
    says(ERRORS.caption(params, result), "drive the state to infinity")


def test_a_training_is_shown_as_it_is_stored():
    record = stored("subspaces", "linear")
    params = FAMILY.parse(training="subspaces-linear", run="1")
    figure = MATRICES.figure(params, MATRICES.result(params))
    np.testing.assert_allclose(figure.data[0].z, record.layers.W_QK[1], rtol=1e-6)
    np.testing.assert_allclose(figure.data[3].z, float(record.layers.alpha[1]) * np.eye(16), rtol=1e-5)
    products = [alpha * beta for alpha, beta in scales(record).values()]
    said = " ".join(view.caption(params, view.result(params)) for view in (CURVES, RUNS))
    says(said, f"αβ = {np.mean(products):.3g} ({min(products):.3g} to {max(products):.3g})", "Bayes 5.333")
    says(said, "the best is 0.3274 (the paper’s: αβ = 0.327)")


def test_a_training_is_one_that_exists_or_a_new_one(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    default = DenoisingParameters()
    assert (
        default.trained == "subspaces-softmax" and next(iter(default.limits()["training"].options)) == default.trained
    )
    with refused("training: expected one of subspaces-softmax, subspaces-linear", "'x'"):
        FAMILY.parse(training="x")
    with refused("run: expected one of 0, 1, 2, 3, 4, 5", "'77'"):
        FAMILY.parse(run=77)
    new = FAMILY.parse(training="new", epochs=2, context=12, prompts=50, runs=2, run=1)
    assert new.seeds == (0, 1) and CURVES.cost(new) == 0, "it is started"
    assert MATRICES.result(new).seed == 1 and new.trained in trainings() and CURVES.cost(new) > 0
    made = FAMILY.parse(training=new.trained)
    assert RUNS.frame(RUNS.result(made)).equals(RUNS.frame(RUNS.result(new)))
    hidden = {name for name, limit in made.limits().items() if limit.hidden}
    assert {"epochs", "attention", "components"} <= hidden and not hidden & {"alpha", "training", "run"}


def test_another_file_of_a_name_is_another_key(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    (tmp_path / "denoisers").mkdir()
    keys = set()
    for attention in ("linear", "softmax"):
        stored("spheres", attention).save(tmp_path / "denoisers" / "mine.safetensors")
        keys.add(RUNS.key(DenoisingParameters(training="mine")))
    assert len(keys) == 2
