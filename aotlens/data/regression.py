"""Prompts of in-context regression: examples (x, y) of one random linear function, then a query (Garg et al. 2022).

A prompt draws a weight vector w and N inputs x_i, and labels them y_i = w·x_i (*aot* §4.2.2):

    linear    w ~ N(0, I_d), x_i ~ N(0, I_d)
    sparse    the same with all but `n_nonzero` coordinates of w set to zero, which ones at random

Prompts on which a model is measured may differ from those that it was trained on: noisy labels, inputs of another
scale, mean or covariance, fewer coordinates (Garg et al. 2022, §4, Figure 4).

A model reads the interleaved tokens x_1, y_1, x_2, y_2, …, x_N, each d numbers wide, a label in the first coordinate of
its token and zeros after it. Its output at x_i is its estimate of y_i from i − 1 examples; the estimates at all x count
and what it says at a label does not. Batches are a pure function of (seed, step), as those of text are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_between, require_whole
from aotlens.data.sampler import uniform_words

_WEIGHT_STREAM, _INPUT_STREAM, _NOISE_STREAM, _SUPPORT_STREAM, _BASIS_STREAM = 6, 7, 8, 9, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionPrompts:
    """Prompts with what they were drawn from."""

    inputs: Float[Tensor, "prompt point d"]
    """The inputs x_i."""
    labels: Float[Tensor, "prompt point"]
    """The labels y_i, noise included."""
    weights: Float[Tensor, "prompt d"]
    """The weights w of the task."""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def tokens(self) -> Float[Tensor, "prompt pos d"]:
        """The model's input: x_1, y_1, …, x_N, 2N − 1 positions. The last label is no part of the prompt."""
        return interleave(self.inputs, self.labels)

    @property
    def targets(self) -> Float[Tensor, "prompt pos 1"]:
        """The model's targets: y_i at the position of x_i, NaN, which does not count, at the labels."""
        n_prompts, n_points = self.labels.shape
        targets = self.labels.new_full((n_prompts, 2 * n_points - 1, 1), torch.nan)
        targets[:, ::2, 0] = self.labels
        return targets


@dataclass(frozen=True, kw_only=True)
class RegressionTask:
    """A distribution of prompts. Raises `ValueError` for sizes that do not fit together."""

    d: int = 20
    """Width of an input."""
    n_nonzero: int | None = None
    """Coordinates of w that are not zero; None is all of them."""
    noise_std: float | int = 0.0
    """Standard deviation of the noise that is added to every label."""
    input_scale: float | int = 1.0
    """Standard deviation of each coordinate of an input."""
    input_mean: float | int = 0.0
    """Mean of each coordinate of an input."""
    input_skew: float | int = 0.0
    """The i-th eigenvalue of the inputs' covariance goes as i^(−input_skew), in a basis that each prompt draws for
    itself; they add up as without it, so that inputs are as long on average. 2 is Garg et al.'s skewed covariance."""
    n_dims: int | None = None
    """The number of first coordinates of the inputs that are not zero, as in a curriculum; the nonzero coordinates of a
    sparse w are among them (all of them where they are fewer); None is d."""

    def __post_init__(self) -> None:
        for name in ("n_nonzero", "n_dims"):
            value = getattr(self, name)
            if self.d < 1 or not (value is None or 1 <= value <= self.d):
                raise ValueError(f"expected d ≥ 1 and 1 ≤ {name} ≤ d (or None), got d={self.d}, {name}={value}.")
        require_between("noise_std", self.noise_std, 0)
        require_between("input_scale", self.input_scale, above=0)
        require_between("input_skew", self.input_skew, 0)

    @property
    def n_relevant(self) -> int:
        """Coordinates of an input on which its label depends."""
        n_dims = self.d if self.n_dims is None else self.n_dims
        return n_dims if self.n_nonzero is None else min(self.n_nonzero, n_dims)

    @property
    def zero_error(self) -> float:
        """E y², noise aside: the squared error of the zero predictor, by which errors are divided. d or n_nonzero for
        inputs N(0, I), and for a skewed covariance, whose basis is as likely to turn any way."""
        return float(self.n_relevant * (self.input_scale**2 + self.input_mean**2))

    def sample(
        self,
        n_prompts: int,
        n_points: int,
        seed: int = 0,
        step: int = 0,
        *,
        dtype: torch.dtype = torch.float32,
    ) -> RegressionPrompts:
        """Draw prompts; (seed, step) decide them. Drawn in float64 and rounded to `dtype`.

        Raises `ValueError` for no prompts or points.
        """
        require_whole("n_prompts", n_prompts, 1)
        require_whole("n_points", n_points, 1)
        n_dims = self.d if self.n_dims is None else self.n_dims
        weights = standard_normal(seed, _WEIGHT_STREAM, step, (n_prompts, self.d))
        if self.n_nonzero is not None:
            ranks = uniform_words(seed, _SUPPORT_STREAM, step, (n_prompts, self.d))[:, :n_dims].argsort(1).argsort(1)
            weights[:, :n_dims] *= ranks < self.n_nonzero
            weights[:, n_dims:] = 0.0
        drawn = standard_normal(seed, _INPUT_STREAM, step, (n_prompts, n_points * self.d))
        drawn = drawn.reshape(n_prompts, n_points, self.d)
        if self.input_skew:
            draw = standard_normal(seed, _BASIS_STREAM, step, (n_prompts, n_dims * n_dims))
            drawn[:, :, :n_dims] = _skewed(drawn[:, :, :n_dims], draw.reshape(-1, n_dims, n_dims), self.input_skew)
        inputs = self.input_mean + self.input_scale * drawn
        inputs[:, :, n_dims:] = 0.0
        labels = np.einsum("npd,nd->np", inputs, weights)
        if self.noise_std:
            labels += self.noise_std * standard_normal(seed, _NOISE_STREAM, step, (n_prompts, n_points))
        return RegressionPrompts(
            inputs=torch.from_numpy(inputs).to(dtype),
            labels=torch.from_numpy(labels).to(dtype),
            weights=torch.from_numpy(weights).to(dtype),
        )


