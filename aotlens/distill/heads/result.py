"""The result of a distillation: errors with intervals, baselines, learning curves, where heads attend, and the FFNs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head, head_name, require_whole
from aotlens.distill.heads.stream import CLASSES
from aotlens.distill.heads.training import Settings
from aotlens.heads import MotifScores, attention_to, pattern_consistency
from aotlens.heads.reader import HeadReader
from aotlens.results import Result, data_frame
from aotlens.statistics import ratio_variances

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class FFNWeights(Result):
    """ẑ = relu(x W_in + b_in) W_out + b_out for every head and seed; without hidden units ẑ = x W_out + b_out.

    x is the attention layer's input. ẑ stands where the head's z does, so that the head then writes ẑ W_O.
    """

    W_in: Float[Tensor, "head seed d_model width"]
    b_in: Float[Tensor, "head seed width"]
    W_out: Float[Tensor, "head seed inner d_head"]
    b_out: Float[Tensor, "head seed d_head"]

    def __call__(self, place: int, seed: int, x: Float[Tensor, "*tokens d_model"]) -> Float[Tensor, "*tokens d_head"]:
        """ẑ, in x's type and on its device."""
        W_in, b_in, W_out, b_out = (
            tensor[place, seed].to(x) for tensor in (self.W_in, self.b_in, self.W_out, self.b_out)
        )
        inner = x if not W_in.shape[1] else torch.relu(x @ W_in + b_in)
        return inner @ W_out + b_out


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation(Result):
    """The distillation of every head in `heads`: at every width in `hidden`, `n_seeds` FFNs. Errors are on held-out
    documents:

        error = Σ‖y − ŷ‖² / Σ‖y − ȳ‖²      ȳ: the mean over training tokens, which scores 1

    Width 0 is the linear map, in closed form: one, repeated over the axis of seeds. A head that always writes the same
    has error 0.
    """

    model_name: str
    heads: tuple[Head, ...]
    settings: Settings
    train_tokens: int
    """Tokens that every FFN was trained on (fewer for one that stopped)."""
    distinct_tokens: int
    """Different training tokens among them: what the closed forms are of."""
    held_out_tokens: int
    held_out_documents: tuple[str, ...]
    squared_error: Float64[np.ndarray, "head width seed class"]
    """Σ‖y − ŷ‖² over held-out tokens of each kind (`CLASSES`)."""
    baseline: Float64[np.ndarray, "head class"]
    """Σ‖y − ȳ‖² over the same tokens: the squared error of the training mean ȳ."""
    class_counts: Int64[np.ndarray, " class"]
    block_error: Float64[np.ndarray, "head width seed block"]
    """Σ‖y − ŷ‖² over each block of held-out text, for intervals."""
    block_baseline: Float64[np.ndarray, "head block"]
    blocks_are_documents: bool = False
    """Whether a block is a document, which it is where three or more were held out; else a stretch of windows, so that
    an interval speaks of these texts alone."""
    position_error: Float64[np.ndarray, " head"]
    """The error of the training mean at the token's position."""
    neighbour_error: Float64[np.ndarray, " head"] | None
    """The error of the mean over the `neighbour_k` nearest training inputs; None without neighbours."""
    neighbour_k: Int64[np.ndarray, " head"] | None
    wide_error: Float64[np.ndarray, " head"] | None
    """The error of one FFN of `settings.wide` hidden units."""
    curve_tokens: Int64[np.ndarray, " evaluation"]
    curve_seconds: Float64[np.ndarray, " evaluation"]
    curve: Float64[np.ndarray, "evaluation head trained seed"]
    """Error on validation text (from training documents) as training goes on; of the widths above 0. Where the best map
    of rank `width` did better than what was trained, it is the FFN, and one more entry at the last token says so."""
    stopped_at: Int64[np.ndarray, "head trained seed"]
    """Tokens after which an FFN had settled; 0 where it was trained to the end."""
    attending: Attending
    weights: Mapping[int, FFNWeights]
    """The FFNs of each width."""
    mean_z: Float[Tensor, "head d_head"]
    """The head's mean z over training tokens: which replaces it in mean ablation."""
    only_seed: Int64[np.ndarray, " head"] | None = None
    """The index of the seed, from 0, of which each head's FFNs are kept, where it is only one (`compress`)."""

    @property
    def headline(self) -> str:
        errors = self.mean_error(max(self.hidden))
        width = f"{max(self.hidden)} hidden units" if max(self.hidden) else "linear maps"
        least, most = f"{errors.min():.3f}", f"{errors.max():.3f}"
        return f"error {least} with {width}" if least == most else f"errors {least} to {most} with {width}"

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.settings.hidden

    @property
    def n_seeds(self) -> int:
        return self.settings.seeds

    @property
    def error(self) -> Float64[np.ndarray, "head width seed"]:
        return _ratio(self.squared_error.sum(3), self.baseline.sum(1)[:, None, None])

    @property
    def error_after_first(self) -> Float64[np.ndarray, "head width seed"]:
        """`error` without position 0. Every window begins with the same token where the model has one for beginnings:
        any FFN gets that one right, and its y can be most of what there is to explain."""
        return _ratio(self.squared_error[..., 1:].sum(3), self.baseline[:, 1:].sum(1)[:, None, None])

    @property
    def linear_error(self) -> Float64[np.ndarray, " head"] | None:
        """The linear map's error, of width 0; None if width 0 was not requested."""
        return self.error[:, self.hidden.index(0), 0] if 0 in self.hidden else None

    @property
    def floor(self) -> Float64[np.ndarray, " head"]:
        """The least error found by any means: an estimate from above of what any function of the input could reach."""
        least = [self.error.min((1, 2))]
        least += [errors for errors in (self.neighbour_error, self.wide_error) if errors is not None]
        return np.min(least, axis=0)

    def share_of_best(self, width: int | None = None) -> float:
        """Return what FFNs of this width explain, as a share of what the best predictors found do, over all heads.

        Σ (1 − error) ÷ Σ (1 − `floor`), sums over heads; NaN where nothing that was tried beats the mean.
        """
        best = float((1 - self.floor).sum())
        return float((1 - self.mean_error(width)).sum()) / best if best > 0 else float("nan")

    def place(self, head: HeadLike) -> int:
        """Return the index of a head in `heads`. Raises `ValueError` for one that was not distilled."""
        layer, number = as_head(head)
        if (layer, number) not in self.heads:
            raise ValueError(f"head {layer}.{number} was not distilled; {_listed(self.heads)} were.")
        return self.heads.index((layer, number))

    def width_index(self, width: int | None = None) -> int:
        """Find a width's index; None is the only width there is. Raises `ValueError` for one that was not distilled."""
        if width is None and len(self.hidden) == 1:
            return 0
        if width not in self.hidden:
            raise ValueError(f"width={width}: expected one of those distilled, {', '.join(map(str, self.hidden))}.")
        return self.hidden.index(width)

    def mean_error(self, width: int | None = None) -> Float64[np.ndarray, " head"]:
        """Return every head's error at this width, averaged over seeds."""
        return self.error[:, self.width_index(width)].mean(1)

    def interval(self, width: int | None = None, confidence: float = 0.95) -> Float64[np.ndarray, "head 2"]:
        """Return the interval of `mean_error`, over held-out text (`text_unit`) and seeds: the variance of the ratio
        over blocks (`aotlens.statistics.ratio_variances`) and that of the seeds' mean, added; Student's t with the
        degrees of freedom that Welch and Satterthwaite give the sum. NaN where the text is a single block."""
        import scipy.stats

        index, seeds = self.width_index(width), self.n_seeds
        variance, degrees = ratio_variances(self.block_error[:, index].mean(1), self.block_baseline)
        if seeds > 1:
            of_seeds = self.error[:, index].var(1, ddof=1) / seeds
            of_text, variance = variance, variance + of_seeds
            with np.errstate(invalid="ignore"):
                degrees = np.square(variance) / (np.square(of_text) / degrees + np.square(of_seeds) / (seeds - 1))
        reach = scipy.stats.t.ppf((1 + confidence) / 2, degrees) * np.sqrt(variance)
        reach = np.where(self.baseline.sum(1) > 0, reach, 0.0)  # a head that always writes the same
        mean = self.mean_error(width)
        return np.stack([np.maximum(mean - reach, 0.0), mean + reach], axis=1)

    @property
    def text_unit(self) -> str:
        """The units of the text that `interval` varies, in words."""
        return "held-out documents" if self.blocks_are_documents else "stretches of the held-out text"

    def over_heads(self, width: int | None = None, confidence: float = 0.95) -> tuple[float, float, float]:
        """Return (mean, low, high) of `mean_error` over heads: Student's t, heads taken as independent, low at least 0.

        Raises `ValueError` for a single head.
        """
        import scipy.stats

        errors = self.mean_error(width)
        if len(errors) < 2:
            raise ValueError("an interval over heads needs at least 2 heads, got 1.")
        reach = scipy.stats.t.ppf((1 + confidence) / 2, len(errors) - 1) * scipy.stats.sem(errors)
        return float(errors.mean()), max(float(errors.mean() - reach), 0.0), float(errors.mean() + reach)

    def order(self, width: int | None = None) -> tuple[Head, ...]:
        """Sort the heads, the most like an FFN first."""
        return tuple(self.heads[place] for place in np.argsort(self.mean_error(width), kind="stable"))

    def best_seed(self, head: HeadLike, width: int | None = None) -> int:
        """Return the seed whose FFN did best on validation text, from 0."""
        index = self.width_index(width)
        if self.hidden[index] == 0:
            return 0
        column = self.settings.trained.index(self.hidden[index])
        return int(self.curve[:, self.place(head), column].min(0).argmin())

    def predict_z(
        self,
        head: HeadLike,
        x: Float[Tensor, "*tokens d_model"],
        *,
        width: int | None = None,
        seed: int | None = None,
    ) -> Float[Tensor, "*tokens d_head"]:
        """Predict the head's z by its FFN, for inputs x of its attention layer; by the best seed's for None."""
        return self.ffns(width)(self.place(head), self.seed_index(head, width, seed), x)

    def ffns(self, width: int | None = None) -> FFNWeights:
        """Return the FFNs of a width. Raises `ValueError` where they were not kept (`compress`)."""
        width = self.hidden[self.width_index(width)]
        if width not in self.weights:
            stored_widths = ", ".join(map(str, self.weights)) or "no width"
            raise ValueError(
                f"width={width}: only the errors were kept, FFNs are of {stored_widths}; distil again to have them."
            )
        return self.weights[width]

    def seed_index(self, head: HeadLike, width: int | None = None, seed: int | None = None) -> int:
        """Return the index of a seed's FFN in `ffns(width)`; the best seed's for None."""
        index = self.best_seed(head, width) if seed is None else require_whole("seed", seed, 0, self.n_seeds - 1)
        if self.hidden[self.width_index(width)] == 0:
            return 0
        if self.only_seed is None:
            return index
        place = self.place(head)
        stored_seed = int(self.only_seed[place])
        if index != stored_seed:
            raise ValueError(
                f"seed={seed}: only the FFN of seed {stored_seed} was kept of head {_listed((self.heads[place],))}."
            )
        return 0

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head, width and seed: its error, the head's baselines, where it attends."""
        import pandas as pd

        about = self.attending.to_frame()
        about["position"] = self.position_error
        if self.neighbour_error is not None:
            about["neighbours"] = self.neighbour_error
        if self.wide_error is not None:
            about["wide"] = self.wide_error
        about["floor"] = self.floor
        rows = []
        for index, width in enumerate(self.hidden):
            low, high = self.interval(width).T
            for seed in range(1 if width == 0 else self.n_seeds):
                columns = {"hidden": width, "seed": self.settings.seed + seed, "error": self.error[:, index, seed]}
                columns["error_after_first"] = self.error_after_first[:, index, seed]
                rows.append(about.assign(**columns, low=low, high=high))
        frame = pd.concat(rows, ignore_index=True)
        first = ["layer", "head", "hidden", "seed", "error", "low", "high", "error_after_first"]
        return frame[first + [name for name in frame if name not in first]]

    def class_frame(self) -> pd.DataFrame:
        """Return one row per head, width and kind of token that occurs: error among them (mean over seeds), share of
        tokens, and share of the head's squared error."""
        rows = []
        for place, (layer, head) in enumerate(self.heads):
            for index, width in enumerate(self.hidden):
                sums = self.squared_error[place, index].mean(0)
                for k, name in enumerate(CLASSES):
                    if not self.class_counts[k]:
                        continue
                    rows.append(
                        {
                            "layer": layer,
                            "head": head,
                            "hidden": width,
                            "class": name,
                            "error": float(_ratio(sums[k], self.baseline[place, k])),
                            "tokens": self.class_counts[k] / self.class_counts.sum(),
                            "share_of_error": float(_ratio(sums[k], sums.sum())),
                        }
                    )
        return data_frame(rows)


