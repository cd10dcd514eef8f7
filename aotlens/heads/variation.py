"""How much a head's pattern depends on the text.

With A the pattern `[query, key]` of one text and Ā its mean over texts,

    variation = Σ (A − Ā)² / Σ A²        0: the same pattern on every text;  towards 1: nothing in common

times n / (n − 1) for n texts, since Ā is a mean over the same texts.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.heads.reader import HeadReader, Model, TokenSequences


def pattern_variation(model: Model, tokens: TokenSequences, *, batch_size: int = 4) -> Float64[Tensor, "layer head"]:
    """The variation of every head's pattern over sequences of one length (as in `attention_to`), 0 to 1.

    Memory: a pattern `[layer, head, pos, pos]` in float32, and a batch of one layer's. Raises `ValueError` for fewer
    than two sequences and for a model whose patterns cannot be read.
    """
    reader = HeadReader.of(model, "variation of patterns")
    tokens = reader.require_ids(tokens)
    if len(tokens) < 2:
        raise ValueError("how a pattern varies needs at least 2 windows of text, got 1; give more held_out_tokens.")
    n_pos = tokens.shape[1]
    sums = torch.zeros(reader.n_layers, reader.n_heads, n_pos, n_pos, device=reader.device)
    squares = torch.zeros(reader.n_layers, reader.n_heads, dtype=torch.float64)

    def add(layer: int, pattern: Tensor) -> None:
        sums[layer] += pattern.sum(0)
        squares[layer] += pattern.square().sum((0, 2, 3)).double().cpu()

    for start in range(0, len(tokens), batch_size):
        reader.listen_to_patterns(tokens[start : start + batch_size], add)
    of_mean = torch.stack([layer.double().square().sum((1, 2)).cpu() for layer in sums]) / len(tokens)
    shared = of_mean / squares.clamp(min=1e-30)
    return ((1 - shared) * (len(tokens) / (len(tokens) - 1))).clamp(0, 1)
