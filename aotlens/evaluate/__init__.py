"""The performance of a model, and its predictions.

zero_shot/       losses and accuracies on LAMBADA, WikiText, PTB and CBT, by two protocols; scores of continuations
predictions.py   the likeliest next tokens after one position, or at one, for a masked language model
language.py      losses of next, hidden and repeated tokens, of each token; bigram and unigram models
images.py        accuracy, table by class and calibration of a model of images
exhaustive.py    every input of a small task
regression.py    errors of in-context regression by the number of examples
"""

from __future__ import annotations

from aotlens.evaluate.exhaustive import ExhaustiveCheck, exhaustive
from aotlens.evaluate.images import ImageEvaluation, class_share_loss, evaluate_images, images_of
from aotlens.evaluate.language import (
    BigramModel,
    MaskedLoss,
    RepeatLosses,
    in_context_learning_score,
    mask_id_of,
    masked_loss,
    repeat_losses,
    token_losses,
    unigram_loss,
    validation_loss,
)
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
from aotlens.evaluate.zero_shot import ContinuationScores, ZeroShot, evaluate_zero_shot, score_continuations
