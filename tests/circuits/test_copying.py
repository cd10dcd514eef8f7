"""Copying rates of heads built to copy, of heads that don't, and against the dense circuit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotlens.circuits.spectrum import copying_rate
from aotlens.models import AttentionOnlyTransformer
from tests.small_models import MakeModel

N_TOKENS = 24


@pytest.fixture
def copier(make: MakeModel) -> AttentionOnlyTransformer:
    """Tokens are axes of the stream. Head 0.0 copies the first half of them, 0.1 the rest, 1.0 all; 1.1 none."""
    model = make(n_layers=2, n_heads=2, d_model=N_TOKENS, d_head=N_TOKENS, d_vocab=N_TOKENS, norm=None, positions=None)
    identity = torch.eye(N_TOKENS, dtype=torch.float64)
    first = torch.diag((torch.arange(N_TOKENS) < N_TOKENS // 2).double())
    with torch.no_grad():
        model.embed.W_E.copy_(identity)
        model.unembed.W_U.copy_(identity)
        for block in model.blocks:
            block.attn.W_O.copy_(identity.expand(2, -1, -1))
        model.blocks[0].attn.W_V.copy_(torch.stack([first, identity - first]))
        model.blocks[1].attn.W_V.copy_(torch.stack([identity, identity.roll(1, 0)]))
    return model


def test_a_head_that_copies(copier: AttentionOnlyTransformer) -> None:
    rate = copying_rate(copier, (1, 0))
    assert (rate.top1, rate.top5, rate.n_tokens, rate.heads) == (1.0, 1.0, N_TOKENS, ((1, 0),))
    assert rate.exact and not rate.ranks.any()
    elsewhere = copying_rate(copier, "1.1")
    assert elsewhere.top1 == 0.0 and elsewhere.top5 < 0.3


def test_two_heads_that_copy_together(copier: AttentionOnlyTransformer) -> None:
    half = (np.arange(N_TOKENS) < N_TOKENS // 2).astype(int)
    for head in (0, 1):
        ranks = copying_rate(copier, (0, head)).ranks
        copied = half if head == 0 else 1 - half
        np.testing.assert_array_equal(ranks[copied == 1], 0)
        np.testing.assert_array_equal(ranks[copied == 0], np.flatnonzero(copied == 0))  # rows of zeros: by id
    assert copying_rate(copier, ["0.0", "0.1"]).top1 == 1.0
    assert copying_rate(copier, [(0, 1), "1.0"]).top1 == 1.0
    assert copying_rate(copier, (1, 0)).heads == ((1, 0),)
    assert copying_rate(copier, [(0, 1), (0, 1), (0, 0)]).heads == ((0, 1), (0, 0))


@pytest.mark.parametrize("heads", [[(0, 0)], [(1, 2)], [(0, 1), (0, 2)], [(0, 0), (1, 1)]])
@pytest.mark.parametrize("norm", ["layernorm", None])
def test_equals_the_dense_circuit(make: MakeModel, heads: list[tuple[int, int]], norm: Any) -> None:
    model = make(d_vocab=150, norm=norm)
    rows, columns = model.W_E, model.W_U
    if norm:
        rows = rows - rows.mean(1, keepdim=True)
        rows = rows / (rows.square().mean(1, keepdim=True) + model.cfg.norm_eps).sqrt()
        columns = model.ln_final.w[:, None] * columns
    dense = torch.zeros(150, 150, dtype=torch.float64)
    for layer, head in heads:
        gained = rows * model.blocks[layer].ln1.w if norm else rows
        written = gained @ model.W_V[layer, head] @ model.W_O[layer, head]
        written = written - written.mean(1, keepdim=True) if norm else written
        dense += (written @ columns).detach()
    rate = copying_rate(model, heads)
    expected = (dense > dense.diagonal()[:, None]).sum(1)
    np.testing.assert_array_equal(rate.ranks, expected.numpy())
    assert rate.top1 == (expected == 0).double().mean() and rate.top5 == (expected < 5).double().mean()
    assert rate.exact == (norm is None) and bool(rate.relative) == (norm is not None)


def test_random_heads_copy_by_chance_only(make: MakeModel) -> None:
    rates = [
        copying_rate(make(d_vocab=200, d_model=40, d_head=20), (layer, head)) for layer in (0, 1) for head in (0, 1, 2)
    ]
    assert np.mean([rate.top1 for rate in rates]) == pytest.approx(1 / 200, abs=0.02)
    assert np.mean([rate.top5 for rate in rates]) == pytest.approx(5 / 200, abs=0.03)


def test_float32(make: MakeModel) -> None:
    wide, narrow = make(d_vocab=150), make(d_vocab=150, dtype=torch.float32)
    assert copying_rate(narrow, (0, 1)).top5 == pytest.approx(copying_rate(wide, (0, 1)).top5, abs=0.01)


def test_tokens_in_and_out(make: MakeModel) -> None:
    with pytest.raises(ValueError, match="from tokens to 3 classes"):
        copying_rate(make(read_out="classes", d_out=3), (0, 0))
