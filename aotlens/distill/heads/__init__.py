"""Heads as feed-forward networks: what an FFN of a token's own input can reproduce of a head, and what is lost with it.

stream.py        texts to train on and to measure on, kinds of tokens, activations in pieces
scaling.py       the coordinates of training; closed forms: means, linear maps and those of low rank
batch.py         the FFNs of one width, as one batched problem
training.py      settings, pieces, evaluations, stopping, resuming
held_out.py      errors on documents not trained on; nearest neighbours, an estimate of the floor
result.py        the result: errors, intervals, where heads attend
distilling.py    `distill_heads`
substitution.py  the model with FFNs in place of heads, and its costs
"""

from __future__ import annotations

from aotlens.distill.heads.distilling import distill_heads, held_out_windows
from aotlens.distill.heads.result import Attending, Distillation, FFNWeights, attending
from aotlens.distill.heads.stream import CLASSES
from aotlens.distill.heads.substitution import (
    SubstitutionCosts,
    substitute,
    substitution_costs,
    substitution_hooks,
    token_errors,
)
from aotlens.distill.heads.training import Settings
