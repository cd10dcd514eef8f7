"""The In-context denoising page without a browser: numbers against the library, its words and files."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.denoise import GaussianMixtures, LinearSubspaces, Spheres, attend, optimal_linear_scale, predict
from aotlens.views import View
from aotlens.views.denoising import ERRORS, PARAMETERS, PLANE
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.denoising.address import ADDRESS, DenoisingState
from app.pages.denoising.ids import FORM, PLANE_VIEWS, ids
from app.pages.denoising.service import Denoising, in_plane
from app.shell import ids as shell
from app.shell.views import tables
from tests.messages import refused, says

State = DenoisingState
TASKS = {
    "spheres": Spheres(n=2, d=1, radius=1.0, noise_variance=0.3),
    "subspaces": LinearSubspaces(n=2, d=1, signal_variance=1.0, noise_variance=0.3),
    "mixtures": GaussianMixtures(n=2, n_components=4, component_variance=0.02, noise_variance=0.3),
}


@pytest.fixture(scope="module")
def service() -> Denoising:
    return Denoising(Core.start(Settings()))


def result(service: Denoising, view: View, state: State) -> Any:
    return service.workshop.result(view, in_plane(state))


def traces(service: Denoising, state: State) -> dict[str, Any]:
    return {trace.name: trace for trace in PLANE.figure(in_plane(state), result(service, PLANE, state)).data}


@pytest.mark.parametrize("task", TASKS)
def test_the_plane_is_the_librarys(service: Denoising, task: Any):
    state = State(task=task, tokens=7, noise=0.3, components=4, alpha=0.8, beta=3.0, share=0.5, steps=4, seed=3)
    prompts = TASKS[task].sample(1, 7, 3)
    shown = traces(service, state)
    np.testing.assert_allclose(np.stack([shown["context"].x, shown["context"].y], 1), prompts.context[0])
    np.testing.assert_allclose([shown["query"].x[0], shown["query"].y[0]], prompts.query[0])
    np.testing.assert_allclose([shown["clean"].x[0], shown["clean"].y[0]], prompts.target[0])
    bayes = predict(TASKS[task], prompts)[0]
    np.testing.assert_allclose([shown["Bayes"].x[0], shown["Bayes"].y[0]], bayes)

    eye = torch.eye(2, dtype=torch.float64)
    layer = attend(prompts.context, prompts.query, 3.0 * eye, 0.8 * eye, "softmax")[0]
    arrow = shown["attention, one step"]
    np.testing.assert_allclose([arrow.x[1], arrow.y[1]], layer)
    halfway = (prompts.query[0] + layer) / 2  # half of attention's step size
    path = shown["4 steps"]
    assert len(path.x) == 5
    np.testing.assert_allclose([path.x[1], path.y[1]], halfway)

    x, y, energy = (np.asarray(getattr(shown["energy"], name)) for name in "xyz")
    point = np.array([x[11], y[40]])
    scores = 3.0 * prompts.context[0].numpy() @ point
    assert energy[40, 11] == pytest.approx(point @ point / 1.6 - np.log(np.exp(scores).sum()) / 3.0, rel=1e-5)


def test_the_query_goes_where_it_is_put(service: Denoising):
    state = State(query=(0.5, -0.25))
    shown = result(service, PLANE, state)
    descent = shown.descent
    assert descent.states[0, 0].tolist() == [0.5, -0.25]
    bayes = predict(
        Spheres(n=2, d=1, radius=1.0, noise_variance=0.1),
        replace(result(service, PLANE, State()).prompts, query=torch.tensor([[0.5, -0.25]], dtype=torch.float64)),
    )
    torch.testing.assert_close(descent.bayes, bayes)
    far = result(service, PLANE, State(query=(99.0, 0.0)))
    assert float(far.descent.states[0, 0, 0]) == far.reach == result(service, PLANE, State()).reach
    assert torch.equal(far.plane.energy, shown.plane.energy), "the energy does not depend on the query"
    means = [result(service, ERRORS, State(query=query)).mean for query in (None, (1.0, 1.0))]
    assert means[0] is means[1], "nor do errors of many prompts, which are made once"


def test_errors_are_means_over_many_prompts(service: Denoising):
    state = State(steps=3)
    task = Spheres(n=2, d=1, radius=1.0, noise_variance=0.1)
    prompts = task.sample(400, 20, 1000)
    found = result(service, ERRORS, state)
    figure = ERRORS.figure(in_plane(state), found)
    mean = figure.data[0].y
    assert len(mean) == 4
    assert mean[0] == pytest.approx(float((prompts.query - prompts.target).square().sum(1).mean()))
    eye = torch.eye(2, dtype=torch.float64)
    layer = attend(prompts.context, prompts.query, 10.0 * eye, eye, "softmax")
    assert mean[1] == pytest.approx(float((layer - prompts.target).square().sum(1).mean()))
    bayes = float((predict(task, prompts) - prompts.target).square().sum(1).mean())
    assert figure.layout.shapes[1].y0 == pytest.approx(bayes)
    says(ERRORS.caption(in_plane(state), found), f"{mean[1]:.3g} after one step", f"{bayes:.3g} by Bayes")
    own = result(service, PLANE, state)
    says(PLANE.caption(in_plane(state), own), f"{float(own.descent.errors[0, 0]):.3g} from the clean token")


def test_the_best_scales_lose_no_more_than_others(service: Denoising):
    state = State(noise=0.3, tokens=30)
    alpha, beta = service.best(in_plane(state)).values()

    def lost(alpha: float, beta: float) -> float:
        found = result(service, ERRORS, replace(state, alpha=alpha, beta=beta))
        return float(found.mean.attention_errors.mean())

    for other in ((alpha, 1.3 * beta), (alpha, beta / 1.3), (1.2 * alpha, beta), (alpha / 1.2, beta)):
        assert lost(alpha, beta) <= lost(*other) + 1e-4
    alpha, beta = service.best(in_plane(replace(state, energy="hopfield"))).values()
    product = optimal_linear_scale(TASKS["spheres"], 30).beta
    assert alpha * beta == pytest.approx(product, abs=0.001)


def test_a_descent_to_infinity_is_said(service: Denoising):
    state = State(task="subspaces", energy="hopfield", beta=40.0, alpha=4.0, tokens=200, steps=60, share=2.0)
    shown = result(service, PLANE, state).descent.errors
    assert bool(shown.isfinite().all())  # sixty steps do not leave float64's range; the picture may
    assert float(shown[-1]) > 1e9


def test_the_form_and_the_address_stay_within_their_bounds(service: Denoising):
    form: dict[str, Any] = dict.fromkeys(PARAMETERS) | {"task": "mixtures", "energy": "memory"}
    assert service.asked(**form) == in_plane(State(task="mixtures"))
    assert service.asked(**{**form, "beta": 1e9}).beta == 40
    state = State(
        task="mixtures", energy="hopfield", tokens=9, noise=0.35, components=5, alpha=1.2, beta=2.5, share=0.4, steps=7,
        seed=12, query=(0.25, -1.5),
    )  # fmt: skip
    assert ADDRESS.read(ADDRESS.format(state).partition("?")[2]) == (state, [])
    shown = {name: getattr(state, name) for name in FORM}
    assert service.values(shown, [0.25, -1.5]) == in_plane(state)
    with refused("the address could say", "[0.25, 'x']", error=ValueError):
        service.values(shown, [0.25, "x"])
    assert in_plane(replace(state, task="spheres")).components == State().components, "only a mixture has others"
    state, sentences = ADDRESS.read("?task=torus&alpha=-3&query=1,2,3")
    assert state == State(alpha=0.05) and len(sentences) == 3


def test_files_hold_what_is_shown(service: Denoising):
    files = tables(service.workshop, PLANE_VIEWS, service.values)

    def table(panel: str) -> pd.DataFrame:
        return pd.read_csv(io.BytesIO(files[shell.export(panel, "csv")](shown={"steps": 5}, query=[0.5, 0.5]).content))

    plane = table(ids.PLANE)
    assert plane.kind.value_counts().to_dict() == {"context": 20, "path": 6, "attention": 1, "Bayes": 1, "clean": 1}
    assert plane[plane.kind == "path"].iloc[0][["x", "y"]].tolist() == [0.5, 0.5]
    errors = table(ids.ERRORS)
    np.testing.assert_allclose(
        errors.this_query, result(service, PLANE, State(steps=5, query=(0.5, 0.5))).descent.errors[:, 0], rtol=1e-12
    )
    with pytest.raises(RequestError, match="nothing to save"):
        files[shell.export(ids.PLANE, "csv")](shown=None, query=None)
