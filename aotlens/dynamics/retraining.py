"""Training again with windows weighed, left out or in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import torch
from jaxtyping import Float64, Int64

from aotlens.conventions import Progress, require_whole
from aotlens.dynamics.influence_measures import Measure, as_measures
from aotlens.dynamics.recipe_run import RecipeRun, recipe_run, require_eps_root
from aotlens.models import AttentionOnlyTransformer
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrained(Result):
    """Measures of a run that was made again, at moments of it."""

    run: str
    measures: tuple[str, ...]
    steps: Int64[np.ndarray, " moment"]
    values: Float64[np.ndarray, "measure moment"]

    @property
    def headline(self) -> str:
        ends = ", ".join(f"{name} {value:.4g}" for name, value in zip(self.measures, self.values[:, -1], strict=True))
        return f"{ends} after {self.steps[-1]:,} steps"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per moment: step, and each measure."""
        import pandas as pd

        return pd.DataFrame({"step": self.steps, **dict(zip(self.measures, self.values, strict=True))})


def retrain(
    run: Any,
    measures: Mapping[str, Measure] | Sequence[str],
    *,
    corpus: str | None = None,
    weights: Float64[np.ndarray, " window"] | None = None,
    order: Int64[np.ndarray, " window"] | None = None,
    steps: int | None = None,
    eps_root: float = 0.0,
    n_moments: int = 21,
) -> Retrained:
    """Make a run again (`recipe_run`) with other windows, and measure it at moments evenly spaced in steps.

    `weights` multiply the loss of each window (0 leaves it out, 2 counts it twice); `order` says which window stands at
    each place of the run. Both are by window, as `Influence.windows` has them: a class of windows is dropped, repeated
    or brought forward by them. Seed, rates and the initial weights stay. `eps_root` stands inside AdamW's root, as in
    `influence`.

    Raises `ValueError` as `recipe_run` and `RecipeRun.train` do.
    """
    followed = recipe_run(run, corpus)
    n_steps = require_whole("steps", followed.n_steps if steps is None else steps, 1, followed.n_steps)
    n_moments = require_whole("n_moments", n_moments, 1)
    functions = as_measures(measures, followed)
    return _retrain(
        followed, functions, n_steps, moments_of(n_steps, n_moments), require_eps_root(eps_root), weights, order
    )


def moments_of(n_steps: int, n: int) -> Int64[np.ndarray, " moment"]:
    """Return the last step, and others evenly spaced from step 0."""
    return np.array([n_steps]) if n == 1 else np.unique(np.linspace(0, n_steps, n).round().astype(np.int64))


def _retrain(
    run: RecipeRun,
    measures: Mapping[str, Measure],
    n_steps: int,
    moments: Int64[np.ndarray, " moment"],
    eps_root: float,
    weights: Float64[np.ndarray, " window"] | None = None,
    order: Int64[np.ndarray, " window"] | None = None,
) -> Retrained:
    values: list[list[float]] = []
    steps = set(moments.tolist())

    def at(step: int, model: AttentionOnlyTransformer) -> None:
        if step in steps:
            with torch.no_grad():
                values.append([float(measure(model)) for measure in measures.values()])

    run.train(weights, order, steps=n_steps, eps_root=eps_root, at=at)
    return Retrained(
        run=run.recipe.name, measures=tuple(measures), steps=moments, values=np.array(values).T.astype(np.float64)
    )


def retrain_without(
    run: RecipeRun,
    measures: Mapping[str, Measure],
    n_steps: int,
    subsets: Sequence[Int64[np.ndarray, " dropped"] | None],
    moments: Int64[np.ndarray, " moment"],
    *,
    eps_root: float,
    progress: Progress | None = None,
) -> list[Retrained]:
    """Train the run again without each subset."""
    run.model()  # its initial weights are drawn once, not in each thread
    jobs = []
    for subset in subsets:
        weights = None
        if subset is not None:
            weights = np.ones(int(run.sizes[:n_steps].sum()))
            weights[subset] = 0
        jobs.append(joblib.delayed(_retrain)(run, measures, n_steps, moments, eps_root, weights))
    runs: list[Retrained] = []
    for retrained in joblib.Parallel(return_as="generator", prefer="threads")(jobs):
        runs.append(retrained)
        if progress is not None:
            progress(len(runs), len(jobs))
    return runs