def _ratio(above: np.ndarray | np.float64, below: np.ndarray | np.float64) -> np.ndarray:
    """above / below; 0 where there is nothing to explain."""
    constant = below <= 0
    return np.where(constant, 0.0, above / np.where(constant, 1.0, below))


def _listed(heads: tuple[Head, ...]) -> str:
    names = list(map(head_name, heads[:6]))
    return ", ".join(names) + (" ..." if len(heads) > 6 else "")


@dataclass(frozen=True, kw_only=True, eq=False)
class Attending(Result):
    """The motifs and the pattern consistency of the heads of a distillation, in the order of `heads`."""

    heads: tuple[Head, ...]
    scores: MotifScores
    """The scores of all heads of the model, for every motif that was known when they were measured."""
    pattern_consistency: Float64[np.ndarray, " head"]
    """1 where the pattern is the same on every text (`aotlens.heads.pattern_consistency`, key 0 with the others); NaN
    for uniform attention."""

    def to(self, motif: str) -> Float64[np.ndarray, " head"]:
        """Return mean attention to a motif's keys; NaN for a motif that was not measured."""
        if motif not in self.scores.motifs:
            return np.full(len(self.heads), np.nan)
        layers, heads = np.array(self.heads).T
        return self.scores[motif][layers, heads]

    def why_not(self, motif: str) -> str | None:
        """Return the reason why a motif is NaN here; None where it was measured."""
        if motif not in self.scores.motifs:
            return "the distillation was made before that motif was known"
        return self.scores.reasons.get(motif)

    @property
    def attends(self) -> tuple[str, ...]:
        """The motif that each head attends to most on this text, `mixed` where nothing stands out
        (`MotifScores.labels`).

        Heads are named by `aotlens.heads.head_labels`, which reads random repeats as well as text."""
        labels = self.scores.labels()
        return tuple(labels[layer][head] for layer, head in self.heads)

    def to_frame(self) -> pd.DataFrame:
        """Return layer, head, a column a motif, pattern_consistency, attends."""
        frame = data_frame(self.heads, columns=["layer", "head"]).merge(self.scores.to_frame(), how="left")
        return frame.assign(pattern_consistency=self.pattern_consistency, attends=self.attends)


def attending(
    reader: HeadReader, heads: tuple[Head, ...], windows: Int64[Tensor, "windows pos"], *, batch_size: int = 4
) -> Attending:
    """Measure where heads attend, in two passes of the model. Memory: two patterns `[pos, pos]` of every head in
    float64, and a

    Raises `ValueError` for fewer than two windows, and for a bridge whose attention computes no patterns.
    """
    layers, numbers = np.array(heads).T
    consistency = pattern_consistency(reader.model, windows, batch_size=batch_size).values[layers, numbers]
    scores = attention_to(reader.model, windows, others=True, batch_size=batch_size)
    return Attending(heads=heads, scores=scores, pattern_consistency=consistency)
