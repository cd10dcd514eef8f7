"""The baselines of regression in context: estimates of every label of a prompt from the examples before it; and
models compared with them.

With the i examples before a query x as rows X `[i, d]` and labels y `[i]`,

    least_squares   x·ŵ, ŵ the solution of least norm. Without noise its error is max(0, 1 − i/d) of the zero
                    predictor's on the linear task with inputs N(0, I): ŵ is w projected on the span of X.
    averaging       x·(1/i) Σ_j y_j x_j, the first step of gradient descent. Its error is (d + 1)/i on both tasks.
    nearest_3       the mean label of the three nearest inputs (of all where there are fewer).
    lasso           x·ŵ, ŵ minimising ‖y − X w‖²/(2i) + α‖w‖₁, α = .01, by scikit-learn's `Lasso` without intercept, run
                    until the duality gap is below 1e-10 ‖y‖²/i. (Its default tolerance, 1e-4, stops where one answer in
                    eight is off by more than 1e-3, and single ones by more than 1.)
    ridge           x·ŵ, ŵ minimising ‖y − X w‖² + λ‖w‖², λ = σ² (the variance of the noise), or .1 without noise.
    Bayes           E(w·x | X, y), the least squared error that any estimate has on the task; only where σ > 0.
    zero            0.

Before the first example all say 0. Garg et al. (2022) compare their models with the first four; estimates are float64.

**Bayes.** On the linear task w ~ N(0, I) makes it ridge regression with λ = σ². On the sparse task w is N(0, I) on a
support S of k of the n_dims coordinates, every S as likely, so that with X_S the columns of S, Λ_S = I + X_SᵀX_S/σ² and
b_S = X_Sᵀy/σ²

    E(w | X, y) = Σ_S p_S Λ_S⁻¹ b_S,    ln p_S = ½ b_SᵀΛ_S⁻¹b_S − ½ ln det Λ_S + const.

Inputs do not depend on w, so their mean, scale and covariance do not enter.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_choice
from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.evaluate import RegressionErrors, errors_of
from aotlens.results import Result
from aotlens.statistics import interval_text

if TYPE_CHECKING:
    import pandas as pd


#: α of the lasso (Garg et al. 2022).
LASSO_ALPHA = 0.01
#: The duality gap at which the lasso has converged, as a share of ‖y‖²/i.
LASSO_GAP = 1e-10
#: λ of the ridge where labels have no noise.
RIDGE_WITHOUT_NOISE = 0.1
#: Supports over which `bayes` takes the mean at most: 3 of 20 coordinates have 1,140.
MOST_SUPPORTS = 20_000

Inputs: TypeAlias = Float[Tensor, "prompt point d"]
Labels: TypeAlias = Float[Tensor, "prompt point"]
Estimator: TypeAlias = Callable[[Tensor, Tensor, RegressionTask], Tensor]


def zero(inputs: Inputs, labels: Labels, task: RegressionTask) -> Tensor:
    """Estimate 0 for every label."""
    return torch.zeros_like(labels)


def least_squares(inputs: Inputs, labels: Labels, task: RegressionTask) -> Tensor:
    """Return the estimates of the least-squares solution of least norm, by singular values: LAPACK's gelsy was wrong
    where columns are zero."""
    estimated = torch.zeros_like(labels)
    for i in range(1, inputs.shape[1]):
        examples, values = inputs[:, :i], labels[:, :i, None]
        weights = torch.linalg.lstsq(examples, values, rcond=1e-10, driver="gelsd").solution[..., 0]
        estimated[:, i] = (inputs[:, i] * weights).sum(-1)
    return estimated


def averaging(inputs: Inputs, labels: Labels, task: RegressionTask) -> Tensor:
    """Return the estimates with (1/i) Σ_j y_j x_j as the weights."""
    sums = (labels[..., None] * inputs).cumsum(1)[:, :-1]
    counts = torch.arange(1, inputs.shape[1], dtype=inputs.dtype)
    estimates = (sums * inputs[:, 1:]).sum(-1) / counts
    return torch.nn.functional.pad(estimates, (1, 0))


def nearest_3(inputs: Inputs, labels: Labels, task: RegressionTask) -> Tensor:
    """Return the mean label of the three nearest inputs by Euclidean distance."""
    n_points = inputs.shape[1]
    hidden = torch.ones(n_points, n_points, dtype=torch.bool).triu()
    distances = torch.cdist(inputs, inputs).masked_fill(hidden, torch.inf)
    nearest = distances.topk(min(3, n_points), largest=False)
    near = nearest.values.isfinite()
    own = torch.where(near, labels[:, None, :].expand(-1, n_points, -1).gather(2, nearest.indices), 0.0)
    return own.sum(-1) / near.sum(-1).clamp(min=1)


def lasso(
    inputs: Inputs, labels: Labels, task: RegressionTask | None = None, points: Sequence[int] | None = None
) -> Tensor:
    """Return the estimates of the lasso, a fit of some 0.7 ms a prompt and point; 0 at all but `points`, where they are
    given.

    By coordinate descent; where that has not converged after 20,000 rounds, as for one fit in 400, whose columns are
    nearly collinear, by least-angle regression, which follows the whole path. Raises `ValueError` where neither
    converges.
    """
    from sklearn.linear_model import Lasso, LassoLars

    descent = Lasso(alpha=LASSO_ALPHA, fit_intercept=False, tol=LASSO_GAP, max_iter=20_000)
    path = LassoLars(alpha=LASSO_ALPHA, fit_intercept=False, eps=1e-14, max_iter=5_000)
    estimated = torch.zeros_like(labels)
    for x, y, predictions in zip(inputs.numpy(), labels.numpy(), estimated, strict=True):
        for i in range(1, len(x)) if points is None else points:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # what has not converged is seen by its gap
                weights = descent.fit(x[:i], y[:i]).coef_
                if not _duality_gap(x[:i], y[:i], weights) <= 2 * LASSO_GAP:
                    with contextlib.suppress(ArithmeticError):
                        weights = path.fit(x[:i], y[:i]).coef_
                gap = _duality_gap(x[:i], y[:i], weights)
            if not gap <= 2 * LASSO_GAP:  # NaN among them
                raise ValueError(
                    f"lasso: expected a duality gap of at most {LASSO_GAP:g} of ‖y‖² from {i} examples, got {gap:.3g}; "
                    "are inputs or labels huge?"
                )
            predictions[i] = float(x[i] @ weights)
    return estimated


def _duality_gap(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Bound the excess of the lasso's loss times i over its minimum, ÷ ‖y‖²: primal less dual at the residual, scaled
    so that no column's product with it exceeds iα."""
    penalty, residual, square = len(y) * LASSO_ALPHA, y - x @ weights, float(y @ y)
    scale = min(1.0, penalty / max(float(np.abs(x.T @ residual).max()), 1e-300))
    primal = residual @ residual / 2 + penalty * np.abs(weights).sum()
    dual = square / 2 - np.square(y - scale * residual).sum() / 2
    return float(primal - dual) / max(square, 1e-300)


