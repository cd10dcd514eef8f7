"""Stacked layers against the library's own transformer, run by run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from analyses._tiny.layers import (
    AuxiliaryAttention,
    FeedForward,
    PatternAttention,
    SelfAttention,
    StackedHeads,
    generators_of,
)
from aotlens.models import AttentionOnlyTransformer, ModelConfig

D, N_POS, SEEDS, HEADS = 5, 4, [3, 4], [2, 6]


def tokens() -> Tensor:
    return torch.randn(len(SEEDS), 3, N_POS, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def transformer(layer: StackedHeads, run: int, **config: object) -> AttentionOnlyTransformer:
    """One run of a stacked layer as a model of one layer."""
    values = {"n_heads": HEADS[run], "d_head": 1, "n_ctx": N_POS, "bias": False, **config}
    cfg = ModelConfig(
        n_layers=1, d_model=D, norm=None, positions=None, causal=False, read_in="vectors", read_out="vectors", **values
    )
    model = AttentionOnlyTransformer(cfg).double()
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            if not hasattr(layer, name):
                continue
            weight = getattr(layer, name)[run, : cfg.n_heads]
            getattr(model.blocks[0].attn, name).copy_(weight[:, None] if name == "W_O" else weight[..., None])
    return model


def test_self_attention_is_the_transformers() -> None:
    layer, x = SelfAttention(D, HEADS, generators_of(SEEDS, 0)).double(), tokens()
    at = torch.tensor([[0, 3, 1], [2, 2, 0]])
    out, chosen = layer(x), layer(x, at)
    for run in range(2):
        torch.testing.assert_close(out[run], transformer(layer, run)(x[run]))
        for row in range(3):
            torch.testing.assert_close(chosen[run, row, 0], out[run, row, at[run, row]])


def test_auxiliary_attention_is_the_transformer_with_a_mask() -> None:
    """Each token sees itself and the appended vector, which sees only itself."""
    layer, x = AuxiliaryAttention(D, HEADS, generators_of(SEEDS, 0)).double(), tokens()
    auxiliary = torch.randn(2, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    out, moved = layer(x, auxiliary)
    mask = torch.eye(N_POS + 1, dtype=torch.bool)
    mask[:, -1] = True
    for run in range(2):
        model = transformer(layer, run, n_ctx=N_POS + 1, attn_mask=mask[None])
        expected = model(torch.cat([x[run], auxiliary[run].expand(3, 1, D)], 1))
        torch.testing.assert_close(out[run], expected[:, :-1])
        torch.testing.assert_close(moved[run].expand(3, D), expected[:, -1])


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("n_heads", [2, D, 2 * D])
def test_pattern_attention_is_the_transformer_with_a_given_pattern(learned: bool, n_heads: int) -> None:
    made = generators_of(SEEDS, 0)
    layer, x = PatternAttention(D, [n_heads] * len(made), N_POS, made, learned=learned).double(), tokens()
    at = torch.tensor([[0, 3, 1], [2, 2, 0]])
    out = layer(x, at)
    assert isinstance(layer.pattern, torch.nn.Parameter) == learned
    for run in range(2):
        cfg = ModelConfig(
            n_layers=1, d_model=D, n_heads=n_heads, d_head=1, n_ctx=N_POS, norm=None, positions=None, causal=False,
            phi="fixed", fixed_pattern="given", read_in="vectors", read_out="vectors",
        )  # fmt: skip
        model = AttentionOnlyTransformer(cfg, pattern=layer.pattern[run].detach()).double()
        with torch.no_grad():
            model.blocks[0].attn.W_V.copy_(layer.W_V[run][..., None])
            model.blocks[0].attn.W_O.copy_(layer.W_O[run][:, None])
            model.blocks[0].attn.fixed_pattern.copy_(layer.pattern[run])
        expected = model(x[run])
        for row in range(3):
            torch.testing.assert_close(out[run, row, 0], expected[row, at[run, row]])


def test_feed_forward_is_torchs() -> None:
    layer, x = FeedForward(D, 7, generators_of(SEEDS, 0)).double(), tokens()
    out = layer(x)
    for run in range(2):
        hidden = torch.relu(torch.nn.functional.linear(x[run], layer.W_1[run].T, layer.b_1[run]))
        expected = x[run] + torch.nn.functional.linear(hidden, layer.W_2[run].T, layer.b_2[run])
        torch.testing.assert_close(out[run], expected)


def test_heads_that_a_run_lacks_stay_without_effect_or_gradient() -> None:
    layer, x = SelfAttention(D, [0, 3], generators_of(SEEDS, 0)).double(), tokens()
    torch.testing.assert_close(layer(x)[0], x[0], rtol=0, atol=0)
    layer(x).pow(2).sum().backward()
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        gradient = getattr(layer, name).grad
        assert not gradient[0].any() and gradient[1].any()


def test_initial_weights_are_torch_linears() -> None:
    layer = SelfAttention(16, [400], generators_of([0], 0))
    linear = torch.nn.Linear(16, 400, bias=False)
    assert layer.W_Q.std().item() == pytest.approx(linear.weight.std().item(), rel=0.05)
    assert layer.W_O.abs().max().item() <= 400**-0.5 and layer.W_O.abs().max().item() > 0.9 * 400**-0.5
