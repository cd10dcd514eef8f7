"""Theorem 6.1: two layers of attention recover every masked token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from aotlens.distill import distinguish_mask, masked_lm
from aotlens.models import AttentionOnlyTransformer
from tests.distill.compile.networks import unchecked_shapes
from tests.distill.masked.sequences import masked_sequences
from tests.messages import refused

METHODS = ("attention", "fixed", "random")


@settings(max_examples=40)
@given(
    n=st.integers(1, 40), length=st.integers(4, 7), d=st.integers(1, 6), seed=st.integers(0, 2**31),
    method=st.sampled_from(METHODS),
)  # fmt: skip
def test_every_mask_is_recovered(n, length, d, seed, method):
    X, y, positions, mask = masked_sequences(n, length=length, d=d, vocabulary=30, seed=seed)
    found = masked_lm(X, y, 1e-3, method=method, mask=mask, seed=seed)
    predictions = found.predict(X)[torch.arange(n), positions]
    assert (predictions - y).abs().max() <= 1e-3
    assert torch.equal(predictions.round().long(), y) and bool(found.recovered.all())
    assert_close(found.predictions, predictions, atol=1e-6, rtol=0)


def by_hand(model: AttentionOnlyTransformer, stream: np.ndarray) -> np.ndarray:
    """The stream after every layer: attention in numpy, head by head, with the model's mask or its fixed pattern."""
    for layer in range(model.cfg.n_layers):
        added = np.zeros_like(stream)
        for head in range(model.cfg.n_heads):
            v, out = (getattr(model, f"W_{name}")[layer, head].numpy() for name in "VO")
            if model.cfg.phi == "fixed":
                weights = model.blocks[layer].attn.fixed_pattern[head].numpy()
            else:
                q, k = (getattr(model, f"W_{name}")[layer, head].numpy() for name in "QK")
                scores = (stream @ q) @ (stream @ k).T / np.sqrt(model.cfg.d_head)
                scores = np.where(np.array(model.cfg.attn_mask)[head], scores, -np.inf)
                weights = np.exp(scores - scores.max(1, keepdims=True))
                weights = weights / weights.sum(1, keepdims=True)
            added += weights @ (stream @ v) @ out
        stream = stream + added
    return stream


@pytest.mark.parametrize(("method", "n_layers"), [("attention", [2]), ("fixed", [1, 1]), ("random", [1, 1, 1])])
def test_the_layers_by_hand(method, n_layers):
    X, y, positions, _ = masked_sequences(7, length=4, d=3, vocabulary=12)
    found = masked_lm(X, y, 1e-2, method=method)
    assert [stage.cfg.n_layers for stage in found.stages] == n_layers
    assert all(stage.cfg.attn_only and stage.cfg.norm is None for stage in found.stages)
    for i in range(7):
        stream = np.zeros((5, 5))
        stream[0, -1] = 1
        stream[1:, :3], stream[1:, 3] = X[i], 1
        for stage in found.stages:
            stream = by_hand(stage, stream)
        assert stream[1 + positions[i], 0] == pytest.approx(float(y[i]), abs=1e-2)


def test_the_fixed_head_gathers_by_its_pattern_whatever_the_tokens_are():
    """Propositions 5.2 and 5.3: [MASK] becomes [MASK] + u·Σ_j A[m, j] p_j, with p = v·x or the network's f(x)."""
    X, y, positions, mask = masked_sequences(7, length=4, d=3, vocabulary=12)
    rows = torch.arange(7)
    stream = torch.zeros(7, 5, 5, dtype=torch.float64)
    stream[:, 0, -1], stream[:, 1:, 3], stream[:, 1:, :3] = 1, 1, X

    masks = distinguish_mask(X, method="fixed")
    head = masked_lm(X, y, 1e-2, method="fixed").stages[0]
    (v,), (out,) = head.W_V[0, 0].T, head.W_O[0, 0]
    gathered = torch.einsum("nk,nk->n", masks.pattern[positions], X @ v[:3])
    assert_close(head(stream)[rows, 1 + positions, :3], mask + gathered[:, None] * out[:3])
    assert_close(gathered, masks.contexts)

    pattern = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) + 0.1
    found = masked_lm(X, y, 1e-2, method="random", pattern=pattern)
    network, head, _ = found.stages
    values = network(stream)[:, 1:, 0]
    assert len(values.unique()) == len(X.flatten(0, 1).unique(dim=0)) == len(found.stages[0].W_V[0]) // 3
    after = head(network(stream))[rows, 1 + positions]
    assert_close(after[:, 0] - values[rows, positions], torch.einsum("nk,nk->n", pattern[positions], values))
    assert_close(after[:, 1:], torch.tensor([0.0, 0, 1, 0], dtype=torch.float64).expand(7, -1))


