"""The objectives of a run, by the name that a recipe gives.

objective.py     what the loop asks of an objective
language.py      next tokens, and hidden tokens from both sides
classes.py       the classes of images
regression.py    the labels of in-context regression
"""

from __future__ import annotations

from typing import Any

from aotlens.train.objectives.classes import Classes, ImageTrainingData
from aotlens.train.objectives.language import Masked, NextToken
from aotlens.train.objectives.objective import Batch, Objective
from aotlens.train.objectives.regression import Regression

#: The objectives by `objective` of a recipe; their words are `aotlens.checkpoints.units.OBJECTIVE_WORDS`, by the same
#: names.
OBJECTIVES: dict[str, type[Objective[Any]]] = {
    "next_token": NextToken,
    "masked": Masked,
    "classes": Classes,
    "regression": Regression,
}

__all__ = ["OBJECTIVES", "Batch", "Classes", "ImageTrainingData", "Masked", "NextToken", "Objective", "Regression"]
