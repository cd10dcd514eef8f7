"""The linear map, the means and the neighbours, against scikit-learn and plain numpy; errors recomputed from y."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from aotlens.distill import distill_heads
from aotlens.models import AttentionOnlyTransformer

from .conftest import FAST, build, random_windows

HEAD = (1, 1)


def inputs_and_outputs(model: AttentionOnlyTransformer, windows: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """x and y of one head, `[tokens, d_model]`, from the caches of TransformerLens."""
    _, cache = model.run_with_cache(windows, names_filter=lambda name: "blocks.1" in name)
    norm = model.blocks[1].ln1
    x = torch.nn.functional.layer_norm(
        cache["blocks.1.hook_resid_pre"], (model.cfg.d_model,), norm.w, norm.b, model.cfg.norm_eps
    )
    y = cache["blocks.1.attn.hook_z"][:, :, HEAD[1]] @ model.W_O[HEAD]
    return x.flatten(0, 1).numpy(), y.flatten(0, 1).numpy()


def ratio(y: np.ndarray, guess: np.ndarray, mean: np.ndarray) -> float:
    return float(((y - guess) ** 2).sum() / ((y - mean) ** 2).sum())


def test_linear_map_against_scikit_learn(model, windows):
    found = distill_heads(model, windows, 0, **FAST)
    assert found.distinct_tokens == windows[0].numel()
    x, y = inputs_and_outputs(model, windows[0])
    x_new, y_new = inputs_and_outputs(model, windows[2])
    fitted = LinearRegression().fit(x, y)
    place = found.place(HEAD)
    assert found.error[place, 0, 0] == pytest.approx(ratio(y_new, fitted.predict(x_new), y.mean(0)), rel=1e-9)
    guess = found.predict_z(HEAD, torch.from_numpy(x_new)) @ model.W_O[HEAD]
    np.testing.assert_allclose(guess.numpy(), fitted.predict(x_new), atol=1e-9)
    np.testing.assert_allclose(found.mean_z[place] @ model.W_O[HEAD].float(), y.mean(0), atol=1e-5)


def test_the_mean_at_each_position(model, windows):
    found = distill_heads(model, windows, 0, **FAST)
    _, y = inputs_and_outputs(model, windows[0])
    _, y_new = inputs_and_outputs(model, windows[2])
    n = windows[0].shape[1]
    means = y.reshape(-1, n, y.shape[1]).mean(0)
    expected = ratio(y_new.reshape(-1, n, y.shape[1]), means, y.mean(0))
    assert found.position_error[found.place(HEAD)] == pytest.approx(expected, rel=1e-9)


def test_nearest_neighbours_against_scikit_learn(model, windows):
    found = distill_heads(model, windows, 0, **{**FAST, "neighbours": 10**6})
    assert found.neighbour_error is not None and found.neighbour_k is not None
    place = found.place(HEAD)
    x, y = inputs_and_outputs(model, windows[0])
    x_new, y_new = inputs_and_outputs(model, windows[2])
    fitted = KNeighborsRegressor(int(found.neighbour_k[place])).fit(x, y)
    expected = ratio(y_new, fitted.predict(x_new), y.mean(0))
    assert found.neighbour_error[place] == pytest.approx(
        expected, rel=1e-2
    )  # equal distances are told apart by rounding
    assert found.neighbour_error[place] >= found.floor[place]


def test_ffn_errors_are_those_of_the_weights_it_gives(model, windows):
    """The folding of whitening, scale and basis, and the sums over classes and blocks."""
    found = distill_heads(model, windows, [4, 16], seeds=2, **FAST)
    x_new, y_new = inputs_and_outputs(model, windows[2])
    _, y = inputs_and_outputs(model, windows[0])
    place = found.place(HEAD)
    for index, width in enumerate(found.hidden):
        for seed in range(2):
            z = found.predict_z(HEAD, torch.from_numpy(x_new), width=width, seed=seed)
            expected = ratio(y_new, (z @ model.W_O[HEAD]).numpy(), y.mean(0))
            assert found.error[place, index, seed] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(found.block_error.sum(-1), found.squared_error.sum(-1))
    np.testing.assert_allclose(found.block_baseline.sum(-1), found.baseline.sum(-1))
    assert found.class_counts.sum() == windows[2].numel() and found.class_counts[0] == len(windows[2])


def test_z_as_target(model, windows):
    found = distill_heads(model, windows, 0, target="z", **FAST)
    _, cache = model.run_with_cache(windows[2])
    x_new, _ = inputs_and_outputs(model, windows[2])
    z = cache["blocks.1.attn.hook_z"][:, :, 1].flatten(0, 1)
    guess = found.predict_z(HEAD, torch.from_numpy(x_new))
    mean = found.mean_z[found.place(HEAD)].double()
    expected = float((z - guess).square().sum() / (z - mean).square().sum())
    assert found.error[found.place(HEAD), 0, 0] == pytest.approx(expected, rel=1e-5)


def test_intervals_hold_their_mean_and_are_over_text(model, windows):
    found = distill_heads(model, windows, [0, 4], seeds=2, **FAST)
    for width in (0, 4):
        low, high = found.interval(width).T
        assert (low < found.mean_error(width)).all() and (found.mean_error(width) < high).all()
    mean, low, high = found.over_heads(4)
    assert low < mean < high and mean == pytest.approx(found.error[:, 1].mean())
    frame = found.to_frame()
    unmeasured = list(found.attending.scores.reasons)
    assert len(frame) == 4 * (1 + 2) and not frame.drop(columns=unmeasured).isna().any().any()
    assert frame[unmeasured].isna().all().all() and "next_token" in unmeasured
    assert found.order(4)[0] == found.heads[int(found.mean_error(4).argmin())]
    shares = found.class_frame().groupby(["layer", "head", "hidden"])["share_of_error"].sum()
    np.testing.assert_allclose(shares, 1.0)


@pytest.mark.long
def test_the_jackknife_covers_the_error_of_all_text():
    """Intervals from few windows hold the error on many, about as often as they say."""
    model = build(bias=True)
    train, validation = random_windows(200), random_windows(20, seed=1)
    everything = distill_heads(model, (train, validation, random_windows(4000, seed=9)), 0, **FAST).mean_error(0)
    held = []
    for seed in range(10, 22):
        low, high = distill_heads(model, (train, validation, random_windows(60, seed=seed)), 0, **FAST).interval(0).T
        held += ((low <= everything) & (everything <= high)).tolist()
    assert np.mean(held) > 0.8
