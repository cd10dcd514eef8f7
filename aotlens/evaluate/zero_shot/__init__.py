"""Language models compared without training: losses and accuracies on LAMBADA, WikiText, PTB and CBT.

suite.py      `evaluate_zero_shot`: several models on the same data, intervals, paired comparisons
usual.py      the usual protocol; the outcomes of a protocol, unit by unit
aot.py        the protocol of Table 3 of *aot*
scorers.py    continuations scored by models: trained ones, unigrams, bigrams
"""

from __future__ import annotations

from aotlens.evaluate.zero_shot.scorers import (
    BigramScorer,
    ContinuationScores,
    ModelScorer,
    Scorer,
    UnigramScorer,
    fit_baselines,
    score_continuations,
)
from aotlens.evaluate.zero_shot.suite import Measure, PairedDifference, ZeroShot, evaluate_zero_shot
