"""Heads as feed-forward networks: what an FFN of a token's own input can reproduce of a head, and what is lost with it.

texts.py       which text is trained on and judged by
stream.py      activations in pieces
scaling.py     the coordinates of training
moments.py     closed forms: the mean, the position's mean, the linear map
batch.py       the FFNs of one width, as one batched problem
settings.py    what a distillation depends on
training.py    pieces, evaluations, stopping
state.py       what a killed run goes on from
classes.py     kinds of token
held_out.py    errors on documents not trained on
nearest.py     nearest neighbours: an estimate of the floor
attending.py   where heads attend, and how much that varies
result.py      what was found
files.py       on disk
distilling.py  `distill_heads`
substitution.py  the model with FFNs in heads' places
selection.py   what that costs, head by head and cumulatively
"""

from __future__ import annotations

from aotlens.distill.heads.attending import Attending, attending
from aotlens.distill.heads.classes import CLASSES
from aotlens.distill.heads.distilling import distill_heads, held_out_windows
from aotlens.distill.heads.result import Distillation, FFNWeights
from aotlens.distill.heads.selection import SubstitutionCosts, substitution_costs
from aotlens.distill.heads.settings import Settings
from aotlens.distill.heads.substitution import substitute, substitution_hooks, token_errors
