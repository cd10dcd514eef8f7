"""Losses of language models compared with loops over tokens: of next, hidden and repeated tokens, early and late."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from aotlens.data import IGNORED, SymbolTokenizer, mask_tokens
from aotlens.evaluate import (
    BigramModel,
    in_context_learning_score,
    masked_loss,
    masked_predictions,
    next_token_predictions,
    repeat_losses,
    unigram_loss,
    validation_loss,
)
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


def test_the_first_quarter_less_the_last() -> None:
    losses = np.array([[8.0, 6.0, 5.0, 5.0, 5.0, 5.0, 3.0, 1.0], [6.0, 4.0, 5.0, 5.0, 5.0, 5.0, 3.0, 1.0]])
    assert in_context_learning_score(losses) == pytest.approx((7 + 5) / 2 - (3 + 1) / 2)
    assert in_context_learning_score(losses[0]) == pytest.approx(7 - 2)
    assert in_context_learning_score(losses, early=1, late=7) == pytest.approx(5 - 1)
    assert in_context_learning_score(np.array([2.0])) == 0


def test_losses_in_any_order_have_none() -> None:
    losses = np.random.default_rng(0).exponential(size=(4000, 32))
    assert abs(in_context_learning_score(losses)) < 0.03


def test_what_cannot_be_compared_is_refused() -> None:
    losses = np.ones((2, 8))
    for given, words in (
        ({"early": 3}, ("early=3", "late=None")),
        ({"early": 5, "late": 5}, ("early", "4")),
        ({"early": 1, "late": 8}, ("late", "7")),
    ):
        with refused(*words):
            in_context_learning_score(losses, **given)
    with refused("finite"):
        in_context_learning_score(np.array([1.0, np.nan]))


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
