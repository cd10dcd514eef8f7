"""How well influences, and TracIn's, order what retraining does; and what the most helpful and harmful windows do.

TracIn (Pruthi et al. 2020) needs no second derivative: Σ over snapshots of η ∇M · ∇ℓ_i, the gradients at each snapshot.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress, require_choice, require_seed, require_whole
from aotlens.dynamics.influence_measures import Measure, as_measures
from aotlens.dynamics.influence_result import Influence
from aotlens.dynamics.recipe_run import RecipeRun, differentiable_twice, recipe_run
from aotlens.dynamics.retraining import moments_of, retrain_without
from aotlens.models import AttentionOnlyTransformer
from aotlens.results import Result
from aotlens.statistics import bootstrap_interval, rank_correlation

if TYPE_CHECKING:
    import pandas as pd


#: The number of retrainings below which bootstrap intervals say nothing.
LEAST_RETRAININGS = 8
#: PyTorch's forward mode is one thread's at a time; processes have one each.
_FORWARD_MODE = threading.Lock()


@dataclass(frozen=True, kw_only=True, eq=False)
class InfluenceCheck(Result):
    """The quality of influences: how well they order retrainings without random subsets of windows."""

    run: str
    weights_sha256: str | None
    """The influence's: the hash of the checkpoint's weights."""
    measures: tuple[str, ...]
    drop: float
    seed: int
    predicted: Float64[np.ndarray, "measure subset"]
    """−Σ dM/dw over the windows left out."""
    tracin: Float64[np.ndarray, "measure subset"]
    """−Σ of TracIn's influences over the windows left out."""
    found: Float64[np.ndarray, "measure subset"]
    """M retrained without them − M retrained with all."""

    def correlation(self, measure: str | None = None) -> float:
        """Return Spearman's rank correlation of predicted and found."""
        return self._correlation(self.predicted, measure)

    def interval(self, measure: str | None = None) -> tuple[float, float]:
        """Bootstrap its 95% interval over subsets, which are independent draws; of this run, not of others."""
        return self._interval(lambda drawn: self._correlation(self.predicted, measure, drawn))

    def tracin_correlation(self, measure: str | None = None) -> float:
        """Return the rank correlation of TracIn's."""
        return self._correlation(self.tracin, measure)

    def tracin_interval(self, measure: str | None = None) -> tuple[float, float]:
        return self._interval(lambda drawn: self._correlation(self.tracin, measure, drawn))

    def difference_interval(self, measure: str | None = None) -> tuple[float, float]:
        """Return the 95% interval of the difference of both correlations, by a paired bootstrap: the same subsets in
        each draw."""

        def difference(drawn: np.ndarray) -> float:
            return self._correlation(self.predicted, measure, drawn) - self._correlation(self.tracin, measure, drawn)

        return self._interval(difference)

    def _place(self, measure: str | None) -> int:
        return 0 if measure is None else self.measures.index(require_choice("measure", measure, self.measures))

    def _correlation(
        self, predicted: np.ndarray, measure: str | None, drawn: np.ndarray | slice = slice(None)
    ) -> float:
        place = self._place(measure)
        return rank_correlation(predicted[place, drawn], self.found[place, drawn])

    def _interval(self, statistic: Callable[[np.ndarray], float]) -> tuple[float, float]:
        return bootstrap_interval(statistic, self.found.shape[1])

    @property
    def headline(self) -> str:
        parts = (
            f"{name} {self.correlation(name):.2f} ({low:.2f} to {high:.2f}; TracIn {self.tracin_correlation(name):.2f})"
            for name in self.measures
            for low, high in [self.interval(name)]
        )
        return f"rank correlation with {self.found.shape[1]} retrainings without {self.drop:.0%}: {', '.join(parts)}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per subset of a measure: measure, subset, predicted, tracin, found."""
        import pandas as pd

        n = self.found.shape[1]
        return pd.DataFrame(
            {
                "measure": np.repeat(self.measures, n),
                "subset": np.tile(np.arange(n), len(self.measures)),
                "predicted": self.predicted.ravel(),
                "tracin": self.tracin.ravel(),
                "found": self.found.ravel(),
            }
        )


