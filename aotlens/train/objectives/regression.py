"""The objective of in-context regression: the label of every input of a prompt, from the examples before it.

Prompts are drawn anew at every step (`aotlens.data.regression`), so that there is nothing to read and nothing to hold
out: what is measured is measured on prompts of other seeds. The loss is the squared error; a card's figures are divided
by the zero predictor's.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.data import Curriculum, RegressionTask
from aotlens.evaluate.regression import N_PROMPTS, regression_errors
from aotlens.models import AttentionOnlyTransformer
from aotlens.train.objectives.objective import Batch, Objective

if TYPE_CHECKING:
    from aotlens.train.recipe import Recipe

_RUNNING_PROMPTS = 256
_RUNNING_SEED, _FINAL_SEED = 1, 0  # batches have seeds above a million (`Objective.stage_seed`)


class Regression(Objective[RegressionTask]):
    """The label of every input."""

    section = "prompts"
    autocast = False  # squared errors of 0.001 of the labels' are below bfloat16's rounding

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        section, cfg = recipe.prompts, cls.model_config(recipe)
        assert section is not None
        expected = ("vectors", "vectors", section.d, 1)
        if (cfg.read_in, cfg.read_out, cfg.d_in, cfg.d_out) != expected or cfg.sees_later_keys:
            raise ValueError(
                f"recipe {recipe.name!r}: objective = 'regression' in {section.d} dimensions needs a causal model with "
                f"read_in = 'vectors', d_in = {section.d}, read_out = 'vectors', d_out = 1; got {cfg.read_in!r}, "
                f"{cfg.d_in}, {cfg.read_out!r}, {cfg.d_out}{' and one that sees later keys' * cfg.sees_later_keys}."
            )
        if cfg.n_ctx < 2 * section.points - 1:
            raise ValueError(
                f"recipe {recipe.name!r}: prompts of {section.points} points are {2 * section.points - 1} positions, "
                f"but the model's n_ctx is {cfg.n_ctx}; raise it, or lower points."
            )

    @classmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        assert recipe.prompts is not None
        prompts = recipe.prompts.task.sample(n_rows, recipe.prompts.points)
        return prompts.tokens, prompts.targets

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        spec: str | None = None,
        *,
        home: Path | None = None,
        announce: Callable[[str], None] = lambda message: None,
    ) -> RegressionTask:
        """Return the recipe's task. Raises `ValueError` for data given on the command line."""
        if spec is not None:
            raise ValueError(f"recipe {recipe.name!r}: prompts are drawn, not read; leave out --data {spec}.")
        assert recipe.prompts is not None
        return recipe.prompts.task

    def make_model(self) -> AttentionOnlyTransformer:
        return AttentionOnlyTransformer(self.recipe.model_config())

    def identity(self) -> dict[str, Any]:
        return {}

    def batch(self, stage: int, step: int) -> Batch:
        done = sum(earlier.n_steps for earlier in self.recipe.stages[:stage])
        n_dims, n_points = self._curriculum.at(done + step)
        task = dataclasses.replace(self.data, n_dims=n_dims)
        prompts = task.sample(self.recipe.stages[stage].batch_size, n_points, self.stage_seed(stage), step)
        return prompts.tokens, prompts.targets

    @functools.cached_property
    def _curriculum(self) -> Curriculum:
        assert self.recipe.prompts is not None
        return self.recipe.prompts.curriculum

    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Return the error on 256 prompts, mean over all numbers of examples, and after 2d of them."""
        errors = self._errors(model, _RUNNING_PROMPTS, _RUNNING_SEED).mean
        return {"regression_error": float(errors.mean()), **self._after(errors)}

    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return the error on 1,280 prompts, ÷ the zero predictor's: mean over all numbers of examples, beside least
        squares'; after d and 2d examples; and each.

        That of least squares is the closed form mean max(0, 1 − i/d), where labels have no noise; it then has none.
        """
        assert self.recipe.prompts is not None
        result = self._errors(model, N_PROMPTS, _FINAL_SEED)
        metrics: dict[str, Any] = {"regression_error": float(result.mean.mean())}
        if not self.data.noise_std:
            examples = np.arange(len(result.mean))
            metrics["least_squares_error"] = float(np.maximum(0.0, 1 - examples / self.data.d).mean())
        metrics |= self._after(result.mean)
        last = min(2 * self.data.d, len(result.mean) - 1)
        low, high = result.bands[last]
        return metrics | {
            "error_after_2d_low": float(low),
            "error_after_2d_high": float(high),
            "prompts": len(result.errors),
            "error_by_examples": [round(float(error), 5) for error in result.mean],
        }

    def _errors(self, model: AttentionOnlyTransformer, n_prompts: int, seed: int) -> Any:
        assert self.recipe.prompts is not None
        return regression_errors(
            model, self.data, n_prompts=n_prompts, n_points=self.recipe.prompts.points, seed=seed, name=self.recipe.name
        )

    def _after(self, errors: np.ndarray) -> dict[str, float]:
        """Return the errors after d and 2d examples, or as many as there are."""
        d, last = self.data.d, len(errors) - 1
        return {"error_after_d": float(errors[min(d, last)]), "error_after_2d": float(errors[min(2 * d, last)])}

    def corpus(self) -> dict[str, Any]:
        """Return the data for the card, with the hash of the first step's tokens: whether prompts are drawn alike
        elsewhere."""
        tokens, _ = self.batch(0, 0)
        return {"sha256": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()}
