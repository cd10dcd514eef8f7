"""The training objectives in words: what a training counts, the unit of its losses, and their baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ObjectiveWords:
    """The vocabulary of the recipes, cards and lists of one objective."""

    counted: str
    """The name of the examples that its training counts, in the plural, as recipes spell it: `images = 540_000`."""
    unit: str
    """The unit of its losses."""
    loss: str
    """The figure of a card, by name, that is its loss on held-out data."""
    baseline: str
    """The figure of a card, by name, that it is compared with."""
    sentence: str
    """The comparison of loss and baseline, with the difference and `below` or `above`."""
    marks: tuple[str, str] = ("", "")
    """The marks behind loss and baseline in a list of checkpoints, where most are of next tokens."""
    accuracy: str = ""
    """The figure of a card, by name, that is its share of right answers; empty where there is none."""


#: The words of each `objective` of a recipe.
OBJECTIVE_WORDS: dict[str, ObjectiveWords] = {
    "next_token": ObjectiveWords(
        counted="tokens",
        unit="nats per token",
        loss="validation_loss",
        baseline="bigram_loss",
        sentence="Its validation loss is {:.2f} nats {} a smoothed bigram model's.",
    ),
    "masked": ObjectiveWords(
        counted="tokens",
        unit="nats per token",
        loss="masked_loss",
        baseline="unigram_loss",
        sentence="Its loss on hidden tokens is {:.2f} nats {} a unigram model's.",
        marks=(" masked", " unigram"),
    ),
    "classes": ObjectiveWords(
        counted="images",
        unit="nats per image",
        loss="validation_loss",
        baseline="class_share_loss",
        sentence="Its validation loss is {:.2f} nats {} that of the classes' shares alone.",
        marks=(" an image", " class shares"),
        accuracy="test_accuracy",
    ),
    "regression": ObjectiveWords(
        counted="prompts",
        unit="squared errors ÷ those of the zero predictor",
        loss="regression_error",
        baseline="least_squares_error",
        sentence="Its error, mean over all numbers of examples, is {:.2f} {} that of least squares.",
        marks=(" regression", " least squares"),
    ),
}


def objective_of(recipe: Mapping[str, Any], model: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Return the objective that a card's recipe names; without a recipe the one that the model's ends and figures
    tell."""
    named = recipe.get("objective")
    if named in OBJECTIVE_WORDS:
        return str(named)
    if model.get("read_out") == "classes":
        return "classes"
    return "masked" if "masked_loss" in metrics and "validation_loss" not in metrics else "next_token"