def check_influence(
    run: Any,
    influence: Influence,
    *,
    corpus: str | None = None,
    measures: Mapping[str, Measure] | Sequence[str] | None = None,
    n: int = 40,
    drop: float = 0.1,
    n_snapshots: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> InfluenceCheck:
    """Retrain without n random subsets of the windows, `drop` of all, and correlate with what influences predict.

    Windows of step 0 stay, and no step loses all of its own. TracIn takes `n_snapshots` snapshots evenly spaced in
    steps, and its products less their mean over each step's windows and divided by their number, since the loss of a
    step is a mean. `measures` are those of the influence; give functions of your own again. Retrainings have the
    influence's `eps_root`, and run through `joblib`: on several processes or a cluster inside
    `with joblib.parallel_config(backend="loky", n_jobs=…)`.
    Fewer than some 40 subsets decide little: with 12, where the truth is .85, 95% of rank correlations lie in .50 to
    .97. Fewer than 8 are refused: intervals say nothing there.

    Raises `ValueError` for an influence of another run, and where subsets cannot be drawn.
    """
    followed, functions = _of(run, influence, corpus, measures)
    n, n_snapshots = require_whole("n", n, LEAST_RETRAININGS), require_whole("n_snapshots", n_snapshots, 1)
    if not 0 < drop < 1:
        raise ValueError(f"drop={drop}: expected a share between 0 and 1.")
    rng, steps = np.random.default_rng(require_seed(seed)), influence.windows.steps
    subsets = [_draw(rng, drop, steps) for _ in range(n)]
    products = _tracin(followed, functions, influence, n_snapshots)
    end = np.array([influence.n_steps])
    runs = retrain_without(
        followed, functions, influence.n_steps, [None, *subsets], end, eps_root=influence.eps_root, progress=progress
    )
    return InfluenceCheck(
        run=influence.run,
        weights_sha256=influence.weights_sha256,
        measures=influence.measures,
        drop=drop,
        seed=seed,
        predicted=np.stack([-influence.per_window[:, subset].sum(1) for subset in subsets], axis=1),
        tracin=np.stack([-products[:, subset].sum(1) for subset in subsets], axis=1),
        found=np.stack([(retrained.values - runs[0].values)[:, -1] for retrained in runs[1:]], axis=1),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Removal(Result):
    """A measure over training without the windows that help it most, or harm it most, or random ones of their steps."""

    run: str
    measure: str
    top: float
    seed: int
    steps: Int64[np.ndarray, " moment"]
    whole: Float64[np.ndarray, " moment"]
    """The measure with all windows."""
    without_helpful: Float64[np.ndarray, " moment"]
    without_harmful: Float64[np.ndarray, " moment"]
    random_helpful: Float64[np.ndarray, "draw moment"]
    """The measure without random windows, of each step as many as of the helpful ones."""
    random_harmful: Float64[np.ndarray, "draw moment"]
    """The measure without random windows, of each step as many as of the harmful ones."""

    @property
    def effects(self) -> tuple[float, float]:
        """(without helpful, without harmful): the difference at the end from the mean of the random removals, in their
        standard deviations. Of few random removals a large one comes by chance: with 10, 2 has p = .09, with 6 .12."""
        pairs = ((self.without_helpful, self.random_helpful), (self.without_harmful, self.random_harmful))
        effects = []
        for own, random in pairs:
            spread = float(random[:, -1].std(ddof=1)) if len(random) > 1 else math.nan
            effects.append(float(own[-1] - random[:, -1].mean()) / spread if spread > 0 else math.nan)
        return effects[0], effects[1]

    @property
    def headline(self) -> str:
        helpful, harmful = self.effects
        return (
            f"{self.measure} {self.whole[-1]:.4g}; without the {self.top:.1%} most helpful windows "
            f"{self.without_helpful[-1]:.4g} ({helpful:+.1f} standard deviations of random removals), without the most "
            f"harmful {self.without_harmful[-1]:.4g} ({harmful:+.1f})"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per moment of a run: without, draw, step, value."""
        import pandas as pd

        runs = {("nothing", 0): self.whole, ("most helpful", 0): self.without_helpful}
        runs |= {("most harmful", 0): self.without_harmful}
        runs |= {("random, steps of the helpful", draw): each for draw, each in enumerate(self.random_helpful)}
        runs |= {("random, steps of the harmful", draw): each for draw, each in enumerate(self.random_harmful)}
        rows = [
            (without, draw, int(step), float(value))
            for (without, draw), values in runs.items()
            for step, value in zip(self.steps, values, strict=True)
        ]
        return pd.DataFrame(rows, columns=["without", "draw", "step", self.measure])


def remove_windows(
    run: Any,
    influence: Influence,
    measure: str | None = None,
    *,
    corpus: str | None = None,
    measures: Mapping[str, Measure] | Sequence[str] | None = None,
    top: float = 0.015,
    n_random: int = 10,
    n_moments: int = 21,
    seed: int = 0,
    progress: Progress | None = None,
) -> Removal:
    """Retrain without the share `top` of windows that help a measure (the influence's first) most, without those that
    harm it most, and `n_random` times without as many random windows of the same steps as either.

    Early windows have most influence, so that random windows of all steps would be no comparison. Of step 0, and of the
    last window of a step, none is left out. Retrainings run through `joblib`, as those of `check_influence` do.

    Raises `ValueError` for an influence of another run, and for a share that leaves out none.
    """
    followed, functions = _of(run, influence, corpus, measures)
    place, n_random = influence.place(measure), require_whole("n_random", n_random, 2)
    steps, count = influence.windows.steps, round(top * len(influence.windows))
    if not 0 < top < 1 or count < 1:
        raise ValueError(f"top={top}: expected a share of {len(steps):,} windows that is at least one of them.")
    name, rng = influence.measures[place], np.random.default_rng(require_seed(seed))
    ends = [
        _leaving_one(influence.helpful(len(steps), name), steps, count),
        _leaving_one(influence.harmful(len(steps), name), steps, count),
    ]
    random = [_matched(rng, end, steps) for end in ends for _ in range(n_random)]
    moments = moments_of(influence.n_steps, n_moments)
    runs = retrain_without(
        followed, {name: functions[name]}, influence.n_steps, [None, *ends, *random], moments,
        eps_root=influence.eps_root, progress=progress,
    )  # fmt: skip
    values = np.stack([retrained.values[0] for retrained in runs])
    return Removal(
        run=influence.run, measure=name, top=top, seed=seed, steps=moments, whole=values[0], without_helpful=values[1],
        without_harmful=values[2], random_helpful=values[3 : 3 + n_random], random_harmful=values[3 + n_random :],
    )  # fmt: skip


def _of(
    run: Any, influence: Influence, corpus: str | None, measures: Mapping[str, Measure] | Sequence[str] | None
) -> tuple[RecipeRun, dict[str, Measure]]:
    """The run and the measures of an influence."""
    followed = recipe_run(run, corpus)
    require_same_run(followed, influence)
    functions = as_measures(list(influence.measures) if measures is None else measures, followed)
    if tuple(functions) != influence.measures:
        raise ValueError(
            f"measures: expected the influence's, {', '.join(influence.measures)}; got {', '.join(functions)}."
        )
    return followed, functions


def require_same_run(run: RecipeRun, influence: Influence) -> None:
    """Raise `ValueError` for an influence of another run: other windows, or trained otherwise."""
    if run.hash(influence.n_steps) != influence.identity:
        raise ValueError(f"influence: of another run ({influence.run}), with other windows or trained otherwise than "
                         f"{run.recipe.name} is; find it again.")  # fmt: skip


def _draw(rng: np.random.Generator, drop: float, steps: Int64[np.ndarray, " window"]) -> Int64[np.ndarray, " dropped"]:
    """Draw a share of the windows after step 0, of no step all."""
    later = np.flatnonzero(steps > 0)
    count = round(drop * len(later))
    for _ in range(100):
        drawn = np.sort(rng.permutation(later)[:count])
        left = np.bincount(np.delete(steps, drawn), minlength=steps[-1] + 1)
        if count and (left > 0).all():
            return drawn
    raise ValueError(
        f"expected subsets of at least a window that leave each step one: {count} of {len(later):,} windows "
        f"after step 0, {len(steps) / (steps[-1] + 1):.0f} a step; choose another share."
    )


def _leaving_one(
    ordered: Int64[np.ndarray, " ordered"], steps: Int64[np.ndarray, " window"], count: int
) -> Int64[np.ndarray, " dropped"]:
    """The first so many windows of an order, but for the last one of each step."""
    left = np.bincount(steps)
    windows: list[int] = []
    for window in ordered:
        if len(windows) == count:
            break
        if left[steps[window]] > 1:
            left[steps[window]] -= 1
            windows.append(int(window))
    if len(windows) < count:
        raise ValueError(f"top: expected a share of at most {len(windows):,} windows, got one of {count:,}: no more of "
                         "them help (or harm) the measure and leave their step another.")  # fmt: skip
    return np.array(windows, dtype=np.int64)


def _matched(
    rng: np.random.Generator, windows: Int64[np.ndarray, " dropped"], steps: Int64[np.ndarray, " window"]
) -> Int64[np.ndarray, " dropped"]:
    """Draw random windows, of each step as many as of these."""
    counts = np.bincount(steps[windows], minlength=steps[-1] + 1)
    first = np.searchsorted(steps, np.arange(steps[-1] + 2))
    drawn = [
        first[step] + rng.permutation(first[step + 1] - first[step])[: counts[step]] for step in np.flatnonzero(counts)
    ]
    return np.concatenate(drawn).astype(np.int64)


def _tracin(
    run: RecipeRun, measures: Mapping[str, Measure], influence: Influence, n_snapshots: int
) -> Float64[np.ndarray, "measure window"]:
    """−Σ η ∇M · (∇ℓ_i − their mean over the step's windows) ÷ their number, over snapshots, of every window."""
    n_steps = influence.n_steps
    moments = np.linspace(0, n_steps, n_snapshots + 1).round().astype(int)[1:].tolist()
    jobs = []

    def at(step: int, model: AttentionOnlyTransformer) -> None:
        if step in moments:
            weights = {name: each.detach().clone() for name, each in model.named_parameters()}
            jobs.append(joblib.delayed(_products)(run, measures, n_steps, min(step, n_steps - 1), weights))

    run.train(steps=n_steps, eps_root=influence.eps_root, at=at)
    with _forward_mode():  # around all threads: the first to leave it would end it for the others
        total: np.ndarray = sum(joblib.Parallel(prefer="threads")(jobs))
    return total


@contextmanager
def _forward_mode() -> Iterator[None]:
    """Give losses a derivative by forward mode, whose parts PyTorch scripts by a function that it warns of."""
    with differentiable_twice(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        yield


def _products(
    run: RecipeRun, measures: Mapping[str, Measure], n_steps: int, step: int, weights: dict[str, Tensor]
) -> Float64[np.ndarray, "measure window"]:
    """One snapshot's part."""
    model = run.model()
    model.load_state_dict(weights, strict=False)
    parameters = list(model.parameters())
    directions = []
    for measure in measures.values():
        gradients = torch.autograd.grad(measure(model), parameters, allow_unused=True)
        directions.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)])
    parts = []
    with _forward_mode():
        for other in range(n_steps):
            products = _along(run, model, run.rows(other), directions)
            parts.append((products - products.mean(1, keepdims=True)) / products.shape[1])
    return -run.rate(step) * np.concatenate(parts, axis=1)


def _along(
    run: RecipeRun,
    model: AttentionOnlyTransformer,
    rows: Int64[Tensor, "batch pos"],
    directions: Sequence[list[Tensor]],
) -> Float64[np.ndarray, "measure batch"]:
    """∇ℓ_i · direction for every row, by forward mode."""
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    products = []
    for direction in directions:
        with _FORWARD_MODE:
            derivative: Any = torch.func.jvp(
                lambda weights: run.losses(model, rows, weights).mean(1),
                (weights,),
                (dict(zip(weights, direction, strict=True)),),
            )
        products.append(derivative[1].double().numpy())
    return np.stack(products)
