"""The tab of trained layers: stored trainings are shown as they are, new ones are made, kept and stopped."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.denoise import TASKS, TrainingSettings, landscape_around, stored, train_layers, trainings
from aotlens.denoise.kept import BEST, scales
from aotlens.views.denoising import CURVES, MATRICES, RUNS, SCALES
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.denoising.address import ADDRESS, TRAINING, DenoisingState
from app.pages.denoising.ids import ids
from app.pages.denoising.service_training import TrainingRequest, Trainings, order_of
from app.shell import ids as shell
from app.shell.views import table
from tests.app.conftest import choose, settled, wait, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SMALL = TrainingRequest(task="spheres", attention="linear", epochs=2, rate=0.01, context=12, prompts=50, runs=2)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainings:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    return Trainings(Core.start(Settings()))


def test_stored_trainings_are_shown_as_they_are(service: Trainings):
    assert service.first() == "subspaces-softmax"
    record = stored("subspaces", "linear")
    layers = record.layers
    picked = service.of("subspaces-linear", layers.seeds[1])
    figure = MATRICES.figure(picked, service.workshop.result(MATRICES, picked))
    np.testing.assert_allclose(figure.data[0].z, layers.W_QK[1], rtol=1e-6)
    np.testing.assert_allclose(figure.data[3].z, float(layers.alpha[1]) * np.eye(16), rtol=1e-5)
    products = [alpha * beta for alpha, beta in scales(record).values()]
    said = " ".join(view.caption(picked, record) for view in (CURVES, RUNS))
    assert f"αβ = {np.mean(products):.3g} ({min(products):.3g} to {max(products):.3g})" in said
    assert "the best is 0.3274 (the paper’s: αβ = 0.327)" in said and "Bayes 5.333" in said


def test_the_loss_is_of_the_grid_around_what_was_found(service: Trainings):
    record = stored("spheres", "linear")
    picked = service.of("spheres-linear", 2)
    found = service.workshop.result(SCALES, picked)
    shown, points = found.landscape, scales(record)
    np.testing.assert_array_equal(shown.loss, landscape_around(record).loss)
    names = {trace.name for trace in SCALES.figure(picked, found).data}
    assert {"seed 2", "mean of the runs"} < names and "seed 1" not in names
    assert BEST not in points and len(points) == len(record.layers.seeds)
    for alpha, beta in points.values():
        assert 0 < alpha < float(shown.alphas[-1]) and 0 < beta < float(shown.betas[-1])
    prompts = TASKS["spheres"].sample(200, record.layers.settings.n_context, 2 * record.layers.seeds[0] + 1)
    alpha, beta = float(shown.alphas[20]), float(shown.betas[30])
    moment = prompts.context.mT @ prompts.context / prompts.context.shape[1]
    estimate = alpha * beta * (prompts.query[:, None] @ moment)[:, 0]
    expected = float((estimate - prompts.target).square().sum(1).mean())
    assert float(shown.loss[20, 30]) == pytest.approx(expected)


def test_a_training_is_made_and_kept(service: Trainings):
    job = wait(service.start(SMALL))
    assert job.state == "done", job.error
    assert job.result in trainings()
    settings = TrainingSettings(n_prompts=50, batch_size=50, n_context=12, n_epochs=2, n_test_prompts=50)
    expected = train_layers(TASKS["spheres"], "linear", settings, seeds=range(2))
    kept = service.record(job.result).layers
    np.testing.assert_allclose(kept.test_loss, expected.test_loss, rtol=1e-6)
    frame = pd.read_csv(io.BytesIO(table(service.workshop, CURVES, service.of(job.result, 0)).content))
    np.testing.assert_allclose(frame.test_loss_seed_1, expected.test_loss[1], rtol=1e-6)
    assert np.isnan(frame.train_loss_seed_0[0]) and len(frame) == 3


def test_a_stopped_training_leaves_nothing(service: Trainings):
    long = TrainingRequest(task="mixtures", attention="softmax", epochs=500, rate=0.01, context=50, prompts=100, runs=2)
    job = service.start(long)
    service.jobs.stop()
    assert wait(job).state == "stopped"
    assert job.key not in trainings() and not any("mixtures-softmax-500" in name for name in trainings())


def test_names_and_forms_that_cannot_be(service: Trainings):
    with pytest.raises(RequestError, match=r"No training is called 'x'\. There are: subspaces-linear"):
        service.record("x")
    assert order_of(task="spheres", attention="linear", **dict.fromkeys(TRAINING)).epochs == 150
    assert service.options("x")[-1] == {"value": "x", "label": "x (not here)"}


def test_it_opens_on_stored_results_and_trains(open_page):
    page: Page = open_page(ADDRESS.format(DenoisingState(tab="training", training="mixtures-linear", run=2)))
    record = stored("mixtures", "linear")
    expect(page.locator(f"#{shell.body(ids.TRAINED)} > div")).to_have_text(
        [view.caption(None, record) for view in (CURVES, RUNS)]
    )
    page.locator(f"#{shell.graph(ids.MATRICES)} .heatmaplayer image").first.wait_for()
    page.locator(f"#{shell.graph(ids.SCALES)} .heatmaplayer image").wait_for()
    written(page, "run", "2")
    rows = page.locator(f"#{shell.body(ids.RUNS)} tbody tr")
    rows.first.scroll_into_view_if_needed()
    expect(rows).to_have_count(len(record.layers.seeds))
    for name, key in (("epochs", "Home"), ("context", "Home"), ("prompts", "Home"), ("runs", "Home")):
        thumb = page.locator(f"#denoising-form-{name} [role=slider]")
        thumb.focus()
        choose(page, page.keyboard.press, key)
        expect(thumb).to_have_attribute("aria-valuenow", str(int(TRAINING[name].least)))
    settled(page)
    choose(page, page.click, f"#{shell.start(ids.FORM)}")
    page.locator(f"#{shell.progress(ids.FORM)} >> text=done. It is kept as spheres-linear-1-epochs").wait_for()
    page.wait_for_function("() => new URLSearchParams(location.search).get('training').startsWith('spheres-linear-1-')")
    expect(page.locator(f"#{shell.body(ids.TRAINED)}")).to_contain_text(
        "1 run of linear attention on spheres, 1 epoch:"
    )
