"""Language-model losses against loops written out, and the bigram model against its definition."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from aotlens.evaluate import BigramModel, repeat_losses, validation_loss
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused


def _naive_probability(ids: list[int], d_vocab: int, discount: float, previous: int, following: int) -> float:
    pairs, singles = Counter(itertools.pairwise(ids)), Counter(ids)
    unigram = (max(singles[following] - discount, 0) + discount * len(singles) / d_vocab) / len(ids)
    context = sum(count for (first, _), count in pairs.items() if first == previous)
    if context == 0:
        return unigram
    kinds = sum(first == previous for first, _ in pairs)
    return max(pairs[previous, following] - discount, 0) / context + discount * kinds / context * unigram


def test_bigram_model_equals_its_definition_and_sums_to_one() -> None:
    generator = np.random.default_rng(3)
    ids, d_vocab = generator.integers(0, 6, 60).tolist(), 8  # tokens 6 and 7 never occur
    model = BigramModel.fit(np.array(ids), d_vocab)
    for previous in range(d_vocab):
        probabilities = []
        for following in range(d_vocab):
            expected = _naive_probability(ids, d_vocab, 0.75, previous, following)
            assert model.loss(np.array([previous, following])) == pytest.approx(-math.log(expected), abs=1e-12)
            probabilities.append(expected)
        assert sum(probabilities) == pytest.approx(1.0, abs=1e-12)


def test_bigram_model_refuses_what_it_cannot_count() -> None:
    with pytest.raises(ValueError, match="at least 2 token ids"):
        BigramModel.fit(np.array([1]), 4)
    with refused("0 to 3", "1 to 9"):
        BigramModel.fit(np.array([1, 9]), 4)
    with pytest.raises(ValueError, match="between 0 and 1"):
        BigramModel.fit(np.array([1, 2]), 4, discount=1.5)


def _model(n_ctx: int = 16) -> AttentionOnlyTransformer:
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=2, d_head=6, n_ctx=n_ctx, d_vocab=20)
    return AttentionOnlyTransformer(cfg).double()


def test_validation_loss_is_the_mean_over_every_prediction() -> None:
    model = _model()
    windows = torch.randint(0, 20, (7, 9), generator=torch.Generator().manual_seed(0))
    seen: list[tuple[int, int]] = []
    loss = validation_loss(model, windows, batch_size=3, progress=lambda *at: seen.append(at))
    log_probabilities = model(windows).log_softmax(-1)
    terms = [-log_probabilities[b, i, windows[b, i + 1]].item() for b in range(7) for i in range(8)]
    assert loss == pytest.approx(sum(terms) / len(terms), abs=1e-12)
    assert seen == [(3, 7), (6, 7), (7, 7)]


def test_validation_loss_refuses_weights_that_are_not_finite() -> None:
    model = _model()
    with torch.no_grad():
        model.blocks[0].attn.W_V[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        validation_loss(model, torch.zeros(1, 5, dtype=torch.long))


def test_repeat_losses_of_a_model_that_knows_nothing_are_flat() -> None:
    model = _model(n_ctx=21)
    with torch.no_grad():
        model.unembed.W_U.zero_()
    losses = repeat_losses(model, half_length=10, n_sequences=4)
    assert losses.per_position.shape == (20,)
    assert losses.first_half == pytest.approx(math.log(20)) and losses.gain == pytest.approx(0.0, abs=1e-12)
