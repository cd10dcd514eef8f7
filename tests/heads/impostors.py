"""Heads built by hand: true ones, and impostors that earn a motif's score in another way.

The stream of a model of two layers has a slot each for the token, the position, the tokens one and two before, and the
output; the first layer fills those of the tokens before. A head is what its queries and keys read: it attends to all
keys that match. `patterned` heads are functions of the tokens instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aotlens.data import Tokenizer, repeated_random_tokens
from aotlens.models import AttentionOnlyTransformer, ModelConfig

V, N = 24, 40
SHARP = 1e3  # nats: attention is one-hot
#: Slots of the stream: first row and size.
SLOTS = {"token": (0, V), "before": (V, V), "two_before": (2 * V, V), "output": (3 * V, V), "position": (4 * V, N)}
ROWS = {name: torch.arange(first, first + size) for name, (first, size) in SLOTS.items()}


class Reads(NamedTuple):
    """The slots that queries and keys read, and which of their rows match `[query row, key row]`; None: the same."""

    query: str
    key: str
    matches: Tensor | None = None


def back(by: int) -> Reads:
    """Match each position with the one `by` before."""
    return Reads("position", "position", torch.ones(N - abs(by)).diag(-by))


def always(slot: str, row: int) -> Reads:
    """Match every query with one row of the keys' slot."""
    matches = torch.zeros(N, SLOTS[slot][1])
    matches[:, row] = 1.0
    return Reads("position", slot, matches)


def built(
    *heads: Reads | None, writes: float | Sequence[float] = 0.0, sharp: float = SHARP, causal: bool = True
) -> AttentionOnlyTransformer:
    """A model whose second layer has `heads` (None: uniform attention), which add `writes` to the logit of the token
    that they attend to."""
    n_heads = max(len(heads), 2)
    cfg = ModelConfig(
        n_layers=2, d_model=4 * V + N, n_heads=n_heads, d_head=N, n_ctx=N, d_vocab=V, norm=None, attn_scale=1.0,
        causal=causal,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).requires_grad_(False).eval()
    for parameter in model.parameters():
        parameter.zero_()
    model.embed.W_E[torch.arange(V), ROWS["token"]] = 1.0
    model.pos_embed.W_pos[torch.arange(N), ROWS["position"]] = 1.0
    model.unembed.W_U[ROWS["output"], torch.arange(V)] = 1.0
    first, second = (block.attn for block in model.blocks)
    for head, slot in enumerate(("before", "two_before")):
        _attend(first, head, back(1 + head), SHARP)
        _write(first, head, slot, 1.0)
    scales = [writes] * len(heads) if isinstance(writes, float) else writes
    for head, (reads, scale) in enumerate(zip(heads, scales, strict=True)):
        if reads is not None:
            _attend(second, head, reads, sharp)
        _write(second, head, "output", scale)
    return model


def _attend(attention: torch.nn.Module, head: int, reads: Reads, sharp: float) -> None:
    query, key = ROWS[reads.query], ROWS[reads.key]
    matches = torch.eye(len(query)) if reads.matches is None else reads.matches
    attention.W_Q[head, query, : len(key)] = sharp * matches
    attention.W_K[head, key, torch.arange(len(key))] = 1.0


def _write(attention: torch.nn.Module, head: int, slot: str, scale: float) -> None:
    attention.W_V[head, ROWS["token"], torch.arange(V)] = 1.0
    attention.W_O[head, torch.arange(V), ROWS[slot]] = scale


def matching(*pairs: tuple[int, int], own: bool = True) -> Callable[[Tensor], Tensor]:
    """A pattern: from query i to all keys j, its `own` too, with t[i − a] = t[j − b] for all `pairs` (a, b), else to
    the first position."""

    def pattern(tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1])
        keys = (place[:, None] >= place + (not own)).expand(len(tokens), -1, -1) & (place > 0)
        for of_query, of_key in pairs:
            asked = torch.where(place > of_query, tokens.roll(of_query, 1), -1)
            stood = torch.where(place > of_key, tokens.roll(of_key, 1), -2)
            keys = keys & (asked[:, :, None] == stood[:, None, :])
        return keys | (~keys.any(-1, keepdim=True) & (place == 0))

    return pattern


def patterned(
    *patterns: Callable[[Tensor], Tensor], n_pos: int, tokenizer: Tokenizer | None = None, d_vocab: int = 280
) -> AttentionOnlyTransformer:
    """A model of one layer whose heads have the patterns `pattern(tokens)` `[batch, query, key]`, rows of any sum."""
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=len(patterns), d_head=4, n_ctx=n_pos, d_vocab=d_vocab)
    model = AttentionOnlyTransformer(cfg, tokenizer).requires_grad_(False).eval()
    read: list[Tensor] = []
    model.register_forward_pre_hook(lambda module, given: read.append(given[0]))

    def put(pattern: Tensor, hook: object) -> Tensor:
        rows = torch.stack([of(read[-1]).float().tril() for of in patterns], 1).to(pattern)
        rest = torch.where(rows.sum(-1, keepdim=True) > 0, 0.0, torch.ones_like(rows).tril())
        rows = rows + rest
        return rows / rows.sum(-1, keepdim=True)

    model.add_hook("blocks.0.attn.hook_pattern", put)
    return model


def sequences() -> dict[str, Tensor]:
    """Sequences on which impostors score: repeats at one distance and at many, few symbols, one that is frequent."""
    generator = torch.Generator().manual_seed(0)
    frequent = torch.tensor([0.0, 0.1, 0.1, 0.6, 0.1, 0.1])
    skewed = torch.multinomial(frequent, 24 * N, replacement=True, generator=generator).view(24, N)
    skewed[:, 0] = 0
    return {
        "one distance": repeated_random_tokens(V, 12, 19, 0),
        "many distances": repeated_random_tokens(V, 12, 19, 0, distances=True),
        "no start token": repeated_random_tokens(V, 12, 19, 0, eot_id=None, distances=True),
        "three symbols": torch.randint(1, 4, (24, N), generator=generator),
        "a frequent token": skewed,
        "words": torch.multinomial(1 / torch.arange(1.0, V), 24 * N, replacement=True, generator=generator).view(24, N)
        + 1,
    }
