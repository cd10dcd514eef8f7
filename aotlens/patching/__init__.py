"""Activations of one prompt put into the run of another: what restores an answer, and what it cannot do without.

    pairs = aotlens.data.PromptPairs.induction(model)
    aotlens.patching.patch(model, pairs, "z").to_frame()

sweep.py         `patch`: every layer and position, or every head, one at a time
attribution.py   the same from one gradient, with the largest patched
prompts.py       two texts as a pair, with the model's own answers
runs.py          a batch of prompts as the model runs them, and the same from one layer and position on
metrics.py       what is measured of a pair
"""

from aotlens.patching.attribution import Attribution, attribution
from aotlens.patching.metrics import PairMetric
from aotlens.patching.prompts import pair_of
from aotlens.patching.sweep import HEADS, STREAMS, Patched, patch

__all__ = ["HEADS", "STREAMS", "Attribution", "PairMetric", "Patched", "attribution", "pair_of", "patch"]