@dataclass(frozen=True, kw_only=True)
class Curriculum:
    """Prompts that grow: fewer coordinates and points first (Garg et al. 2022, Appendix A). Raises `ValueError` for
    steps that never get there."""

    dims_start: int
    """Coordinates of the inputs that are not zero at first."""
    dims_end: int
    points_start: int
    """Points of a prompt at first."""
    points_end: int
    dims_step: int = 1
    points_step: int = 2
    every: int = 2000
    """Training steps from one growth to the next."""

    def __post_init__(self) -> None:
        if not (1 <= self.dims_start <= self.dims_end and 1 <= self.points_start <= self.points_end):
            raise ValueError(
                "curriculum: expected 1 ≤ dims_start ≤ dims_end and 1 ≤ points_start ≤ points_end, got dims "
                f"{self.dims_start} to {self.dims_end} and points {self.points_start} to {self.points_end}."
            )
        if min(self.dims_step, self.points_step) < 0 or self.every < 1:
            raise ValueError(
                f"curriculum: expected steps of at least 0 and every ≥ 1, got {self.dims_step}, {self.points_step} and "
                f"{self.every}."
            )

    def at(self, step: int) -> tuple[int, int]:
        """Return (dims, points) of a training step, from 0."""
        grown = step // self.every
        return (
            min(self.dims_end, self.dims_start + grown * self.dims_step),
            min(self.points_end, self.points_start + grown * self.points_step),
        )


def interleave(
    inputs: Float[Tensor, "prompt point d"], labels: Float[Tensor, "prompt label"]
) -> Float[Tensor, "prompt pos d"]:
    """Return tokens x_1, y_1, …, x_N of N inputs and their labels, of which the last, or more, may be missing or is
    left out.

    Raises `ValueError` for fewer than N − 1 labels.
    """
    n_prompts, n_points, d = inputs.shape
    if labels.shape[1] < n_points - 1:
        raise ValueError(f"expected a label for each but the last of {n_points} inputs, got {labels.shape[1]}.")
    tokens = inputs.new_zeros(n_prompts, 2 * n_points - 1, d)
    tokens[:, ::2] = inputs
    tokens[:, 1::2, 0] = labels[:, : n_points - 1]
    return tokens


def _skewed(
    inputs: Float[np.ndarray, "prompt point dim"], draw: Float[np.ndarray, "prompt dim dim"], skew: float
) -> Float[np.ndarray, "prompt point dim"]:
    """Inputs with covariance Q diag(λ) Qᵀ, λ_i ∝ i^(−skew), tr = dim, Q the uniform basis of `draw`."""
    basis, upper = np.linalg.qr(draw)
    basis = basis * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    eigenvalues = np.arange(1, draw.shape[-1] + 1, dtype=np.float64) ** -skew
    eigenvalues *= len(eigenvalues) / eigenvalues.sum()
    skewed: np.ndarray = (inputs * np.sqrt(eigenvalues)) @ basis.transpose(0, 2, 1)
    return skewed


def standard_normal(seed: int, stream: int, step: int, shape: tuple[int, int]) -> Float[np.ndarray, "row column"]:
    """Return normal numbers from the words of (seed, stream, step), by the inverse of the distribution function."""
    from scipy.special import ndtri

    words = uniform_words(seed, stream, step, shape)
    return ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
