"""Best maps of a rank against numpy; networks are never worse than them; errors do not depend on units."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import aotlens
from aotlens.distill import distill_heads
from aotlens.distill.heads.scaling import Moments, as_network, reduced_rank

from .conftest import FAST, build
from .test_closed_forms import HEAD, inputs_and_outputs, ratio


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
