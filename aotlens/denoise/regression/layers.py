"""A model's estimate of the answer after each layer, beside the estimates of steps of descent.

The answer is read off the stream at every x by one linear map a layer, fitted by least squares on other prompts (the
stream is normalised first where the model's read-out normalises it, without gain and bias, which the map has of its
own). An algorithm is near a layer where both say the same of the same queries:

    distance = mean (probe's estimate − algorithm's estimate)² ÷ E y²     over prompts and points with an example before

A small distance says that the layer's answer is the algorithm's, not that the layer computes it that way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.denoise.regression.baselines import estimates
from aotlens.denoise.regression.descent import ALGORITHMS, Spectra, fit_descent
from aotlens.evaluate import points_of, regression_estimates, require_regression
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: Seed of the prompts that probes and step sizes are fitted on: no training run nor measurement has it.
_FIT_SEED = 90_001


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerReadings(Result):
    """Errors by layer and by algorithm on the same prompts, divided by the zero predictor's, and how near they are."""

    task: RegressionTask
    probe_errors: Float64[np.ndarray, "state example"]
    """The errors of the probe before the first layer and after each one."""
    model_errors: Float64[np.ndarray, " example"]
    """The errors of the model's own answer."""
    algorithms: tuple[tuple[str, int], ...]
    """(name, number of steps)."""
    algorithm_errors: Float64[np.ndarray, "algorithm example"]
    distance: Float64[np.ndarray, "state algorithm"]
    """The distance as at the head of this module."""
    n_prompts: int

    @property
    def nearest(self) -> tuple[tuple[str, int], ...]:
        """The algorithm that is nearest to each state."""
        return tuple(self.algorithms[index] for index in self.distance.argmin(1))

    @property
    def headline(self) -> str:
        name, steps = self.nearest[-1]
        told = name if name == "least squares" else f"{counted_steps(steps)} of {name} descent"
        return f"the last layer's answer is nearest to {told} (distance {self.distance[-1].min():.3g})"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a state: layers before it, the probe's mean error over queries with an example before, the
        nearest algorithm with its steps and distance, and the probe's error after each number of examples."""
        import pandas as pd

        states = pd.DataFrame(
            {
                "layers": range(len(self.probe_errors)),
                "error": self.probe_errors[:, 1:].mean(1),
                "nearest": [name for name, _ in self.nearest],
                "steps": [steps for _, steps in self.nearest],
                "distance": self.distance.min(1),
            }
        )
        return pd.concat([states, pd.DataFrame(self.probe_errors).add_prefix("error_after_")], axis=1)


def counted_steps(steps: int) -> str:
    """Say how many steps there are: `1 step`, `2 steps`."""
    return f"{steps} step{'s' if steps > 1 else ''}"


@torch.no_grad()
def read_layers(
    model: AttentionOnlyTransformer,
    task: RegressionTask,
    *,
    n_steps: int = 6,
    n_prompts: int = 512,
    n_points: int | None = None,
    seed: int = 0,
) -> LayerReadings:
    """Read the answer off after every layer of `model`, on `n_prompts` prompts of `task`; fits take as many others.

    Points are as many as the context holds unless given. Raises `ValueError` as `require_regression`, and for fewer
    prompts than a probe has weights.
    """
    require_ours(model, "read_layers")
    require_regression(model, task.d)
    n_points = points_of(model) if n_points is None else n_points
    if n_prompts * n_points <= model.cfg.d_model + 1 or n_points < 2:
        raise ValueError(
            f"expected at least 2 points and more than {model.cfg.d_model + 1} queries to fit a probe on, got "
            f"{n_prompts} prompts of {n_points} points."
        )
    fit, held = (task.sample(n_prompts, n_points, number, dtype=torch.float64) for number in (_FIT_SEED, seed))
    probed = _probe(_streams(model, fit), fit.labels, _streams(model, held))
    spectra, others = Spectra.of(held), Spectra.of(fit)
    names: list[tuple[str, int]] = []
    by_algorithm: list[Tensor] = []
    for algorithm in ALGORITHMS:
        by_steps = fit_descent(algorithm, others, n_steps).estimates(spectra)
        names += [(algorithm, steps) for steps in range(1, n_steps + 1)]
        by_algorithm += list(by_steps)
    names.append(("least squares", 1))
    by_algorithm.append(estimates("least squares", held, task))
    algorithms = torch.stack(by_algorithm)

    def error(estimated: Tensor) -> Float64[np.ndarray, "*rows example"]:
        return ((estimated - held.labels).pow(2).mean(-2) / task.zero_error).numpy()

    apart = (probed[:, None, :, 1:] - algorithms[None, :, :, 1:]).pow(2).mean((-2, -1)) / task.zero_error
    return LayerReadings(
        task=task,
        probe_errors=error(probed),
        model_errors=error(regression_estimates(model, held).cpu().double()),
        algorithms=tuple(names),
        algorithm_errors=error(algorithms),
        distance=apart.numpy(),
        n_prompts=n_prompts,
    )


def _streams(
    model: AttentionOnlyTransformer, prompts: RegressionPrompts, batch_size: int = 128
) -> Float[Tensor, "state prompt point d_model"]:
    """The stream at every x before the first layer and after each, float64, normalised where the read-out does it."""
    names = [hook_names.resid_pre(0), *(hook_names.resid_post(layer) for layer in range(model.cfg.n_layers))]
    parts = []
    for tokens in prompts.tokens.to(model.device, model.dtype).split(batch_size):
        _, cache = model.run_with_cache(tokens, names_filter=names, return_cache_object=False)
        parts.append(torch.stack([cache[name][:, ::2].cpu().double() for name in names]))
    streams = torch.cat(parts, 1)
    if model.cfg.norm is None:
        return streams
    return torch.nn.functional.layer_norm(streams, streams.shape[-1:], eps=model.cfg.norm_eps)


def _probe(
    fit: Float[Tensor, "state prompt point d_model"],
    labels: Float[Tensor, "prompt point"],
    held: Float[Tensor, "state other point d_model"],
) -> Float[Tensor, "state other point"]:
    """Estimates on `held` of the linear maps, with a constant, that fit `labels` best, one a state."""
    estimated = []
    for rows, others in zip(fit, held, strict=True):
        design = torch.nn.functional.pad(rows.flatten(0, 1), (0, 1), value=1.0)
        solution = torch.linalg.lstsq(design, labels.flatten()[:, None].double(), rcond=1e-10, driver="gelsd").solution
        estimated.append((torch.nn.functional.pad(others, (0, 1), value=1.0) @ solution)[..., 0])
    return torch.stack(estimated)
