"""Ablations against the same model with the head's output matrix removed, and against means taken by hand."""

from __future__ import annotations

import copy

import pytest
import torch

from aotlens.heads import ablate
from aotlens.models import AttentionOnlyTransformer, ModelConfig


@pytest.fixture
def model() -> AttentionOnlyTransformer:
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=16, d_vocab=15, bias=True)
    model = AttentionOnlyTransformer(cfg).double()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.b_O.normal_(generator=torch.Generator().manual_seed(5))
    return model


TOKENS = torch.randint(0, 15, (4, 11), generator=torch.Generator().manual_seed(2))


def test_zero_ablation_is_the_model_without_the_heads(model: AttentionOnlyTransformer) -> None:
    without = copy.deepcopy(model)
    with torch.no_grad():
        without.blocks[0].attn.W_O[1] = 0.0
        without.blocks[1].attn.W_O[2] = 0.0
    result = ablate(model, TOKENS, [(0, 1), (1, 2)])
    torch.testing.assert_close(result.ablated_loss_per_token, without.loss_per_token(TOKENS))
    torch.testing.assert_close(result.clean_loss_per_token, model.loss_per_token(TOKENS))
    assert result.change == pytest.approx(result.ablated_loss - model(TOKENS, return_type="loss").item())
    assert result.heads == ((0, 1), (1, 2))


def test_mean_ablation_writes_the_mean_of_the_clean_run(model: AttentionOnlyTransformer) -> None:
    _, cache = model.run_with_cache(TOKENS)
    constant = cache["z", 0][:, :, 1].mean((0, 1)) @ model.W_O[0, 1]
    without = copy.deepcopy(model)
    with torch.no_grad():
        without.blocks[0].attn.W_O[1] = 0.0
        without.blocks[0].attn.b_O += constant
    result = ablate(model, TOKENS, (0, 1), how="mean")
    torch.testing.assert_close(result.ablated_loss_per_token, without.loss_per_token(TOKENS))


def test_the_model_is_left_as_it_was(model: AttentionOnlyTransformer) -> None:
    before = model(TOKENS)
    ablate(model, TOKENS, [(0, 0)], how="mean")
    assert torch.equal(model(TOKENS), before)


@pytest.mark.parametrize(
    ("heads", "how", "message"),
    [
        ([(2, 0)], "zero", "head 2.0: this model has layers 0–1"),
        ([(0, 3)], "zero", "head 0.3: this model has layers 0–1 and heads 0–2"),
        ([], "zero", "at least one"),
        ([(0, 1, 2)], "zero", "pairs"),
        ([(0, 0)], "resample", "expected 'zero' or 'mean'"),
    ],
)
def test_bad_input_is_named(model: AttentionOnlyTransformer, heads: list, how: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ablate(model, TOKENS, heads, how=how)
