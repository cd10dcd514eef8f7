"""Heads of which it is known how well a function of their own input can do."""

from __future__ import annotations

import inspect
import json.decoder
import textwrap

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.distill import distill_heads
from aotlens.models import AttentionOnlyTransformer

from .conftest import build, random_windows

OPTIONS = {"train_tokens": 60_000, "batch_size": 256, "evaluations": 10}


def shifted(n: int) -> Tensor:
    """Every query attends to the token before it, the first to itself."""
    pattern = torch.zeros(1, 1, n, n)
    pattern[..., torch.arange(1, n), torch.arange(n - 1)] = 1
    pattern[..., 0, 0] = 1
    return pattern


def previous_token_model(d_vocab: int, n_ctx: int) -> AttentionOnlyTransformer:
    """No positions: the input is a function of the token."""
    fixed = {"phi": "fixed", "fixed_pattern": "given", "pattern": shifted(n_ctx), "positions": None}
    return build(n_layers=1, n_heads=1, d_vocab=d_vocab, n_ctx=n_ctx, **fixed).float()


def sees_itself_and_the_start(n: int) -> list[list[list[bool]]]:
    mask = torch.eye(n, dtype=torch.bool)
    mask[:, 0] = True
    return [mask.tolist()]


def test_a_head_that_attends_to_itself_is_linear():
    """The pattern is the identity, so y = x W_V W_O: width 0 is exact, and a few units are nearly so."""
    pattern = torch.eye(12).expand(1, 2, 12, 12)
    model = build(n_layers=1, phi="fixed", fixed_pattern="given", pattern=pattern)
    found = distill_heads(
        model, (random_windows(400), random_windows(50, seed=1)), [0, 16], seeds=1, wide=None, neighbours=0, **OPTIONS
    )
    assert found.error[:, 0].max() < 1e-20
    assert found.error[:, 1].max() < 1e-3


def test_a_head_that_is_an_ffn_distils():
    """A token sees itself, with score 0, and the start token, with score −a·x. Then z = sigmoid(a·x) a·x u: a SiLU unit
    of the token's own input, which is how a compiled FFN's heads are made."""
    n, d_vocab = 24, 400
    mask = sees_itself_and_the_start(n)
    model = build(n_layers=1, n_ctx=n, d_vocab=d_vocab, attn_mask=mask, norm=None, positions=None, attn_scale=1.0)
    model = model.float()
    attention, embedding = model.blocks[0].attn, model.embed.W_E
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        embedding[:, 0], embedding[0] = 0, 0
        embedding[0, 0] = 1  # the start token has a direction of its own
        for weight in (attention.W_Q, attention.W_K, attention.W_V):
            weight.zero_()
        for head in range(2):
            a = torch.randn(7, generator=generator)
            attention.W_Q[head, 1:, 0] = -a
            attention.W_K[head, 0, 0] = 1
            attention.W_V[head, 1:] = a[:, None] * torch.randn(4, generator=generator)
    text = random_windows(400, n, d_vocab), random_windows(80, n, d_vocab, seed=1)
    found = distill_heads(model, text, [0, 2, 64], seeds=2, wide=None, neighbours=0, **OPTIONS)
    assert (found.error[:, 2] < 1e-3).all(), found.error
    assert (found.error[:, 0] > 0.02).all(), "a linear map would do: the oracle says nothing"
    assert (found.error[:, 1] > found.error[:, 2]).all()


def test_a_previous_token_head_on_independent_tokens_does_not_distil():
    """What a token says of the one before it is nothing: no function of its input does better than the mean."""
    model = previous_token_model(60, 24)
    text = random_windows(400, 24), random_windows(400, 24, seed=1)
    for windows in text:  # no start token: what is at the first position must say nothing either
        windows[:, 0] = torch.randint(1, 60, (len(windows),), generator=torch.Generator().manual_seed(len(windows)))
    found = distill_heads(model, text, [0, 4, 16], seeds=2, wide=32, neighbours=4096, **OPTIONS)
    assert found.neighbour_error is not None and found.wide_error is not None
    errors = [*found.error.ravel(), *found.neighbour_error, *found.wide_error, *found.floor]
    assert min(errors) >= 0.98, errors


def source_text() -> Tensor:
    """Windows of a module of the standard library, by a small tokenizer."""
    text = inspect.getsource(json.decoder) + inspect.getsource(textwrap)
    tokenizer = Tokenizer.train([text], 300)
    ids = torch.tensor(tokenizer.encode(text))
    n = len(ids) // 23
    rows = ids[: n * 23].view(n, 23)
    return torch.cat([torch.full((n, 1), tokenizer.eot_id), rows], dim=1)


def test_on_text_a_previous_token_head_is_not_below_its_conditional_variance():
    """The input is a function of the token, so no prediction beats each token's own mean on the very held-out text:
    error ≥ Σ‖y − ȳ(token)‖² / Σ‖y − ȳ‖², which estimates E[Var(y|x)] / Var(y) from below."""
    model = previous_token_model(300, 24)
    windows = source_text()
    train, held_out = windows[::2], windows[1::2]
    found = distill_heads(model, (train, held_out), [0, 16, 64], seeds=1, wide=128, neighbours=4096, **OPTIONS)
    y = written(model, held_out)
    tokens = held_out.flatten().numpy()
    within = sum(float(((y[tokens == t] - y[tokens == t].mean(0)) ** 2).sum()) for t in np.unique(tokens))
    mean = written(model, train).mean(0)
    floor = within / float(((y - mean) ** 2).sum())
    assert 0.3 < floor < 0.99
    assert found.floor.min() >= floor - 1e-6 and found.error.min() >= floor - 1e-6
    assert found.error.min() < 1.0, "text does say something of the token before"


def written(model: AttentionOnlyTransformer, windows: Tensor) -> np.ndarray:
    """y of the only head, `[tokens, d_model]`, by TransformerLens's own hook."""
    _, cache = model.run_with_cache(windows, names_filter=lambda name: name.endswith("hook_result"))
    return cache["result", 0][:, :, 0].flatten(0, 1).double().numpy()


@pytest.mark.parametrize("target", ["result", "z"])
def test_a_head_that_writes_a_constant_has_error_0(target: str):
    model = build(n_layers=1)
    with torch.no_grad():
        model.blocks[0].attn.W_V[1] = 0
    found = distill_heads(
        model, (random_windows(100), random_windows(20, seed=1)), [0, 4], seeds=1, target=target, **SMALL
    )
    assert np.isfinite(found.error).all() and (found.error[1] == 0).all() and (found.error[0] > 0).all()


SMALL = {"train_tokens": 1000, "batch_size": 100, "wide": 8, "neighbours": 256}
