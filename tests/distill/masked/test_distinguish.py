"""Propositions 5.1–5.3: another vector for [MASK] in every sequence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from aotlens.distill import distinguish_mask
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