def ridge(inputs: Inputs, labels: Labels, task: RegressionTask) -> Tensor:
    """Return the estimates of ridge regression with the noise's variance as λ, or `RIDGE_WITHOUT_NOISE`."""
    weight = task.noise_std**2 or RIDGE_WITHOUT_NOISE
    penalty = weight * torch.eye(inputs.shape[-1], dtype=inputs.dtype)
    estimated = torch.zeros_like(labels)
    for i in range(1, inputs.shape[1]):
        examples = inputs[:, :i]
        weights = torch.linalg.solve(examples.mT @ examples + penalty, examples.mT @ labels[:, :i, None])
        estimated[:, i] = (inputs[:, i] * weights[..., 0]).sum(-1)
    return estimated


def bayes(inputs: Inputs, labels: Labels, task: RegressionTask) -> Tensor:
    """Return the posterior mean of every label, with all supports of a sparse w enumerated.

    Time: O(supports · k³) a prompt and point; memory: some 100 MB. Raises `ValueError` without noise, where the
    posterior is no density, and for more than `MOST_SUPPORTS` supports.
    """
    if not task.noise_std:
        raise ValueError("Bayes: expected a task with noise_std above 0, got 0; without noise, see least squares.")
    n_dims, n_supports = _n_dims(task), _n_supports(task)
    if n_supports > MOST_SUPPORTS:
        raise ValueError(
            f"Bayes: expected at most {MOST_SUPPORTS:,} supports, got {n_supports:,} ({task.n_relevant} of {n_dims} "
            "coordinates); take fewer coordinates."
        )
    supports = torch.tensor(list(combinations(range(n_dims), task.n_relevant)))
    k, estimated = task.n_relevant, torch.zeros_like(labels)
    identity = torch.eye(k, dtype=inputs.dtype)
    rows_at_once = max(1, 3_000_000 // (n_supports * k * k))
    for start in range(0, len(inputs), rows_at_once):
        x, y = inputs[start : start + rows_at_once], labels[start : start + rows_at_once]
        for i in range(1, inputs.shape[1]):
            examples, variance = x[:, :i], task.noise_std**2
            gram, moment = examples.mT @ examples / variance, (examples.mT @ y[:, :i, None])[..., 0] / variance
            precision = identity + gram[:, supports[:, :, None], supports[:, None, :]]  # [prompt, support, k, k]
            b = moment[:, supports]
            factor = torch.linalg.cholesky(precision)
            means = torch.cholesky_solve(b[..., None], factor)[..., 0]
            log_evidence = (b * means).sum(-1) / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            by_support = (x[:, i][:, supports] * means).sum(-1)
            estimated[start : start + rows_at_once, i] = (log_evidence.softmax(-1) * by_support).sum(-1)
    return estimated


#: The baselines by name, in the order in which they are shown.
ESTIMATORS: dict[str, Estimator] = {
    "least squares": least_squares,
    "averaging": averaging,
    "3 nearest": nearest_3,
    "lasso": lasso,
    "ridge": ridge,
    "Bayes": bayes,
    "zero": zero,
}


def shown_baselines(task: RegressionTask) -> tuple[str, ...]:
    """Return the names of the quick baselines that a model is compared with on a task; with noisy labels the optimum is
    one."""
    names = ["least squares", "averaging", "3 nearest"]
    if task.noise_std:
        names += ["ridge", "Bayes"] if _n_supports(task) <= MOST_SUPPORTS else ["ridge"]
    return tuple(names)


def _n_supports(task: RegressionTask) -> int:
    return math.comb(_n_dims(task), task.n_relevant)


def _n_dims(task: RegressionTask) -> int:
    return task.d if task.n_dims is None else task.n_dims


def baseline_errors(
    name: str, task: RegressionTask, *, n_prompts: int = 1280, n_points: int | None = None, seed: int = 0
) -> RegressionErrors:
    """Measure the estimator of that name of `ESTIMATORS` on the prompts that `aotlens.evaluate.regression_errors` has
    for the same arguments; `n_points` is 2d + 1 unless given. Raises `ValueError` for another name, and for Bayes where
    `bayes` does."""
    require_choice("name", name, ESTIMATORS)
    prompts = task.sample(n_prompts, 2 * task.d + 1 if n_points is None else n_points, seed, dtype=torch.float64)
    return errors_of(name, task, prompts, estimates(name, prompts, task))


def estimates(name: str, prompts: RegressionPrompts, task: RegressionTask) -> Float[Tensor, "prompt point"]:
    """Return the estimates of every label by the estimator of that name, float64."""
    return ESTIMATORS[name](prompts.inputs.double(), prompts.labels.double(), task)


@dataclass(frozen=True)
class RegressionComparison(Result):
    """Errors of models, then of baselines, on the same prompts of one task. Raises `ValueError` for none, and where
    tasks differ."""

    errors: Sequence[RegressionErrors]

    def __post_init__(self) -> None:
        """Checks that there is something to compare."""
        tasks = {result.task for result in self.errors}
        if len(tasks) != 1:
            raise ValueError(f"RegressionComparison: expected errors on one task, got {len(tasks)} tasks.")

    @property
    def baselines(self) -> tuple[str, ...]:
        """The names of what was not trained."""
        return tuple(result.name for result in self.errors if result.name in ESTIMATORS)

    @property
    def examples(self) -> int:
        """The number of examples for the headline's errors: 2d, or as many as the shortest prompt has."""
        return min(2 * self.errors[0].task.d, *(len(result.mean) - 1 for result in self.errors))

    @property
    def headline(self) -> str:
        n_examples = self.examples
        return f"after {n_examples} examples " + ", ".join(
            f"{result.name} {result.mean[n_examples]:.3g}" for result in self.errors
        )

    def sentences(self) -> str:
        """Return the error of each estimator, with the band of each model."""
        after, estimators = self.examples, []
        for each in self.errors:
            band = "" if each.name in self.baselines else interval_text(each.bands[after], ".3f", "")
            estimators.append(f"{each.name} {each.mean[after]:.3f}{band}")
        return (
            f"After {after} examples the squared error ÷ the zero predictor's is: {'; '.join(estimators)}. Bands are "
            f"95% intervals of the mean over the same {len(self.errors[0].errors)} prompts."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per estimator and a number of examples: examples, error, low, high, name."""
        import pandas as pd

        return pd.concat([errors.to_frame().assign(name=errors.name) for errors in self.errors], ignore_index=True)
