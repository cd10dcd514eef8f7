"""Clean and corrupted prompts as the model runs them, and what all results of patching share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer
from aotlens.models.loss import are_alike, relative_rounding, rounding_of
from aotlens.patching.metrics import Measure, PairMetric, name_of
from aotlens.paths.runs import Probes, Run
from aotlens.results import Result
from aotlens.statistics import as_clusters, rank_correlation, ratio_intervals

if TYPE_CHECKING:
    import pandas as pd


class BothRuns:
    """Both runs of pairs of one length: activations of `source` are patched into `base`."""

    def __init__(
        self,
        model: AttentionOnlyTransformer,
        pairs: PromptPairs,
        metric: str | PairMetric,
        direction: str,
        names: Sequence[str],
        probes: Probes | None = None,
    ) -> None:
        """`probes` record gradients of the base. Raises `ValueError` for pairs that another tokenizer made."""
        pairs.require_tokenizer_of(model)
        self.model, self.pairs, denoising = model, pairs, direction == "denoising"
        clean, corrupted = (torch.stack([getattr(p, name) for p in pairs]) for name in ("clean", "corrupted"))
        self.clean = Run.of(model, clean.to(model.device), names, None if denoising else probes)
        self.corrupted = Run.of(model, corrupted.to(model.device), names, probes if denoising else None)
        self.base, self.source = (self.corrupted, self.clean) if denoising else (self.clean, self.corrupted)
        clean_logits = self.clean.read_out(self.clean.final) if metric == "kl" else None
        self.measure = Measure(metric=metric, pairs=pairs, clean=clean_logits)
        self._columns = self._directions()

    def _directions(self) -> tuple[Tensor, Tensor] | None:
        """The read-out's direction and constant for each pair where the metric is a difference of two logits, so that
        other logits are not needed; else None."""
        model = self.model
        linear = model.cfg.read_out != "vectors" and model.cfg.logit_cap is None
        columns = self.measure.columns(model.W_U) if linear else None
        if columns is None:
            return None
        bias = model.b_U
        answers, wrong = self.pairs.answers, self.pairs.wrong
        constant = columns.new_zeros(len(self.pairs)) if bias is None else bias[answers] - bias[wrong]
        return columns, constant

    def measured(self, run: Run) -> Float64[np.ndarray, " pair"]:
        """Return the metric of a run as it is."""
        return numbers(self.of(run.final[None]))[0]

    def ends(self) -> Float64[np.ndarray, "pair 2"]:
        """Return the metric of both runs, clean and corrupted."""
        return np.stack([self.measured(self.clean), self.measured(self.corrupted)], 1)

    def rounding(self) -> Float64[np.ndarray, " pair"]:
        """Return by how much the metric of either run is off by the rounding of logits."""
        dtype, read_out = self.model.dtype, self.base.read_out
        both = [read_out(run.final) for run in (self.clean, self.corrupted)]
        rounding = np.maximum(*(rounding_of(self.measure.of, logits, dtype) for logits in both))
        if self.measure.metric == "kl":  # a sum of terms that cancel, each of which is rounded as it was computed
            exact = dtype if torch.finfo(dtype).bits > 16 else torch.float32
            rounding += relative_rounding(exact) * numbers(both[0].abs().amax(-1))
        return rounding

    def of(self, final: Float[Tensor, "group pair pos d_model"]) -> Float[Tensor, "group pair"]:
        """Return the metric of rows by their last stream."""
        if self._columns is not None:
            columns, constant = self._columns
            return self.measure.checked(self.base.read_out(final, columns) + constant)
        return self.measure.of(self.base.read_out(final))


def numbers(values: Tensor) -> np.ndarray:
    """Return the values in float64, without gradients."""
    array: np.ndarray = values.detach().cpu().double().numpy()
    return array


def require_difference(
    ends: Float64[np.ndarray, "pair 2"],
    rounding: Float64[np.ndarray, " pair"],
    metric: str | PairMetric,
    dtype: torch.dtype,
) -> None:
    """Raise `ValueError` where clean and corrupted prompts measure the same up to the `rounding` of logits of `dtype`,
    the model's (`BothRuns.rounding`), so that nothing can be restored."""
    if are_alike(ends, rounding, dtype):
        precision = torch.finfo(dtype)
        wider = "" if precision.bits > 16 else f"; or use model.float(): {dtype} has {precision.eps:.1g} of a number"
        raise ValueError(
            f"patch: {name_of(metric)} is {ends[:, 0].mean():.4g} for clean and corrupted prompts alike, up to "
            f"{rounding.mean():.1g} by which the rounding of logits moves it, so there is nothing to restore or to "
            f"take away; give prompts between which it differs, or another metric{wider}."
        )


