"""Circuits whose every weight is known: one that finds an earlier occurrence, alone or among heads that do little."""

from __future__ import annotations

import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig

SHARP = 1e4  # nats: attention is one-hot in float64


def induction(
    n_tokens: int, gamma: float, *, copies: int = 1, decoys: int = 0, seed: int = 0
) -> AttentionOnlyTransformer:
    """0.0 moves each token to the next position; 1.0 finds the place after the token's last occurrence and says, with
    logit `gamma`, what stands there. The stream has a slot each for token, previous token, output and position.

    With `copies` there are that many of both, each with a slot of its own and each saying `gamma`; the first heads of
    both layers are `decoys` that move some of the output slot at random.
    """
    n_pos, V, n_heads = 2 * n_tokens + 1, n_tokens + 1, copies + decoys
    cfg = ModelConfig(
        n_layers=2, d_model=(2 + copies) * V + n_pos, n_heads=n_heads, d_head=n_pos, n_ctx=n_pos, d_vocab=V, norm=None,
        attn_scale=1.0,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double()
    every, places = torch.arange(V), torch.arange(n_pos)
    token, output, position = every, every + V, places + (2 + copies) * V
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[every, token] = 1.0
        model.pos_embed.W_pos[places, position] = 1.0
        model.unembed.W_U[output, every] = gamma
        first, second = (block.attn for block in model.blocks)
        for copy in range(copies):
            head, previous = decoys + copy, every + (2 + copy) * V
            first.W_Q[head, position, places] = SHARP
            first.W_K[head, position[:-1], places[1:]] = 1.0
            first.W_V[head, token, every] = 1.0
            first.W_O[head, every, previous] = 1.0
            second.W_Q[head, token, every] = SHARP
            second.W_K[head, previous, every] = 1.0
            second.W_V[head, token, every] = 1.0
            second.W_O[head, every, output] = 1.0
        for attention in (first, second):
            for head in range(decoys):
                attention.W_Q[head] = torch.randn(attention.W_Q[head].shape, generator=generator).double()
                attention.W_K[head] = torch.randn(attention.W_K[head].shape, generator=generator).double()
                attention.W_V[head, token, every] = 1.0
                attention.W_O[head, every, output] = 0.02 * torch.rand(V, generator=generator).double()
    return model


def repeated(n_tokens: int, n_sequences: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Token 0, then twice the same order of all others; and targets, the second half's next tokens."""
    orders = [
        torch.randperm(n_tokens, generator=torch.Generator().manual_seed(seed + i)) + 1 for i in range(n_sequences)
    ]
    halves = torch.stack(orders)
    tokens = torch.cat([torch.zeros(n_sequences, 1, dtype=torch.long), halves, halves], dim=1)
    targets = torch.full_like(tokens, -100)
    targets[:, n_tokens + 1 : -1] = tokens[:, n_tokens + 2 :]
    return tokens, targets
