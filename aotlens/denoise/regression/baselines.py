"""What regression in context is held against: estimates of every label of a prompt from the examples before it.

With the i examples before a query x as rows X `[i, d]` and labels y `[i]`,

    least_squares   x·ŵ, ŵ the solution of least norm. Without noise its error is max(0, 1 − i/d) of the zero
                    predictor's on the linear task with inputs N(0, I): ŵ is w projected on the span of X.
    averaging       x·(1/i) Σ_j y_j x_j, the first step of gradient descent. Its error is (d + 1)/i on both tasks.
    nearest_3       the mean label of the three nearest inputs (of all where there are fewer).
    lasso           x·ŵ, ŵ minimising ‖y − X w‖²/(2i) + α‖w‖₁, α = .01, as scikit-learn's `Lasso` without intercept.
    zero            0.

Before the first example all say 0. Garg et al. (2022) hold their models against these; estimates are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.evaluate import RegressionErrors, errors_of

#: α of the lasso (Garg et al. 2022).
LASSO_ALPHA = 0.01

Estimator = Callable[[Tensor, Tensor], Tensor]


def zero(inputs: Float[Tensor, "prompt point d"], labels: Float[Tensor, "prompt point"]) -> Tensor:
    """0 for every label."""
    return torch.zeros_like(labels)


def least_squares(inputs: Float[Tensor, "prompt point d"], labels: Float[Tensor, "prompt point"]) -> Tensor:
    """The least-squares solution of least norm, by singular values: LAPACK's gelsy was wrong where columns are zero."""
    estimated = torch.zeros_like(labels)
    for i in range(1, inputs.shape[1]):
        examples, values = inputs[:, :i], labels[:, :i, None]
        weights = torch.linalg.lstsq(examples, values, rcond=1e-10, driver="gelsd").solution[..., 0]
        estimated[:, i] = (inputs[:, i] * weights).sum(-1)
    return estimated


def averaging(inputs: Float[Tensor, "prompt point d"], labels: Float[Tensor, "prompt point"]) -> Tensor:
    """(1/i) Σ_j y_j x_j as the weights."""
    sums = (labels[..., None] * inputs).cumsum(1)[:, :-1]
    counts = torch.arange(1, inputs.shape[1], dtype=inputs.dtype)
    estimates = (sums * inputs[:, 1:]).sum(-1) / counts
    return torch.nn.functional.pad(estimates, (1, 0))


def nearest_3(inputs: Float[Tensor, "prompt point d"], labels: Float[Tensor, "prompt point"]) -> Tensor:
    """The mean label of the three nearest inputs by Euclidean distance."""
    n_points = inputs.shape[1]
    hidden = torch.ones(n_points, n_points, dtype=torch.bool).triu()
    distances = torch.cdist(inputs, inputs).masked_fill(hidden, torch.inf)
    nearest = distances.topk(min(3, n_points), largest=False)
    near = nearest.values.isfinite()
    own = torch.where(near, labels[:, None, :].expand(-1, n_points, -1).gather(2, nearest.indices), 0.0)
    return own.sum(-1) / near.sum(-1).clamp(min=1)


def lasso(
    inputs: Float[Tensor, "prompt point d"],
    labels: Float[Tensor, "prompt point"],
    points: Sequence[int] | None = None,
) -> Tensor:
    """scikit-learn's lasso, a fit of some 0.3 ms a prompt and point; 0 at all but `points`, where they are given."""
    from sklearn.linear_model import Lasso

    model = Lasso(alpha=LASSO_ALPHA, fit_intercept=False, max_iter=100_000)
    estimated = torch.zeros_like(labels)
    for x, y, said in zip(inputs.numpy(), labels.numpy(), estimated, strict=True):
        for i in range(1, len(x)) if points is None else points:
            said[i] = float(x[i] @ model.fit(x[:i], y[:i]).coef_)
    return estimated


#: The baselines by name, in the order in which they are shown.
ESTIMATORS: dict[str, Estimator] = {
    "least squares": least_squares,
    "averaging": averaging,
    "3 nearest": nearest_3,
    "lasso": lasso,
    "zero": zero,
}


def baseline_errors(
    name: str, task: RegressionTask, *, n_prompts: int = 1280, n_points: int | None = None, seed: int = 0
) -> RegressionErrors:
    """Measure the estimator of that name of `ESTIMATORS` on the prompts that `aotlens.evaluate.regression_errors` has
    for the same arguments; `n_points` is 2d + 1 unless given. Raises `ValueError` for another name."""
    if name not in ESTIMATORS:
        raise ValueError(f"no baseline {name!r}; there are {', '.join(ESTIMATORS)}.")
    prompts = task.sample(n_prompts, 2 * task.d + 1 if n_points is None else n_points, seed, dtype=torch.float64)
    return errors_of(name, task, prompts, estimates(name, prompts))


def estimates(name: str, prompts: RegressionPrompts) -> Float[Tensor, "prompt point"]:
    """What the estimator of that name says of every label, float64."""
    return ESTIMATORS[name](prompts.inputs.double(), prompts.labels.double())
