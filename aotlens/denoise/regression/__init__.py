"""In-context regression: what models are held against, and what their layers do (*aot* §4.2.2, Figure 6).

baselines.py    least squares, averaging, three nearest neighbours, lasso, ridge, Bayes
descent.py      steps of gradient descent and of a preconditioned one, for every prefix of a prompt
layers.py       the answer read off after each layer, beside these
comparison.py   models and baselines beside each other
maps.py         all heads on one prompt, with the answers
support.py      whether heads single out the coordinates on which a sparse prompt's labels depend
hand_built.py   linear attention that performs one step of gradient descent

Prompts are `aotlens.data`'s, errors `aotlens.evaluate`'s; both are named here again.
"""

from __future__ import annotations

from aotlens.data import Curriculum, RegressionPrompts, RegressionTask, interleave
from aotlens.denoise.regression.baselines import ESTIMATORS, baseline_errors, estimates, shown_baselines
from aotlens.denoise.regression.comparison import RegressionComparison
from aotlens.denoise.regression.descent import ALGORITHMS, FittedDescent, Spectra, fit_descent
from aotlens.denoise.regression.hand_built import one_step, one_step_interleaved, one_step_paired, paired_tokens
from aotlens.denoise.regression.layers import LayerReadings, counted_steps, read_layers
from aotlens.denoise.regression.maps import PromptMaps, prompt_maps, prompt_positions
from aotlens.denoise.regression.support import SupportScores, support_scores
from aotlens.evaluate import RegressionErrors, regression_errors
