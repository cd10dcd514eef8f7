"""Retraining with other windows, what influences and TracIn predict of it, and the removal of windows."""

from __future__ import annotations

import dataclasses

import joblib
import numpy as np
import pytest
import scipy.stats
import torch

from aotlens.dynamics import InfluenceCheck, Removal, check_influence, influence, recipe_run, remove_windows, retrain
from aotlens.dynamics.influence_check import _draw, _leaving_one, _matched, _tracin, require_same_run
from aotlens.dynamics.influence_measures import as_measures
from aotlens.train import OBJECTIVES
from tests.dynamics.small_runs import recipe, text
from tests.messages import refused

MEASURES = ["ov_norm 0.0", "loss"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    chosen = recipe(steps=20)
    spec = text(tmp_path_factory.mktemp("corpus") / "texts")
    return recipe_run((chosen, OBJECTIVES["next_token"].prepare(chosen, spec)))


@pytest.fixture(scope="module")
def found(run, tmp_path_factory):
    return influence(run, MEASURES, folder=tmp_path_factory.mktemp("states"))


@pytest.fixture(scope="module")
def checked(run, found) -> InfluenceCheck:
    return check_influence(run, found, n=12, n_snapshots=4, seed=3)


def values_of(run, weights, eps_root=0.0) -> np.ndarray:
    model = run.train(weights, eps_root=eps_root)
    return np.array([float(measure(model)) for measure in as_measures(MEASURES, run).values()])


def test_retraining_with_weights_and_in_another_order(run):
    """A window that weighs 0 is as if it were not there; twice the weight, as if it stood there twice."""
    plain = retrain(run, MEASURES, n_moments=5)
    assert plain.steps.tolist() == [0, 5, 10, 15, 20]
    np.testing.assert_allclose(plain.values[:, -1], values_of(run, None), rtol=1e-6)
    same = retrain(run, MEASURES, weights=np.full(120, 3.0), order=np.arange(120), n_moments=1)
    np.testing.assert_allclose(same.values[:, -1], plain.values[:, -1], rtol=1e-4)
    weights, order = np.ones(120), np.arange(120)
    weights[[12, 13]] = 2, 0
    order[13] = 12
    twice = retrain(run, MEASURES, weights=weights, n_moments=1), retrain(run, MEASURES, order=order, n_moments=1)
    np.testing.assert_allclose(twice[0].values, twice[1].values, rtol=1e-4)
    assert not np.allclose(twice[0].values, plain.values[:, -1:], rtol=1e-6)
    for given, said in (
        ({"weights": np.ones(7)}, "each of 120 windows, got 7"),
        ({"weights": np.full(120, np.nan)}, "not finite"),
        ({"weights": np.zeros(120)}, "step 0"),
        ({"order": np.full(120, 120)}, "from 0 to 119"),
        ({"steps": 21}, "steps=21"),
    ):
        with refused(said):
            retrain(run, MEASURES, **given)


@pytest.mark.long
def test_what_is_found_is_what_retraining_gives(run, found, checked):
    rng = np.random.default_rng(3)
    subset = _draw(rng, 0.1, found.windows.steps)
    assert len(subset) == 11 and (found.windows.steps[subset] > 0).all()
    weights = np.ones(120)
    weights[subset] = 0
    plain, without = values_of(run, None, found.eps_root), values_of(run, weights, found.eps_root)
    np.testing.assert_allclose(plain, found.values, rtol=1e-5)
    np.testing.assert_allclose(checked.found[:, 0], without - plain, rtol=1e-3, atol=1e-6)
    assert not np.allclose(values_of(run, None), found.values, rtol=1e-5)  # without ε in the root it is another run
    np.testing.assert_allclose(checked.predicted[:, 0], -found.per_window[:, subset].sum(1))
    for place, name in enumerate(MEASURES):
        expected = scipy.stats.spearmanr(checked.predicted[place], checked.found[place]).statistic
        assert checked.correlation(name) == pytest.approx(expected)
        low, high = checked.interval(name)
        assert low <= expected <= high
        assert checked.difference_interval(name)[0] <= expected - checked.tracin_correlation(name)
    assert checked.correlation("loss") > 0.6  # 20 steps are nearly linear
    with refused("measure='x'"):
        checked.correlation("x")


@pytest.mark.long
def test_tracin_is_a_sum_of_gradient_products(run, found):
    """Of every window at two moments, by gradients of one window's loss after another."""
    measures = as_measures(MEASURES, run)
    expected = np.zeros((2, 120))

    def at(step, model):
        if step not in (10, 20):
            return
        parameters = list(model.parameters())
        aims = [torch.autograd.grad(measure(model), parameters, allow_unused=True) for measure in measures.values()]
        products = np.zeros((2, 120))
        for window in range(120):
            row = run.rows(window // 6)[window % 6 : window % 6 + 1]
            own = torch.autograd.grad(run.losses(model, row).mean(), parameters)
            for place, aim in enumerate(aims):
                products[place, window] = sum(
                    float((a * b).sum()) for a, b in zip(aim, own, strict=True) if a is not None
                )
        centred = products.reshape(2, 20, 6) - products.reshape(2, 20, 6).mean(2, keepdims=True)
        expected[:] -= run.rate(min(step, 19)) * centred.reshape(2, 120) / 6

    run.train(at=at, eps_root=found.eps_root)
    np.testing.assert_allclose(
        _tracin(run, measures, found, 2), expected, rtol=1e-3, atol=1e-6 * np.abs(expected).max()
    )


def test_subsets_leave_every_step_a_window(rng):
    steps = np.repeat(np.arange(30), 2)
    for _ in range(20):
        drawn = _draw(rng, 0.1, steps)
        assert len(set(drawn.tolist())) == 6 and (steps[drawn] > 0).all()
        assert (np.bincount(np.delete(steps, drawn), minlength=30) > 0).all()
    with refused("leave each step one", "29 of 58"):
        _draw(rng, 0.5, steps)
    with refused("at most 30 windows, got one of 31"):
        _leaving_one(np.arange(60), steps, 31)
    chosen = _leaving_one(np.arange(60), steps, 10)
    assert chosen.tolist() == list(range(0, 20, 2))
    for _ in range(5):
        matched = _matched(rng, chosen, steps)
        assert np.bincount(steps[matched]).tolist() == np.bincount(steps[chosen]).tolist()
        assert len(set(matched.tolist())) == 10


@pytest.mark.long
def test_windows_at_the_ends_are_removed_beside_random_ones_of_their_steps(run, found):
    removed = remove_windows(run, found, "loss", top=0.05, n_random=4, n_moments=3)
    weights = np.ones(120)
    weights[_leaving_one(found.helpful(120, "loss"), found.windows.steps, 6)] = 0
    assert removed.steps.tolist() == [0, 10, 20]
    assert removed.without_helpful[-1] == pytest.approx(values_of(run, weights, found.eps_root)[1], rel=1e-4)
    assert removed.whole[-1] == pytest.approx(values_of(run, None, found.eps_root)[1], rel=1e-5)
    assert removed.without_helpful[-1] > removed.whole[-1] > removed.without_harmful[-1]
    helpful, harmful = removed.effects
    spread = removed.random_helpful[:, -1].std(ddof=1)
    assert helpful == pytest.approx((removed.without_helpful[-1] - removed.random_helpful[:, -1].mean()) / spread)
    assert helpful > 0 > harmful
    assert len(removed.to_frame()) == 3 * (1 + 2 + 8)
    constant = dataclasses.replace(removed, random_helpful=np.ones((4, 3)))
    assert isinstance(constant, Removal) and np.isnan(constant.effects[0])


@pytest.mark.long
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_two_at_once_give_what_one_gives(run, found, checked, backend):
    with joblib.parallel_config(backend=backend, n_jobs=2):
        other = check_influence(run, found, n=12, n_snapshots=4, seed=3)
    np.testing.assert_allclose(other.tracin, checked.tracin, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(other.found, checked.found, rtol=1e-4, atol=1e-6)


def test_an_influence_of_another_run_is_refused(run, found, tmp_path):
    same = recipe_run((recipe(steps=20, description="in other words"), run.objective.data))
    require_same_run(same, found)
    for other in ({"seed": 1}, {"weight_decay": 0.5}, {"model": {"d_mlp": 8}}, {"stage": {"learning_rate": 1e-3}}):
        with refused("another run", "find it again"):
            check_influence(recipe_run((recipe(steps=20, **other), run.objective.data)), found)
    with refused("the influence's", "ov_norm 0.0, loss"):
        check_influence(run, found, measures=["loss"])
    for more, said in (({"drop": 0.0}, "drop=0.0"), ({"drop": 0.99}, "leave each step one"), ({"n": 7}, "n=7")):
        with refused(said):
            check_influence(run, found, **more)
    with refused("top=0.001"):
        remove_windows(run, found, top=0.001)
