"""The performance of a model, and its predictions.

zero_shot/       losses and accuracies on LAMBADA, WikiText, PTB and CBT, by two protocols
predictions.py   the likeliest next tokens after one position, or at one, for a masked language model
continuations.py log-probabilities of continuations after contexts
token_losses.py  the loss of each token of a prompt
language.py      validation loss, losses on repeated tokens, and the bigram model to compare with
in_context.py    how much more context is worth
images.py        accuracy, table by class and calibration of a model of images
exhaustive.py    every input of a small task
regression.py    errors of in-context regression by the number of examples
masked.py        loss of a masked language model on hidden tokens, and the unigram model to compare with
"""

from __future__ import annotations

from aotlens.evaluate.continuations import ContinuationScores, score_continuations
from aotlens.evaluate.exhaustive import ExhaustiveCheck, exhaustive
from aotlens.evaluate.images import ImageEvaluation, class_share_loss, evaluate_images, images_of
from aotlens.evaluate.in_context import in_context_learning_score
from aotlens.evaluate.language import BigramModel, RepeatLosses, repeat_losses, validation_loss
from aotlens.evaluate.masked import MaskedLoss, mask_id_of, masked_loss, unigram_loss
from aotlens.evaluate.predictions import (
    NextToken,
    NextTokenPredictions,
    masked_predictions,
    next_token_predictions,
    predictions_of_logits,
)
from aotlens.evaluate.regression import (
    RegressionErrors,
    errors_of,
    points_of,
    regression_errors,
    regression_estimates,
    require_regression,
)
from aotlens.evaluate.token_losses import token_losses
from aotlens.evaluate.zero_shot import ZeroShot, evaluate_zero_shot
