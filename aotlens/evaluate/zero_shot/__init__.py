"""Language models compared without training: losses and accuracies on LAMBADA, WikiText, PTB and CBT.

suite.py      `evaluate_zero_shot`: several models on the same data, intervals, paired comparisons
usual.py      the usual protocol
aot.py        the protocol of Table 3 of *aot*
scorers.py    what a protocol asks of a model, and models that answer: ours, unigrams, bigrams
outcomes.py   losses and hits, unit by unit
"""

from __future__ import annotations

from aotlens.evaluate.zero_shot.scorers import BigramScorer, ModelScorer, Scorer, UnigramScorer, fit_baselines
from aotlens.evaluate.zero_shot.suite import Measure, PairedDifference, ZeroShot, evaluate_zero_shot
