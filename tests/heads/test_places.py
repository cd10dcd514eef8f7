"""Attention to neighbours and ends, against fixed patterns that are known and against a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.heads import PLACES, attention_by_place, attention_patterns
from aotlens.models import AttentionOnlyTransformer, ModelConfig

N_POS = 9
SMALL = {"d_model": 8, "d_head": 4, "n_ctx": N_POS, "d_vocab": 13, "causal": False}
TOKENS = torch.from_numpy(np.random.default_rng(0).integers(0, 13, (5, N_POS)))


def test_heads_that_look_at_one_place_are_found() -> None:
    positions = torch.arange(N_POS)
    keys = [
        (positions - 1).clamp(min=0), positions, (positions + 1).clamp(max=N_POS - 1),
        torch.zeros_like(positions), torch.full_like(positions, N_POS - 1),
    ]  # fmt: skip
    pattern = torch.stack([torch.nn.functional.one_hot(key, N_POS).float() for key in keys])
    pattern = torch.cat([pattern, torch.full((1, N_POS, N_POS), 1 / N_POS)])
    cfg = ModelConfig(n_layers=1, n_heads=6, phi="fixed", fixed_pattern="given", **SMALL)
    found = attention_by_place(AttentionOnlyTransformer(cfg, pattern=pattern[None]), TOKENS, batch_size=2)
    np.testing.assert_allclose(found.values[:, 0, :5], np.eye(5))
    np.testing.assert_allclose(found.values[:, 0, 5], 1 / N_POS, rtol=1e-6)
    assert found.labels() == [[*PLACES, "mixed"]]
    frame = found.to_frame()
    assert list(frame.columns) == ["layer", "head", *PLACES] and len(frame) == 6
    with pytest.raises(KeyError, match="previous_token"):
        found["nowhere"]


def test_shares_are_those_of_a_loop() -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=2, n_heads=3, **SMALL, seed=1))
    found = attention_by_place(model, TOKENS, batch_size=3)
    expected = np.zeros((len(PLACES), 2, 3))
    for row in TOKENS:
        pattern = attention_patterns(model, row).pattern
        for query in range(2, N_POS - 2):
            for place, key in enumerate((query - 1, query, query + 1, 0, N_POS - 1)):
                expected[place] += pattern[:, :, query, key] / (5 * (N_POS - 4))
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)


def test_too_short_is_refused() -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, n_heads=1, **SMALL))
    for tokens in (TOKENS[:, :4], TOKENS[:0]):
        with pytest.raises(ValueError, match=r"5 tokens or more|expected token ids"):
            attention_by_place(model, tokens)
    vectors = ModelConfig(n_layers=1, n_heads=1, **{**SMALL, "d_vocab": None}, read_in="vectors", read_out="vectors")
    with pytest.raises(ValueError, match="a model of tokens"):
        attention_by_place(AttentionOnlyTransformer(vectors), TOKENS)
