"""Masked losses against a loop over hidden tokens, and what has no such loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.data import IGNORED, SymbolTokenizer, mask_tokens
from aotlens.evaluate import (
    BigramModel,
    masked_loss,
    masked_predictions,
    next_token_predictions,
    repeat_losses,
    unigram_loss,
    validation_loss,
)
from aotlens.models import AttentionOnlyTransformer, ModelConfig

N_PLAIN = 11


def model(*, causal: bool = False) -> AttentionOnlyTransformer:
    cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=12, d_vocab=N_PLAIN + 1, causal=causal, seed=3)
    made = AttentionOnlyTransformer(cfg)
    tokenizer = SymbolTokenizer([str(token) for token in range(N_PLAIN + 1)], start="0")
    vars(tokenizer)["mask_id"] = N_PLAIN
    made.tokenizer = tokenizer
    return made


WINDOWS = torch.from_numpy(np.random.default_rng(1).integers(1, N_PLAIN, (9, 12)))


def test_the_loss_is_that_of_a_loop_over_hidden_tokens() -> None:
    network = model()
    found = masked_loss(network, WINDOWS, fraction=0.3, seed=4, batch_size=2)
    inputs, targets = mask_tokens(WINDOWS, N_PLAIN, 4, 0, fraction=0.3, shown=1.0, random=0.0)
    expected, right = [], []
    for row, wanted in zip(inputs, targets, strict=True):
        probabilities = network(row[None])[0].detach().double().softmax(-1)
        for position in range(12):
            if wanted[position] != IGNORED:
                expected.append(-math.log(probabilities[position, wanted[position]]))
                right.append(int(probabilities[position].argmax()) == int(wanted[position]))
    np.testing.assert_allclose(found.losses, expected, rtol=1e-5)
    assert found.loss == pytest.approx(np.mean(expected), rel=1e-5) and found.accuracy == np.mean(right)
    assert np.array_equal(found.targets, targets[targets != IGNORED])
    assert np.array_equal(found.losses, masked_loss(network, WINDOWS, fraction=0.3, seed=4, batch_size=2).losses)


def test_training_and_evaluation_share_a_loss() -> None:
    """Leaving out logits that do not count changes neither loss nor gradient."""
    network = model().double()
    inputs, targets = mask_tokens(WINDOWS, N_PLAIN, 0, 0)
    fast = network(inputs, return_type="loss", targets=targets)
    every = network.loss_per_token(inputs, targets=targets)
    torch.testing.assert_close(fast, every[targets != IGNORED].mean())
    logits, both = network(inputs, return_type="both", targets=targets)
    assert logits.shape == (9, 12, N_PLAIN + 1)
    torch.testing.assert_close(both, fast)
    parameters = list(network.parameters())
    for one, other in zip(torch.autograd.grad(fast, parameters), torch.autograd.grad(both, parameters), strict=True):
        torch.testing.assert_close(one, other)
    padding = torch.ones_like(inputs, dtype=torch.bool)
    padding[:, 8:] = False
    masked = network(inputs, return_type="loss", targets=targets, attention_mask=padding)
    expected = network(inputs, return_type="both", targets=targets, attention_mask=padding)[1]
    torch.testing.assert_close(masked, expected)
    with pytest.raises(ValueError, match="nothing to average"):
        network(inputs, return_type="loss", targets=torch.full_like(targets, IGNORED))


def test_unigram_loss_is_the_bigram_models_back_off() -> None:
    tokens = np.random.default_rng(2).integers(0, 7, 300)
    counts = np.bincount(tokens, minlength=N_PLAIN)
    unigram = BigramModel.fit(tokens, N_PLAIN).unigram
    assert unigram.sum() == pytest.approx(1)
    targets = np.array([0, 3, 10, 3])
    assert unigram_loss(counts, targets) == pytest.approx(-np.log(unigram[targets]).mean())
    with pytest.raises(ValueError, match="counted tokens"):
        unigram_loss(np.zeros(4, dtype=np.int64), targets)


def test_what_has_no_masked_loss_says_so() -> None:
    with pytest.raises(ValueError, match="expected a masked language model"):
        masked_loss(model(causal=True), WINDOWS)
    without = model()
    without.tokenizer = None
    with pytest.raises(ValueError, match="expected a masked language model"):
        masked_loss(without, WINDOWS)
    with pytest.raises(ValueError, match="at least one window"):
        masked_loss(model(), WINDOWS[:0])


def test_a_model_that_sees_both_sides_has_no_next_token_loss() -> None:
    network = model()
    for measure in (lambda: validation_loss(network, WINDOWS), lambda: repeat_losses(network, n_sequences=2)):
        with pytest.raises(ValueError, match="only a causal model"):
            measure()
    with pytest.raises(ValueError, match="sees later tokens"):
        next_token_predictions(network, WINDOWS[0])


def test_predictions_at_a_position_are_its_logits() -> None:
    network = model()
    network.tokenizer.str_tokens = lambda ids: [str(i) for i in ids]  # type: ignore[union-attr]
    row = WINDOWS[0].clone()
    row[5] = N_PLAIN
    hidden, seen = (masked_predictions(network, row, position, k=3) for position in (5, 6))
    probabilities = network(row[None])[0].detach().double().softmax(-1)
    assert hidden.at_position and hidden.actual is None and seen.actual is not None
    assert seen.actual.token_id == int(row[6])
    for found in (hidden, seen):
        expected = probabilities[found.position].topk(3)
        assert found.token_ids.tolist() == expected.indices.tolist()
        np.testing.assert_allclose(found.probabilities, expected.values.numpy(), rtol=1e-4)
    with pytest.raises(ValueError, match="is causal"):
        masked_predictions(model(causal=True), row, 5)
