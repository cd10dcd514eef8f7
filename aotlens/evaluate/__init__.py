"""How well a model does, and what it expects.

predictions.py   the likeliest next tokens at one position
language.py      validation loss, losses on repeated tokens, and the bigram model to compare with
"""

from __future__ import annotations

from aotlens.evaluate.language import BigramModel, RepeatLosses, repeat_losses, validation_loss
from aotlens.evaluate.predictions import NextToken, NextTokenPredictions, next_token_predictions

__all__ = [
    "BigramModel",
    "NextToken",
    "NextTokenPredictions",
    "RepeatLosses",
    "next_token_predictions",
    "repeat_losses",
    "validation_loss",
]
