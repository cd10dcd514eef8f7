"""A model's estimate of the answer after each layer, compared with steps of descent; and layers built by hand that take
one.

**Readings.** The answer is read off the stream at every x by one linear map a layer, fitted by least squares on other
prompts (the stream is normalised first where the model's read-out normalises it, without gain and bias, which the map
has of its own). An algorithm is near a layer where both say the same of the same queries:

    distance = mean (probe's estimate − algorithm's estimate)² ÷ E y²     over prompts and points with an example before

A small distance says that the layer's answer is the algorithm's, not that the layer computes it that way.

**Algorithms** that a model's layers may run are steps of gradient descent and of a preconditioned one, for every
prefix. With H = XᵀX/i and g = Xᵀy/i of the i examples before a query, and w_0 = 0,

    gradient         w ← w + η (g − H w)                    after k steps w_k = q(H) g, q(λ) = (1 − (1 − ηλ)^k)/λ
    preconditioned   w ← w + η (I − γ H)(g − H w)           the same with ηλ(1 − γλ) for ηλ

The second is gradient descent on inputs that were transformed by I − γH first ("GD++", von Oswald et al. 2023). Both
are filters of H's spectrum, so one eigendecomposition a prefix serves every step size: η and γ are those of a grid that
do best for each k and i, on prompts of their own, among those that stay stable on others. Without that the best on 512
prompts of five dimensions did badly on new ones, since a prompt whose H has a larger eigenvalue than any before blows
the steps up: six preconditioned steps had 2.7 times the zero predictor's error there, now 0.29. So none is taken with
which any part of w would grow more than threefold in all k steps, for eigenvalues up to a quarter above the largest.

**Built by hand**, linear attention performs one step of gradient descent (von Oswald et al. 2023). For the squared loss
L(w) = ½ Σ_{j ≤ i} (y_j − w·x_j)² of i examples, a step of size γ from w = 0 gives

    w = −γ ∇L(0) = γ Σ_j y_j x_j,        so that a query x gets the estimate γ Σ_j y_j (x_j·x)

which is what linear attention sums where keys are x_j, values y_j and the query x. φ = "linear" divides scores by the
number of visible keys, the query's own included, so that γ is η/(i + 1) on paired tokens and η/(2i + 1) on interleaved
ones. Scores are not scaled (`attn_scale = 1`) and there is no norm; float64 models match the step to 1e-10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import require_choice, several
from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.denoise.regression.baselines import estimates
from aotlens.evaluate import points_of, regression_estimates, require_regression
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names, require_ours
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
        algorithm = name if name == "least squares" else f"{counted_steps(steps)} of {name} descent"
        return f"the last layer's answer is nearest to {algorithm} (distance {self.distance[-1].min():.3g})"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per state: layers before it, the probe's mean error over queries with an example before, the
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
    return several(steps, "step")


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


#: The algorithms by name, and the values of γ, in units of 1 ÷ the mean largest eigenvalue of H, that each may take.
_FACTORS = {"gradient": (0.0,), "preconditioned": (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)}
ALGORITHMS = tuple(_FACTORS)
_STEP_SIZES = torch.linspace(0.1, 5.0, 50, dtype=torch.float64)  # in the same units
#: The largest growth of a part of w in all steps, for eigenvalues up to so many times the largest of the prompts.
_MOST_GROWTH, _BEYOND = 3.0, 1.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectra:
    """The eigenvalues of every prefix's H, with the gradient at 0 and the query along its eigenvectors."""

    eigenvalues: Float[Tensor, "prompt point d"]
    gradient: Float[Tensor, "prompt point d"]
    query: Float[Tensor, "prompt point d"]
    labels: Float[Tensor, "prompt point"]

    @classmethod
    def of(cls, prompts: RegressionPrompts) -> Spectra:
        """Compute the spectra of prompts. Before the first example H and g are 0. Memory: a d × d matrix a prompt and
        point, float64."""
        inputs, labels = prompts.inputs.double(), prompts.labels.double()
        counts = torch.arange(inputs.shape[1], dtype=torch.float64).clamp(min=1)[:, None]

        def before(sums: Tensor) -> Tensor:
            return torch.cat([torch.zeros_like(sums[:, :1]), sums.cumsum(1)[:, :-1]], 1)

        second = before(inputs[..., :, None] * inputs[..., None, :]) / counts[..., None]
        gradient = before(labels[..., None] * inputs) / counts
        eigenvalues, vectors = torch.linalg.eigh(second)

        def along(rows: Tensor) -> Tensor:
            return (vectors.mT @ rows[..., None])[..., 0]

        return cls(eigenvalues=eigenvalues.clamp(min=0), gradient=along(gradient), query=along(inputs), labels=labels)

    @property
    def unit(self) -> Float[Tensor, " point"]:
        """The mean over prompts of H's largest eigenvalue; 1 before the first example."""
        largest = self.eigenvalues[..., -1].mean(0)
        return torch.where(largest > 0, largest, 1.0)

    def estimates(
        self, n_steps: int, step_size: Float[Tensor, " point"], factor: Float[Tensor, " point"]
    ) -> Float[Tensor, "prompt point"]:
        """Return x·w_k after `n_steps` steps of size η with γ = `factor`, one of each a point."""
        slope = step_size[:, None] * (1 - factor[:, None] * self.eigenvalues)
        left = (1 - slope * self.eigenvalues) ** n_steps
        filtered = torch.where(
            self.eigenvalues > 1e-12, (1 - left) / self.eigenvalues.clamp(min=1e-12), n_steps * slope
        )
        return (filtered * self.gradient * self.query).sum(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedDescent:
    """The best η and γ of an algorithm for every number of steps and examples."""

    step_sizes: Float[Tensor, "step point"]
    """The best η for 1, 2, … steps."""
    factors: Float[Tensor, "step point"]
    """The best γ for 1, 2, … steps."""

    def estimates(self, spectra: Spectra) -> Float[Tensor, "step prompt point"]:
        """Return x·w_k for k = 1, 2, …"""
        each = zip(self.step_sizes, self.factors, strict=True)
        return torch.stack([spectra.estimates(k, size, factor) for k, (size, factor) in enumerate(each, start=1)])


def fit_descent(algorithm: str, spectra: Spectra, n_steps: int) -> FittedDescent:
    """Return the η and γ with the least mean squared error on the prompts of `spectra`, for 1 to `n_steps` steps, among
    those that stay stable on others, as at the head of this module.

    Raises `ValueError` for an algorithm that is not in `ALGORITHMS`. Time: O(50 · 6 · steps · prompts · points · d).
    """
    require_choice("algorithm", algorithm, ALGORITHMS)
    unit, largest = spectra.unit, _BEYOND * spectra.eigenvalues[..., -1].amax(0)
    sizes, factors = [], []
    for k in range(1, n_steps + 1):
        best = torch.full_like(unit, torch.inf)
        size, factor = torch.zeros_like(unit), torch.zeros_like(unit)
        for relative_factor in _FACTORS[algorithm]:
            for relative_size in _STEP_SIZES:
                tried = (relative_size / unit, relative_factor / unit)
                loss = (spectra.estimates(k, *tried) - spectra.labels).pow(2).mean(0)
                loss = torch.where(_growth(*tried, largest) ** k <= _MOST_GROWTH, loss, torch.inf)
                better = loss < best
                best = torch.where(better, loss, best)
                size, factor = torch.where(better, tried[0], size), torch.where(better, tried[1], factor)
        sizes.append(size)
        factors.append(factor)
    return FittedDescent(step_sizes=torch.stack(sizes), factors=torch.stack(factors))


def _growth(
    step_size: Float[Tensor, " point"], factor: Float[Tensor, " point"], largest: Float[Tensor, " point"]
) -> Float[Tensor, " point"]:
    """The most that one step multiplies a part of w's error by, max |1 − ηλ(1 − γλ)| over 0 ≤ λ ≤ `largest`.

    ηλ(1 − γλ) is a parabola: 0 at λ = 0, and extreme at `largest` or at its vertex, λ = 1/(2γ).
    """
    at_largest = 1 - step_size * largest * (1 - factor * largest)
    vertex = torch.where(2 * factor * largest > 1, 1 - step_size / (4 * factor.clamp(min=1e-12)), 1.0)
    return torch.maximum(at_largest.abs(), vertex.abs()).clamp(min=1)


def paired_tokens(prompts: RegressionPrompts) -> Float[Tensor, "prompt pos d_model"]:
    """Return tokens (x_j, y_j) of all examples but the last, whose label is to be found: it stands last as (x, 0)."""
    labels = prompts.labels.clone()
    labels[:, -1] = 0.0
    return torch.cat([prompts.inputs, labels[..., None]], dim=-1)


def one_step_paired(d: int, n_points: int, step_size: float | int = 1.0) -> AttentionOnlyTransformer:
    """Return one layer on `paired_tokens`: the last coordinate of its output at the query is the estimate, γ = η/(i +
    1).

    One head with W_Q = W_K the projection on x, W_V that on y and W_O η times its transpose; what it writes comes on
    top of the query's own y = 0. `n_points` counts the query. Weights are float64.
    """
    model = AttentionOnlyTransformer(_plain(n_layers=1, d_model=d + 1, d_head=d + 1, n_ctx=n_points)).double()
    on_x = torch.diag(torch.cat([torch.ones(d), torch.zeros(1)]).double())
    on_y = torch.eye(d + 1, dtype=torch.float64) - on_x
    _set_head(model, 0, query=on_x, key=on_x, value=on_y, output=step_size * on_y)
    return model


def one_step_interleaved(d: int, n_points: int, step_size: float | int = 1.0) -> AttentionOnlyTransformer:
    """Return two layers on interleaved tokens that give the estimate at every x, γ = η/(2i + 1) after i examples.

    The stream holds, side by side, the token (d numbers), a copy (d), and the estimate (1). In the first layer the
    query y_j, at position p = 2j − 1 from 0, has the score p + 1 with the position before, by one-hot positions that
    are added to queries and keys, and p + 1 visible keys: it copies x_j with weight 1. In the second the query x has
    the score x·x_j with y_j's token, which has x_j as its copy, and takes y_j from it. Weights are float64.
    """
    n_ctx = 2 * n_points - 1
    token, copy, estimate = slice(0, d), slice(d, 2 * d), 2 * d
    positions = slice(2 * d + 1, 2 * d + 1 + n_ctx)
    width = 2 * d + 1 + n_ctx
    cfg = _plain(n_layers=2, d_model=width, d_head=width, n_ctx=n_ctx, positions="qk", d_in=d, d_out=1)
    model = AttentionOnlyTransformer(cfg).double()
    empty = torch.zeros(width, width, dtype=torch.float64)
    from_before, at_position, to_copy = empty.clone(), empty.clone(), empty.clone()
    at_position[positions, positions] = torch.eye(n_ctx, dtype=torch.float64)
    for position in range(1, n_ctx, 2):  # the labels
        from_before[positions.start + position, positions.start + position - 1] = position + 1.0
    to_copy[token, copy] = torch.eye(d, dtype=torch.float64)
    _set_head(model, 0, query=from_before, key=at_position, value=to_copy, output=torch.eye(width).double())
    of_token, of_copy, to_estimate = empty.clone(), empty.clone(), empty.clone()
    of_token[token, token] = of_copy[copy, token] = torch.eye(d, dtype=torch.float64)
    to_estimate[0, estimate] = step_size  # a label stands in the first coordinate of its token
    _set_head(model, 1, query=of_token, key=of_copy, value=to_estimate, output=torch.eye(width).double())
    with torch.no_grad():
        weights = dict(model.named_parameters())
        weights["pos_embed.W_pos"].copy_(torch.eye(width).double()[positions])
        weights["embed.W"].copy_(torch.eye(width).double()[token])
        weights["unembed.W_U"].copy_(torch.eye(width).double()[:, estimate : estimate + 1])
    return model


def one_step(prompts: RegressionPrompts, step_sizes: Float[Tensor, " point"]) -> Float[Tensor, "prompt point"]:
    """Estimate every label by one step of gradient descent from w = 0, with the step size γ_i after i examples."""
    sums = (prompts.labels[..., None] * prompts.inputs).cumsum(1)
    before = torch.nn.functional.pad(sums[:, :-1], (0, 0, 1, 0))
    return step_sizes * (before * prompts.inputs).sum(-1)


def _plain(**sizes: object) -> ModelConfig:
    """One head of linear attention a layer, unscaled, from vectors to vectors, without a norm."""
    fixed = {
        "n_heads": 1,
        "phi": "linear",
        "attn_scale": 1.0,
        "norm": None,
        "positions": None,
        "read_in": "vectors",
        "read_out": "vectors",
    }
    return ModelConfig.from_dict({**fixed, **sizes})


@torch.no_grad()
def _set_head(
    model: AttentionOnlyTransformer, layer: int, *, query: Tensor, key: Tensor, value: Tensor, output: Tensor
) -> None:
    weights = dict(model.named_parameters())
    for letter, matrix in zip("QKVO", (query, key, value, output), strict=True):
        weights[f"blocks.{layer}.attn.W_{letter}"][0] = matrix
