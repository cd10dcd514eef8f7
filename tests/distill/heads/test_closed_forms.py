"""Closed forms and neighbours against scikit-learn and numpy; networks are never worse than the best maps of a rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import aotlens
from aotlens.distill import distill_heads
from aotlens.distill.heads.scaling import Moments, as_network, reduced_rank
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


@pytest.fixture
def seen() -> tuple[Moments, torch.Tensor, torch.Tensor]:
    """Two layers of one and two heads: correlated inputs of 7 numbers, targets of 4 that are not linear in them."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = torch.cat([normal(2, 7, 7) @ normal(2, 7, 300) + normal(2, 7, 1), torch.ones(2, 1, 300).double()], dim=1)
    heads = torch.stack([normal(4, 8) @ x[0], normal(4, 8) @ x[1], normal(4, 8) @ x[1]])
    t = heads + 2 * heads.roll(1, dims=1).sin() + normal(3, 4, 1)
    moments = Moments([slice(0, 1), slice(1, 3)], 8, 4, 3, torch.device("cpu"))
    moments.add(x, t, torch.arange(300) % 3)
    return moments, x, t


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 6])
def test_the_best_map_of_a_rank_against_numpy(seen, rank):
    """Eckart and Young on the fitted values: least squares, then their best approximation of the rank."""
    moments, x, t = seen
    P, PtB, constant = reduced_rank(moments, moments.linear(), rank)
    for head, layer in enumerate((0, 1, 1)):
        design, values = x[layer].T.numpy(), t[head].T.numpy()
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        mean = fitted.mean(0)
        U, S, V = np.linalg.svd(fitted - mean, full_matrices=False)
        expected = (U[:, :rank] * S[:rank]) @ V[:rank] + mean
        found = (P[head] @ (PtB[head] @ x[layer, :-1]) + constant[head][:, None]).T
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("width", [2, 4, 6])
def test_as_a_network(seen, width):
    moments, x, _ = seen
    linear = moments.linear()
    P, PtB, constant = reduced_rank(moments, linear, width)
    W1, W2 = as_network(moments, linear, width, x)
    for head, layer in enumerate((0, 1, 1)):
        hidden = torch.cat([torch.relu(W1[head] @ x[layer]), torch.ones(1, 300).double()])
        expected = P[head] @ (PtB[head] @ x[layer, :-1]) + constant[head][:, None]
        np.testing.assert_allclose((W2[head] @ hidden).numpy(), expected.numpy(), atol=1e-9)


def test_a_linear_head_is_matched_by_as_many_units_as_it_has_dimensions(model, windows):
    """Networks that are hardly trained (a learning rate of 1e-9) are the linear map, d_head units being enough."""
    found = distill_heads(model, windows, [0, 2, 4, 9], seeds=2, **{**FAST, "learning_rate": 1e-9})
    linear, two, four, nine = found.error[:, :, 0].T
    np.testing.assert_allclose(four, linear, rtol=1e-6)
    np.testing.assert_array_less(nine, linear + 1e-6)
    x, y = inputs_and_outputs(model, windows[0])
    x_new, y_new = inputs_and_outputs(model, windows[2])
    design = np.c_[x, np.ones(len(x))]
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    fitted = design @ solution
    _, _, V = np.linalg.svd(fitted - fitted.mean(0), full_matrices=False)
    guess = (np.c_[x_new, np.ones(len(x_new))] @ solution - fitted.mean(0)) @ V[:2].T @ V[:2] + fitted.mean(0)
    assert two[found.place(HEAD)] <= ratio(y_new, guess, y.mean(0)) + 1e-6
    # The curve ends with what is kept, and seeds are told apart by it.
    assert found.curve_tokens[-1] == found.curve_tokens[-2]
    assert (found.curve[-1] <= found.curve[-2] + 1e-12).all()


@pytest.mark.usefixtures("real_bundled_folder")
def test_wide_networks_are_not_worse_than_the_linear_map_on_a_real_checkpoint():
    """Little text, so that training alone does not get there: without the map, 64 units lose to it by up to 0.2."""
    model = aotlens.load("novels-2l-gpt", device="cpu")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 400, (60, 128), generator=generator)
    ids[:, 0] = model.tokenizer.eot_id
    found = distill_heads(model, (ids[:40], ids[40:]), [0, 64], seeds=1, wide=None, neighbours=0, train_tokens=5120)
    assert (found.error[:, 1, 0] <= found.error[:, 0, 0] + 0.01).all()


@pytest.mark.parametrize("size", [1e-13, 1e6])
def test_errors_do_not_depend_on_how_much_a_head_writes(windows, size):
    model, other = build(bias=False), build(bias=False)
    with torch.no_grad():
        for block in other.blocks:
            block.attn.W_O *= size
    options = {**FAST, "heads": [(0, 0), (0, 1)]}
    there, here = (distill_heads(one, windows, [0, 4], seeds=1, **options) for one in (other, model))
    assert here.error.min() > 0.01
    np.testing.assert_allclose(there.error, here.error, rtol=1e-6)


def test_a_head_that_writes_a_constant_has_error_0(windows):
    """Up to rounding: b_V alone, through a softmax's pattern, in float32."""
    model = build(bias=True).float()
    with torch.no_grad():
        model.blocks[1].attn.W_V[0] = 0
    found = distill_heads(model, windows, [0, 4], seeds=1, **{**FAST, "neighbours": 500})
    place = found.place((1, 0))
    assert found.error[place].tolist() == [[0.0], [0.0]] and found.baseline[place].sum() == 0
    assert found.floor[place] == 0 and found.error[found.place((1, 1))].min() > 0.01
    z = found.predict_z((1, 0), torch.randn(3, 8), width=4)
    np.testing.assert_allclose(z, model.blocks[1].attn.b_V[0].expand(3, -1), atol=1e-6)


def test_the_unit_of_an_input_coordinate_does_not_matter(windows):
    """The same function, one coordinate of the residual stream 10,000 times as large."""
    made = []
    for r in (1.0, 1e4):
        model = build(norm=None, positions=None, n_layers=1)
        with torch.no_grad():
            model.W_E[:, 3] *= r
            attention = model.blocks[0].attn
            for weight in (attention.W_Q, attention.W_K, attention.W_V):
                weight[:, 3] /= r
        made.append(distill_heads(model, windows, 0, **FAST).error)
    np.testing.assert_allclose(made[1], made[0], rtol=1e-6)


def test_errors_without_the_first_token(model, windows):
    found = distill_heads(model, windows, 0, **FAST)
    _, y = inputs_and_outputs(model, windows[0])
    x_new, y_new = inputs_and_outputs(model, windows[2])
    guess = (found.predict_z(HEAD, torch.from_numpy(x_new)) @ model.W_O[HEAD]).numpy()
    later = np.arange(len(y_new)) % windows[2].shape[1] > 0
    expected = ratio(y_new[later], guess[later], y.mean(0))
    assert found.error_after_first[found.place(HEAD), 0, 0] == pytest.approx(expected, rel=1e-9)
    assert abs(expected - found.error[found.place(HEAD), 0, 0]) > 1e-4
    assert "error_after_first" in found.to_frame()
