"""Next-token predictions against the model's own logits, sorted by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from aotlens.evaluate import next_token_predictions
from aotlens.models import AttentionOnlyTransformer, ModelConfig

TOKENS = torch.tensor([0, 5, 3, 8])


@pytest.fixture(scope="module")
def model() -> AttentionOnlyTransformer:
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=11, n_ctx=6)
    return AttentionOnlyTransformer(cfg)


@pytest.mark.parametrize("position", [0, 2, 3, -1, -4])
def test_the_ranking_is_by_hand(model: AttentionOnlyTransformer, position: int):
    found = next_token_predictions(model, TOKENS, position, k=11)
    logits = model(TOKENS[None])[0, position].detach().double().tolist()
    order = sorted(range(11), key=lambda token: -logits[token])
    total = sum(math.exp(value) for value in logits)
    probabilities = [math.exp(value) / total for value in logits]
    assert found.position == position % 4
    assert found.token_ids.tolist() == order
    assert found.probabilities.tolist() == pytest.approx([probabilities[token] for token in order], rel=1e-4)
    assert found.entropy == pytest.approx(-sum(p * math.log(p) for p in probabilities), rel=1e-4)
    if position % 4 == 3:
        assert found.actual is None
    else:
        next_token = int(TOKENS[position % 4 + 1])
        assert found.actual is not None
        assert found.actual.token_id == next_token
        assert found.actual.rank == order.index(next_token) + 1
        assert found.actual.probability == pytest.approx(probabilities[next_token], rel=1e-4)
        assert found.actual.loss == pytest.approx(-math.log(probabilities[next_token]), rel=1e-4)


def test_the_table(model: AttentionOnlyTransformer):
    frame = next_token_predictions(model, TOKENS[None], 1, k=3).to_frame()
    assert list(frame.columns) == ["rank", "token_id", "token", "probability", "logit"]
    assert frame["rank"].tolist() == [1, 2, 3]
    assert frame["probability"].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("tokens", "position", "k", "message"),
    [
        (TOKENS, 4, 3, "position=4"),
        (TOKENS, -5, 3, "position=-5"),
        (TOKENS, 0, 12, "k=12"),
        (TOKENS, 0, 0, "k=0"),
        (TOKENS.repeat(2, 1), 0, 3, "one prompt"),
    ],
)
def test_what_is_refused(model: AttentionOnlyTransformer, tokens: torch.Tensor, position: int, k: int, message: str):
    with pytest.raises(ValueError, match=message):
        next_token_predictions(model, tokens, position, k)


def test_the_headline_is_of_the_likeliest(model: AttentionOnlyTransformer):
    found = replace(next_token_predictions(model, TOKENS, -1, k=3), str_tokens=("b", "a", "c"))
    assert "'b'" in found.headline and f"{found.probabilities[0]:.3g}" in found.headline
