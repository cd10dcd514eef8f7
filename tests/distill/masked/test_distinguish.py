"""Assumption 3.1 and its violations, Lemma H.4, and Propositions 5.1–5.3: another vector for [MASK] in every
sequence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from torch.testing import assert_close

from aotlens.distill import check_assumption, compile_ffn, distinguish_mask, masked_lm, point_fit
from tests.distill.compile.networks import unchecked_shapes
from tests.distill.masked.sequences import masked_sequences
from tests.messages import refused


@pytest.mark.long
@settings(max_examples=30)
@given(
    n=st.integers(2, 25),
    length=st.integers(3, 6),
    d=st.integers(1, 6),
    method=st.sampled_from(["attention", "fixed", "random"]),
    seed=st.integers(0, 2**31),
)
def test_masks_are_told_apart(n, length, d, method, seed):
    X, _, positions, mask = masked_sequences(n, length=length, d=d, vocabulary=25, seed=seed)
    found = distinguish_mask(X, method=method, mask=mask, seed=seed)
    at_mask = found(X)[torch.arange(n), positions].numpy()
    distances = [np.abs(a - b).max() for a, b in itertools.combinations(at_mask, 2)]
    assert min(distances) > 0.1 * found.gap / np.sqrt(d) > 0
    assert found.model.cfg.n_heads == found.model.cfg.d_head == found.model.cfg.n_layers == 1


def test_contexts_by_hand():
    """softmax(β p) · p from the weights, and A[m] · p."""
    X, _, positions, _ = masked_sequences(10, seed=1)
    found = distinguish_mask(X)
    q, k, v, out = (getattr(found.model, f"W_{name}")[0, 0].numpy() for name in "QKVO")
    for x, m, context in zip(X.numpy(), positions.tolist(), found.contexts.tolist(), strict=True):
        scores = (x[m] @ q) * (x @ k)[:, 0]
        weights = np.exp(scores) / np.exp(scores).sum()
        assert context == pytest.approx(weights @ (x @ v)[:, 0], abs=1e-12)
    assert np.allclose(out @ found.data.mask.numpy(), 0) and np.isclose(np.linalg.norm(out), 1)
    fixed = distinguish_mask(X, method="fixed")
    assert fixed.pattern is not None and (fixed.pattern > 0).all()
    v = fixed.model.W_V[0, 0].numpy()
    for x, m, context in zip(X.numpy(), positions.tolist(), fixed.contexts.tolist(), strict=True):
        assert context == pytest.approx(fixed.pattern.numpy()[m] @ (x @ v)[:, 0], abs=1e-12)


def test_any_pattern_will_do_after_a_network_of_three_units_a_token():
    n, length = 4, 6
    X, _, positions, _ = masked_sequences(n, length=length, vocabulary=200, seed=2)
    pattern = torch.full(
        (length, length), 1.0 / length, dtype=torch.float64
    )  # it even averages: all that differs are the tokens
    found = distinguish_mask(X, method="random", pattern=pattern)
    tokens = len(torch.unique(X.flatten(0, 1), dim=0))
    assert found.ffn is not None and found.ffn.ffn.widths == (3 * tokens,)
    assert 3 * tokens > 3 * (n - 1) * length  # wider than Proposition 5.3 says
    values = found.ffn(X.flatten(0, 1)).view(n, length)
    assert_close(found.contexts, (values / length).sum(1), atol=1e-10, rtol=0)
    assert_close(found(X)[torch.arange(n), positions, 1], found.contexts, atol=1e-12, rtol=0)
    assert found.gap > 1e-6 and found.condition == pytest.approx(float(found.contexts.abs().max()) / found.gap)


def test_the_papers_scale_is_lost_in_float64():
    """Two sequences whose largest token is the same: e^(−β·difference) is below rounding."""
    X, _, _, _ = masked_sequences(40, vocabulary=30)
    assert distinguish_mask(X).gap > 1e-5
    with refused("sequences", "masks differ by", "leave out score_separation"):
        distinguish_mask(X, score_separation=2 * np.log(6) + 3)


def test_what_is_refused():
    X, _, _, _ = masked_sequences(5)
    for arguments, message in (
        ({"method": "random", "pattern": torch.zeros(6, 6)}, "finite positive"),
        ({"method": "random", "pattern": torch.ones(5, 6)}, r"expected \[6, 6\]"),
        ({"pattern": torch.ones(6, 6)}, "pattern is for method='random'"),
        ({"score_separation": 1e308}, r"score_separation=1e\+308: scores so far apart are beyond float64"),
        ({"method": "fixed", "score_separation": 1.0}, "with method='attention'"),
    ):
        with pytest.raises(ValueError, match=message):
            distinguish_mask(X, **arguments)


def test_scores_are_as_far_apart_as_asked_for():
    X, _, _, _ = masked_sequences(3, length=4, vocabulary=40, seed=5)
    found = distinguish_mask(X, score_separation=0.7)
    q, k, v = (getattr(found.model, f"W_{name}")[0, 0, :, 0] for name in "QKV")
    tokens = torch.unique(X.flatten(0, 1), dim=0)
    scores = (found.data.mask @ q) * (tokens @ k)
    assert float(scores.sort().values.diff().min()) == pytest.approx(0.7, rel=1e-9)
    assert torch.equal(scores.argsort(), (tokens @ v).argsort())  # β > 0: the largest v·x has the largest score


def test_sequences_of_another_shape_are_refused():
    X, _, _, _ = masked_sequences(3)
    with unchecked_shapes(), pytest.raises(ValueError, match=r"expected sequences \[6, 5\], got \[5\]"):
        distinguish_mask(X)(X[0])


@settings(max_examples=40)
@given(n=st.integers(1, 30), d=st.integers(1, 5), seed=st.integers(0, 2**31), scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_it_goes_through_the_points(n, d, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale
    y = torch.randn(n, generator=generator, dtype=torch.float64)
    fit = point_fit(x, y, seed=seed)
    assert fit.ffn.widths == (3 * n,) and fit.ffn.d_out == 1
    assert_close(fit(x), y, atol=1e-14 * n * max(fit.condition, 1.0), rtol=0)
    assert_close(fit.errors, (fit(x) - y).abs())
    if n > 1:
        distances = np.abs(np.subtract.outer(*[(x @ fit.direction).numpy()] * 2))
        assert fit.gap == pytest.approx(distances[~np.eye(n, dtype=bool)].min(), rel=1e-12)
        assert fit.sharpness > 2 / fit.gap


def test_triangles_between_the_points():
    """By hand: y_i max(0, 1 − K|x − x_i|), on the whole line."""
    x, y = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([2.0, -1.0, 5.0])
    fit = point_fit(x, y)
    assert fit.gap == 1.0 and fit.sharpness == pytest.approx(2.0, rel=1e-5)
    line = np.linspace(-2, 5, 701)
    sharpness = fit.sharpness
    expected = sum(
        height * np.maximum(0, 1 - sharpness * np.abs(line - at))
        for at, height in zip((0, 1, 3), (2, -1, 5), strict=True)
    )
    assert_close(fit(torch.from_numpy(line)[:, None]), torch.from_numpy(expected), atol=1e-12, rtol=0)


def test_it_compiles():
    x, y = torch.randn(5, 3), torch.randn(5)
    fit = point_fit(x, y)
    compiled = compile_ffn(fit.ffn, bound=4, tolerance=1e-3)
    assert_close(compiled(x)[:, 0], y.double(), atol=1e-3, rtol=0)
    assert compiled.heads_per_layer == (16,)


def test_points_that_cannot_be_told_apart_are_named():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="points 0 and 2 are equal"):
        point_fit(x, torch.zeros(3))
    with pytest.raises(ValueError, match="points 0 and 2 are equal"):
        point_fit(torch.tensor([[0.0], [1.0], [-0.0]]), torch.zeros(3))
    near = torch.tensor([[1.0], [2.0], [1.0 + 2**-52]], dtype=torch.float64)
    with refused("points 0 and 2"):
        point_fit(near, torch.zeros(3))
    with refused("points 0 and 1"):
        point_fit(torch.eye(2), torch.zeros(2), direction=torch.ones(2))
    with pytest.raises(ValueError, match="expected finite"):
        point_fit(torch.tensor([[float("nan")]]), torch.zeros(1))
    with refused("as many values"):
        point_fit(torch.eye(2), torch.zeros(3))
    with pytest.raises(ValueError, match="2 finite numbers, not all 0"):
        point_fit(torch.eye(2), torch.zeros(2), direction=torch.zeros(2))


def test_points_and_values_of_another_shape_are_refused():
    x, y = torch.eye(2), torch.tensor([0.0, 4.0])
    with unchecked_shapes():
        for points, values in ((x, y[:, None]), (x[0], y), (x[None], y), (x, y[0]), (x[:0], y[:0])):
            with refused("[n, d]", "[n]"):
                point_fit(points, values)
        with pytest.raises(ValueError, match=r"expected rows \[n, 2\].*got \[2\]"):
            point_fit(x, y)(x[0])


def test_what_it_finds():
    X, _, positions, mask = masked_sequences(12, seed=3)
    data = check_assumption(X)
    assert torch.equal(data.mask, mask) and torch.equal(data.positions, positions)
    assert torch.equal(data.tokens[data.ids], X)
    lengths = X.norm(dim=-1)
    assert (data.shortest, data.longest) == (float(lengths.min()), float(lengths.max()))
    assert data.separation == pytest.approx(pdist(data.tokens.numpy()).min(), rel=1e-12)
    assert torch.equal(check_assumption(X, mask).positions, positions)


def broken(which: str) -> torch.Tensor:
    X, _, _, _ = masked_sequences(12, seed=3)
    if which == "zero":
        X[7, (check_assumption(X).positions[7] + 1) % 6] = 0.0
    if which == "permuted":
        X[9] = X[4].flip(0)
    if which == "twice":
        position = int(check_assumption(X).positions[5])
        X[5, (position + 1) % 6] = X[5, (position + 2) % 6]
    if which == "nan":
        X[2, 0, 0] = float("nan")
    if which == "unmasked":
        X[8, check_assumption(X).positions[8]] += 1.0
    return X


CASES = [
    ("zero", r"condition 1 .* is violated by sequences 7\."),
    ("permuted", r"condition 3 .* is violated by sequences 4, 9 "),
    ("twice", r"condition 4 .* is violated by sequences 5\."),
    ("nan", "sequences 2: expected finite"),
    ("unmasked", "no token is in every sequence"),
]


@pytest.mark.parametrize(("which", "message"), CASES)
@pytest.mark.parametrize("use", [check_assumption, distinguish_mask, lambda X: masked_lm(X, torch.arange(12), 0.1)])
def test_violations_are_named(which, message, use):
    with pytest.raises(ValueError, match=message):
        use(broken(which))


def test_which_token_is_the_mask():
    X, _, positions, mask = masked_sequences(12, seed=3)
    with refused("6 tokens", "mask="):
        check_assumption(X[:1])
    assert check_assumption(X[:1], mask).positions.tolist() == positions[:1].tolist()
    with refused("sequences 8", "[MASK]"):
        check_assumption(broken("unmasked"), mask)
    with pytest.raises(ValueError, match=r"mask: expected \[5\], got \[4\]"):
        check_assumption(X, mask[:4])
    with pytest.raises(ValueError, match="of floats"):
        check_assumption(X[:0])


def test_many_violations_are_counted():
    X = torch.ones(30, 4, 3)
    with pytest.raises(ValueError, match=r"sequences 0, 1, 2, 3, 4, 5, 6, 7, … \(30 in all\)"):
        check_assumption(X)


def test_other_shapes_are_refused():
    with unchecked_shapes():
        for X in (torch.ones(6, 5), torch.ones(5), torch.ones(1, 1, 6, 5)):
            with refused("[sequence, position, d_model]", "floats"):
                check_assumption(X)


@pytest.mark.parametrize("scale", [1e-160, 1e-200, 1e150])
@pytest.mark.parametrize("use", [check_assumption, lambda X: masked_lm(X, torch.arange(12), 0.1)])
def test_tokens_whose_products_float64_loses(scale, use):
    X, _, _, _ = masked_sequences(12, seed=3)
    with refused("1e-100", "1e+100", "Multiply X"):
        use(X * scale)


def test_minus_zero_is_zero():
    X, _, _, mask = masked_sequences(6, seed=3)
    X[2] = X[1].flip(0)
    other = int((check_assumption(X[1:2], mask).positions[0] + 1) % 6)
    X[1, other, 0], X[2, 5 - other, 0] = 0.0, -0.0
    with refused("condition 3", "sequences 1, 2"):
        check_assumption(X)