@pytest.mark.parametrize("method", METHODS)
def test_one_model_or_stages(method):
    X, y, _, _ = masked_sequences(7, length=4, d=3, vocabulary=12)
    found = masked_lm(X, y + 1, 1e-2, method=method)
    n_tokens = len(X.flatten(0, 1).unique(dim=0))
    assert found.heads_per_layer == ((3 * n_tokens + 1,) if method == "random" else ()) + (1, 3 * 7 + 1)
    if method == "attention":
        assert found.model is found.stages[0]
    else:
        with refused("stages"):
            _ = found.model
    with refused("pattern", "method='random'"):
        masked_lm(X, y, 1e-2, method="fixed", pattern=torch.ones(4, 4, dtype=torch.float64))


def test_heads_and_masks():
    X, y, _, _ = masked_sequences(7, length=4, d=3, vocabulary=12)
    y = y + 1  # an id of 0 needs no units
    found = masked_lm(X, y, 1e-2)
    assert found.heads_per_layer == (1, 3 * 7 + 1) and found.paper_heads == 3 * 7 + 1
    circuits = found.model.W_V @ found.model.W_O
    assert (circuits.abs().amax((-1, -2)) > 0).sum(-1).tolist() == [1, 22]
    mask = torch.tensor(found.model.cfg.attn_mask)
    assert mask[0, 1:, 1:].all() and not mask[0, 1:, 0].any()  # tokens among themselves
    assert torch.equal(mask[1], torch.eye(5, dtype=torch.bool))
    assert all(head[:, 0].all() and head.sum() == 9 for head in mask[2:])
    assert mask[:, 0].sum() == len(mask)  # the auxiliary token sees itself only
    frame = found.to_frame()
    assert frame["recovered"].all() and frame["target"].tolist() == y.tolist() and len(frame) == 7


def test_order_does_not_matter_and_other_sequences_get_other_answers():
    X, y, positions, _ = masked_sequences(9)
    found = masked_lm(X, y, 1e-2)
    shuffled = found.predict(X.flip(1))[torch.arange(9), 5 - positions]
    assert_close(shuffled, y.double(), atol=1e-2, rtol=0)


def test_what_float64_does_not_reach_is_said():
    X, y, _, _ = masked_sequences(60, d=1, vocabulary=40)
    with refused("60 sequences", "fewer sequences"):
        masked_lm(X, y, 1e-14)
    with pytest.raises(ValueError, match="tolerance=0: expected a positive"):
        masked_lm(X, y, 0)
    with pytest.raises(ValueError, match=r"got \[59\] for X \[60, 6, 1\]"):
        masked_lm(X, y[:59], 0.1)
    with pytest.raises(ValueError, match=r"expected sequences \[6, 1\], got \[5, 1\]"):
        masked_lm(X, y, 0.1).predict(X[:, :5])


def test_the_tokens_size_is_named_where_it_limits():
    X, y, _, _ = masked_sequences(10)
    assert masked_lm(X * 1e6, y, 1e-6).recovered.all()
    with refused("first coordinate", "divide X") as caught:
        masked_lm(X * 1e15, y, 0.1)
    assert "fewer sequences" not in str(caught.value)


def test_targets_are_whole_numbers_one_a_sequence():
    X, y, _, _ = masked_sequences(6)
    assert masked_lm(X, y.double(), 0.1).recovered.all()
    for wrong in (y + 0.9375, torch.full((6,), float("nan")), y.double() * 2.0**60 + 2.0**60):
        with refused("whole numbers", "at most"):
            masked_lm(X, wrong, 0.1)
    with pytest.raises(ValueError, match="tolerance=True"):
        masked_lm(X, y, True)
    with unchecked_shapes():
        found = masked_lm(X, y, 0.1)
        for wrong in (y[:, None], y[0]):
            with refused("y", "one target"):
                masked_lm(X, wrong, 0.1)
        with pytest.raises(ValueError, match=r"expected sequences \[6, 5\], got \[5\]"):
            found.predict(X[0])
        with pytest.raises(ValueError, match="of floats"):
            masked_lm(X[0], y, 0.1)


@pytest.mark.minutes
def test_three_hundred_sequences():
    X, y, _, _ = masked_sequences(300, length=8, d=16, vocabulary=600)
    found = masked_lm(X, y, 1e-3)
    assert found.recovered.all() and float(found.errors.max()) < 1e-4
