"""A padded batch is its prompts one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

FAMILY = {
    "mhsa": {},
    "mssa": {"attention": "mssa", "bias": True},
    "both ways": {"causal": False},
    "qk": {"positions": "qk"},
    "none": {"positions": None},
    "linear": {"phi": "linear"},
    "linear both ways": {"phi": "linear", "causal": False},
    "thresholded": {"phi": "thresholded_softmax", "threshold": 0.1},
}


def pad(prompts: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), 9)
    mask = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        where = slice(longest - len(prompt), None) if side == "left" else slice(0, len(prompt))
        tokens[row, where], mask[row, where] = prompt, True
    return tokens, mask


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64])
@torch.no_grad()
def test_padded_rows_equal_single_prompts(make, kind, side, mask_dtype):
    model = make(torch.float64, **FAMILY[kind])
    prompts = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2]), torch.tensor([6, 5, 3])]
    tokens, mask = pad(prompts, side)
    logits = model(tokens, attention_mask=mask.to(mask_dtype))
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(logits[row][mask[row]], model(prompt[None])[0])
    assert logits.isfinite().all(), "padding's own rows mean nothing, but must not be NaN"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float32])
@torch.no_grad()
def test_the_loss_counts_real_tokens_only(make, side, mask_dtype):
    model = make(torch.float64)
    prompts = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2]), torch.tensor([6, 5, 3])]
    tokens, mask = pad(prompts, side)
    alone = [model.loss_per_token(prompt[None])[0] for prompt in prompts]
    padded = model.loss_per_token(tokens, attention_mask=mask.to(mask_dtype))
    assert padded.shape == (3, 4)
    for row, losses in enumerate(alone):
        torch.testing.assert_close(padded[row][padded[row] != 0], losses)
    mean = model(tokens, return_type="loss", attention_mask=mask.to(mask_dtype))
    torch.testing.assert_close(mean, torch.cat(alone).mean())


@torch.no_grad()
def test_texts_of_different_lengths_are_padded_and_masked(make, tokenizer):
    model = make(torch.float64, d_vocab=tokenizer.d_vocab, n_ctx=40, tokenizer=tokenizer, causal=False)
    texts = ["the cat sat", "that", "on the mat, the rat"]
    logits = model(texts)
    for row, text in enumerate(texts):
        alone = model(text)[0]
        torch.testing.assert_close(logits[row, : len(alone)], alone)


@torch.no_grad()
def test_a_mask_of_the_wrong_shape_is_refused(make, tokens):
    with pytest.raises(ValueError, match=r"attention_mask: expected \[2, 7\], got \[2, 6\]"):
        make()(tokens, attention_mask=torch.ones(2, 6))


@torch.no_grad()
def test_mean_pooling_leaves_padding_out(make):
    model = make(
        torch.float64, read_in="vectors", read_out="classes", d_in=4, d_out=3, d_vocab=None, pooling="mean",
        causal=False,
    )  # fmt: skip
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    mask = torch.tensor([[True] * 4 + [False] * 2])
    torch.testing.assert_close(model(x, attention_mask=mask), model(x[:, :4]))
