"""How much of a head's attention scores positions explain, and how much the tokens.

With S_s(i, k) the scores of sequence s, in nats before the softmax, each row less its mean over the keys that the query
sees (a softmax depends on differences alone), and key 0 left out, since the start token always stands there,

    positional share = mean_{s ≠ s'} Σ_ik S_s S_s' ÷ mean_s Σ_ik S_s²        content share = 1 − positional share

Scores that are the same on every text have 1; scores of which positions say nothing are uncorrelated between sequences,
and have 0, which is its chance: the estimate is unbiased, and may lie a little below. The rest is what tokens say,
alone or together with positions; that a token's score with itself is large is a matter of position. It is an analysis
of variance with (query, key) as the factor; Elhage et al. (2021) take scores apart into positions and tokens. A head
whose scores are all alike has 0. Memory: a pattern of every head in float64. Cost: one forward pass.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from aotlens.heads.inputs import Missing
from aotlens.heads.score_inputs import MeasuredScore, ScoreInputs
from aotlens.models import hook_names


@torch.no_grad()
def positional_share(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of the variance of a head's scores that positions alone explain, key 0 left out."""
    tokens = inputs.text()
    n, n_pos = tokens.shape
    if n < 2:
        raise Missing("it needs at least two sequences: it compares the scores of one with those of another")
    keys = inputs.reader.visible_keys(n_pos).to(inputs.reader.device).clone()
    keys[..., 0] = False
    keys &= keys.sum(-1, keepdim=True) >= 2
    if not keys.any():
        raise Missing("it needs sequences of at least three tokens")
    sums = torch.zeros(*inputs.shape, n_pos, n_pos, dtype=torch.float64)
    squares = torch.zeros(inputs.shape, dtype=torch.float64)
    layers: set[int] = set()

    def add(layer: int, scores: Tensor) -> None:
        layers.add(layer)
        counted = scores.detach().float().masked_fill(~keys, 0.0)
        rest = (counted - counted.sum(-1, keepdim=True) / keys.sum(-1, keepdim=True).clamp(min=1)).cpu().double()
        rest = rest.masked_fill(~keys.cpu(), 0.0)
        sums[layer] += rest.sum(0)
        squares[layer] += rest.square().sum((0, 2, 3))

    for batch in inputs.batches(tokens):
        inputs.reader.listen(batch, lambda layer: hook_names.attn(layer, hook_names.SCORES), add)
    if len(layers) < inputs.shape[0]:
        raise Missing("this model shows no attention scores")
    between = (sums.square().sum((2, 3)) - squares) / (n * (n - 1))
    values = torch.where(squares > 0, between / (squares / n).clamp(min=1e-300), 0.0).numpy()
    return MeasuredScore(values=values, chance=np.zeros(inputs.shape), n=n)