class OverPairs(Result):
    """The base of results that have a metric of each pair with something patched, of clean and of corrupted prompts."""

    direction: str
    metric: str
    each: Float64[np.ndarray, " pair *cell"]
    clean: Float64[np.ndarray, " pair"]
    corrupted: Float64[np.ndarray, " pair"]
    clusters: tuple[str, ...] | None

    @property
    def values(self) -> Float64[np.ndarray, "*cell"]:
        """The mean over pairs."""
        return self.each.mean(0)

    @property
    def restored(self) -> Float64[np.ndarray, "*cell"]:
        """(mean − mean corrupted) ÷ (mean clean − mean corrupted): 1 as clean, 0 as corrupted; a ratio of means."""
        return (self.values - self.corrupted.mean()) / (self.clean.mean() - self.corrupted.mean())

    def intervals(self, confidence: float = 0.95) -> Float64[np.ndarray, "*cell 2"]:
        """Return the intervals of `restored`: over clusters where pairs have some, else pairs
        (`aotlens.statistics.ratio_intervals`)."""
        rows = (self.each.reshape(len(self.each), -1) - self.corrupted[:, None]).T
        groups = as_clusters(self.clusters, len(self.each))
        intervals = ratio_intervals(rows, self.clean - self.corrupted, groups, confidence=confidence)
        return intervals.reshape(*self.values.shape, 2)

    def _largest(self) -> tuple[tuple[int, ...], str, str]:
        """The cell whose patch does most, the verb for it, and its share in words."""
        base, verb = (1.0, "takes most away") if self.direction == "noising" else (0.0, "restores most")
        place = np.unravel_index(int(np.abs(self.restored - base).argmax()), self.values.shape)
        return tuple(map(int, place)), verb, f"restored share {self.restored[place]:.2f} of {self.metric}"

    def _with_values(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table with mean, restored and, for several pairs, its interval, low and high."""
        frame = frame.assign(mean=self.values.ravel(), restored=self.restored.ravel())
        low, high = self.intervals().reshape(-1, 2).T
        return frame if np.isnan(low).all() else frame.assign(low=low, high=high)


class Estimates(Result):
    """The base of results that estimate the effect of patching, and patch the cells with the largest estimates."""

    unit: str
    estimate: Float64[np.ndarray, " *cell"]
    checked: Int64[np.ndarray, " *checked"]
    exact: Float64[np.ndarray, " checked"]

    @property
    def estimated(self) -> Float64[np.ndarray, " checked"]:
        """The estimates of what was patched, the largest first."""
        estimates: Float64[np.ndarray, " checked"] = self.estimate[tuple(np.atleast_2d(self.checked.T))]
        return estimates

    @property
    def rank_correlation(self) -> float:
        """Spearman's, of estimate and exact value over what was patched, which is the largest by estimate, so that it
        says nothing of the rest; NaN for fewer than two."""
        return rank_correlation(self.estimated, self.exact)

    def _quality(self, noun: str, names: Callable[[int], str]) -> str:
        miss = self.estimated - self.exact
        worst = int(np.abs(miss).argmax())
        return (
            f"of {len(self.exact)} patched {noun} the estimate ranks with {self.rank_correlation:.2f}; it is farthest "
            f"off at {names(worst)}, by {miss[worst]:+.3f} {self.unit}"
        )


Runs = TypeVar("Runs", bound=BothRuns)


def over_pairs(
    batches: Iterable[tuple[Runs, list[int]]],
    values: Callable[[Runs, list[int]], np.ndarray],
    pairs: PromptPairs,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the fields of an `OverPairs` but for the direction, from the `values` of every batch, in the order of the
    pairs. Raises `ValueError` if clean and corrupted prompts measure the same."""
    cells, ends, rounding, order = [], [], [], []
    for batch, rows in batches:
        cells.append(values(batch, rows))
        ends.append(batch.ends())
        rounding.append(batch.rounding())
        order += rows
        if progress is not None:
            progress(len(order), len(pairs))
    both, back, measure = np.concatenate(ends), np.argsort(order), batch.measure
    require_difference(both, np.concatenate(rounding), measure.metric, batch.model.dtype)
    names = {"metric": name_of(measure.metric), "unit": measure.unit, "clusters": pairs.clusters}
    return {"each": np.concatenate(cells)[back], "clean": both[back, 0], "corrupted": both[back, 1], **names}


def estimate_and_check(
    batches: Sequence[Runs],
    estimate: Callable[[Runs], np.ndarray],
    exact: Callable[[Runs, np.ndarray], np.ndarray],
    check: int,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return metric, unit, the estimate of every cell, the indices of the `check` largest `[checked, axis]`, and the
    change when these are patched, means over pairs: fields of an `Estimates`."""
    sizes, measure = np.array([len(batch.pairs) for batch in batches]), batches[0].measure

    def mean(numbers_of: Callable[[Runs], np.ndarray], n_before: int) -> np.ndarray:
        total = np.zeros(())
        for number, (size, batch) in enumerate(zip(sizes, batches, strict=True), start=1):
            total = total + size / sizes.sum() * numbers_of(batch)
            if progress is not None:
                progress(n_before + number, 2 * len(batches))
        return total

    estimates = mean(estimate, 0)
    largest = np.argsort(-np.abs(estimates).ravel(), kind="stable")[:check]
    cells = np.stack(np.unravel_index(largest, estimates.shape), 1)
    with torch.no_grad():
        changes = mean(lambda batch: (exact(batch, cells) - batch.measured(batch.base)).mean(1), len(batches))
    names = {"metric": name_of(measure.metric), "unit": measure.unit}
    return {"estimate": estimates, "checked": cells, "exact": changes, **names}


#: Which prompt runs: the corrupted one ("denoising"), or the clean one.
DIRECTIONS = ("denoising", "noising")


def require_slope(metric: str | PairMetric, direction: str, steps: int) -> None:
    """Raise `ValueError` where the estimate would be 0 whatever is patched: the KL divergence from the clean prompt is
    smallest at that prompt."""
    if metric == "kl" and direction == "noising" and steps == 1:
        raise ValueError(
            "metric='kl': its gradient is 0 at the clean prompt, where noising starts, so it estimates nothing; patch "
            "exactly, take another metric or denoising, or integrate the gradient (steps=5)."
        )


def shared_words(pairs: PromptPairs, direction: str) -> tuple[str, ...]:
    """Return the token at each position of the prompts that are run, all of one length, and "" where prompts have
    different ones; empty without a tokenizer."""
    if pairs.str_tokens is None:
        return ()
    prompts = [both[direction == "denoising"] for both in pairs.str_tokens]
    return tuple(words[0] if len({*words}) == 1 else "" for words in zip(*prompts, strict=True))


def without_padding(pairs: PromptPairs, attention_mask: Tensor) -> PromptPairs:
    """Return pairs without the positions at which `attention_mask [pair, pos]` is False (or 0), of both prompts.

    Raises `ValueError` for a mask of another shape than the prompts, and for a pair of which nothing is left.
    """
    real = attention_mask.cpu().bool()
    if real.ndim != 2 or len(real) != len(pairs):
        raise ValueError(f"attention_mask: expected a row for each of {len(pairs)} pairs, got {list(real.shape)}.")
    kept = []
    for number, (pair, row) in enumerate(zip(pairs, real, strict=True)):
        if not len(pair.clean) == len(pair.corrupted) == len(row) or not bool(row.any()):
            raise ValueError(
                f"attention_mask: expected a real position and prompts of {len(row)} positions, as the mask, got "
                f"{len(pair.clean)} and {len(pair.corrupted)} in pair {number}, {int(row.sum())} of them real."
            )
        place = (row.long().cumsum(0) - 1).tolist()
        positions = tuple((place[a], place[b]) for a, b in pair.positions if row[a] and row[b])
        kept.append(
            replace(pair, clean=pair.clean[row.to(pair.clean.device)],
                    corrupted=pair.corrupted[row.to(pair.corrupted.device)], positions=positions)
        )  # fmt: skip
    words = pairs.str_tokens
    if words is not None:
        words = tuple(
            tuple(tuple(word for word, is_real in zip(text, row, strict=True) if is_real) for text in both)  # type: ignore[misc]
            for both, row in zip(words, real.tolist(), strict=True)
        )
    return replace(pairs, pairs=tuple(kept), str_tokens=words)


def at_padded_positions(
    cells: Float64[np.ndarray, " pair *cell"], unpatched: Float64[np.ndarray, " pair"], real: Tensor
) -> Float64[np.ndarray, " pair *cells"]:
    """Return cells of real positions at the positions of padded prompts; one at padding leaves the run as it is."""
    wide = np.empty((*cells.shape[:-1], real.shape[1]))
    wide[:] = unpatched.reshape(-1, *[1] * (cells.ndim - 1))
    for row, mask in enumerate(real.cpu().bool().numpy()):
        wide[row][..., mask] = cells[row]
    return wide
