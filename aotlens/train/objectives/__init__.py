"""The objectives of a run, which `aotlens.train.recipe.OBJECTIVES` has by the name that a recipe gives.

language.py    next tokens, and hidden tokens from both sides
supervised.py  the classes of images, and the labels of in-context regression
"""

from __future__ import annotations

from aotlens.train.objectives.language import Masked, NextToken
from aotlens.train.objectives.supervised import Classes, ImageTrainingData, Regression
from aotlens.train.recipe import OBJECTIVES, Batch, Objective
