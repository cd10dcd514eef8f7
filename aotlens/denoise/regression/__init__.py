"""In-context regression: what models are compared with, and what their layers do (*aot* §4.2.2, Figure 6).

baselines.py  least squares, averaging, three nearest neighbours, lasso, ridge, Bayes; models compared with them
layers.py     the answer read off after each layer, steps of descent, linear attention that performs one step
support.py    all heads on one prompt; whether heads single out the coordinates on which a sparse prompt's labels depend

Prompts are `aotlens.data`'s, errors `aotlens.evaluate`'s; both are named here again.
"""

from __future__ import annotations

from aotlens.data import Curriculum, RegressionPrompts, RegressionTask, interleave
from aotlens.denoise.regression.baselines import (
    ESTIMATORS,
    RegressionComparison,
    baseline_errors,
    estimates,
    shown_baselines,
)
from aotlens.denoise.regression.layers import (
    ALGORITHMS,
    FittedDescent,
    LayerReadings,
    Spectra,
    counted_steps,
    fit_descent,
    one_step,
    one_step_interleaved,
    one_step_paired,
    paired_tokens,
    read_layers,
)
from aotlens.denoise.regression.support import PromptMaps, SupportScores, prompt_maps, prompt_positions, support_scores
from aotlens.evaluate import RegressionErrors, regression_errors
