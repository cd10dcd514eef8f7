"""The runs of the clean and the corrupted prompts, and the metric of their last stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer
from aotlens.patching.metrics import Measure, PairMetric, name_of
from aotlens.paths.runs import Probes, Run

#: The share of the largest number measured up to which a difference is taken for rounding: some 10 units of float32.
ROUNDING = 1e-6


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


def require_difference(ends: Float64[np.ndarray, "pair 2"], metric: str | PairMetric) -> None:
    """Raise `ValueError` where clean and corrupted prompts measure the same up to rounding, so that nothing can be
    restored."""
    clean, corrupted = ends.mean(0)
    if abs(clean - corrupted) <= ROUNDING * np.abs(ends).max():
        raise ValueError(
            f"patch: {name_of(metric)} is {clean:.4g} for clean and corrupted prompts alike, so there is nothing to "
            "restore or to take away; give prompts between which it differs, or another metric."
        )


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
    prompts = [each[direction == "denoising"] for each in pairs.str_tokens]
    return tuple(words[0] if len({*words}) == 1 else "" for words in zip(*prompts, strict=True))
