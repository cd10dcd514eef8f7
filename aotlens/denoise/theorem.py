"""Theorem 3.1 of *aot*: the rate at which attention denoises, what it assumes, and where it holds.

The theorem: with φ = h(softmax), h(x) = τ·1{x > τ}, every layer multiplies the SNR of every cluster by 1 + ητ, with
high probability for "sufficiently large N". Its explicit constants stand in Lemmas B.2 and B.3 and Eqs. 11 and 29;
`conditions` evaluates them. The induction over layers does not control the scores between clusters, which grow as (1
+ ητ)ˡ, so that the rate holds for some layers and then breaks; `denoising_rates` measures for how many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.conventions import Progress, require_between, require_whole
from aotlens.denoise.subspaces import sample_mixture
from aotlens.denoise.unrolling import EXACT, theorem_rate, unroll_mixture
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Condition(Result):
    """One explicit condition of the theorem's proof, `value relation bound`."""

    statement: str
    """The condition in the paper's symbols."""
    source: str
    """The place in the paper that states it."""
    value: float | int
    bound: float | int
    met: bool


@dataclass(frozen=True, kw_only=True)
class Conditions(Result):
    """The assumptions of the proof of Theorem 3.1 with explicit constants, and whether given sizes meet them."""

    rows: tuple[Condition, ...]

    @property
    def headline(self) -> str:
        return f"{sum(row.met for row in self.rows)} of {len(self.rows)} explicit conditions are met"

    @property
    def all_met(self) -> bool:
        """Whether every condition is met, so that the proof covers the first layer at these sizes."""
        return all(row.met for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per condition."""
        return data_frame([vars(row) for row in self.rows])


def conditions(
    n_clusters: int, rank: int, n_tokens: int, d_model: int, noise: float | int, threshold: float | int
) -> Conditions:
    """Return every condition of *aot*'s proof of Theorem 3.1 that has a constant, met or not.

    `rank` is p and `n_tokens` the tokens *of each cluster*, as in `sample_mixture`, so that the paper's N is
    `n_clusters · n_tokens`; `noise` is δ and `threshold` τ. Logarithms are natural. The sizes at which all hold
    cannot be drawn in practice (p = 698 is the least for N = 200); the rate can be exact far outside them
    (`denoising_rates`).

    Raises `ValueError` for sizes below 1, a negative or non-finite δ, and τ outside (0, 1).
    """
    if min(n_clusters, rank, n_tokens, d_model) < 1 or not (math.isfinite(noise) and noise >= 0):
        raise ValueError(
            f"expected sizes of at least 1 and δ ≥ 0, got n_clusters={n_clusters}, rank={rank}, n_tokens={n_tokens}, "
            f"d_model={d_model}, noise={noise}."
        )
    require_between("threshold", threshold, above=0, below=1)
    total = n_clusters * n_tokens
    log_total = math.log(total)

    def at_least(statement: str, source: str, value: float | int, bound: float | int) -> Condition:
        return Condition(statement=statement, source=source, value=value, bound=bound, met=value >= bound)

    def at_most(statement: str, source: str, value: float | int, bound: float | int) -> Condition:
        return Condition(statement=statement, source=source, value=value, bound=bound, met=value <= bound)

    return Conditions(
        rows=(
            at_least("d ≥ K·p (orthogonal subspaces)", "Eq. 7", d_model, n_clusters * rank),
            at_least("p ≥ 16(√ln N + 1)²", "Lemma B.2", rank, 16 * (math.sqrt(log_total) + 1) ** 2),
            at_least("N ≥ 8πK² ln³N", "Eq. 11", total, 8 * math.pi * n_clusters**2 * log_total**3),
            at_most("δ ≤ ⅛√(ln N / p)", "Eq. 11", noise, math.sqrt(log_total / rank) / 8),
            at_least("N ≥ 16K⁴", "proof of Lemma B.2 (iv)", total, 16 * n_clusters**4),
            at_least("p ≥ 64(√ln N + 1)²", "Lemma B.3", rank, 64 * (math.sqrt(log_total) + 1) ** 2),
            Condition(statement="τ > 1/2", source="Eq. 29", value=threshold, bound=0.5, met=threshold > 0.5),
            at_most("τ ≤ 1 / (1 + N exp(−9p/32))", "Eq. 29", threshold, 1 / (1 + total * math.exp(-9 * rank / 32))),
        )
    )


@dataclass(frozen=True, kw_only=True)
class DenoisingRates(Result):
    """The SNR of unrolled attention by noise, seed, layer and cluster, with the theorem's rate."""

    noises: tuple[float | int, ...]
    seeds: tuple[int, ...]
    step_size: float | int
    phi: str
    threshold: float | int | None
    n_clusters: int
    rank: int
    n_tokens: int
    """The number of tokens of each cluster."""
    d_model: int
    snr: Float[Tensor, "noise seed layer cluster"]
    """Entry `layer` 0 is the SNR of the tokens as drawn. NaN from the layer after which numbers are not finite."""

    @property
    def ratios(self) -> Float[Tensor, "noise seed layer cluster"]:
        """SNR after a layer ÷ before it, `[noise, seed, n_layers, cluster]`."""
        return self.snr[:, :, 1:] / self.snr[:, :, :-1]

    @property
    def gains(self) -> Float[Tensor, "noise seed layer"]:
        """SNR ÷ SNR of the tokens as drawn, the mean over clusters; entry 0 of `layer` is 1."""
        return (self.snr / self.snr[:, :, :1]).mean(-1)

    @property
    def rate(self) -> float:
        """1 + ητ; NaN for a φ without a threshold, for which the theorem predicts no rate."""
        return math.nan if self.threshold is None else theorem_rate(self.step_size, self.threshold)

    @property
    def exact_layers(self) -> Int[Tensor, "noise seed"]:
        """The number of layers, from the first on, in which every cluster's ratio is 1 + ητ, within a relative 1e-9."""
        exact = ((self.ratios / self.rate - 1).abs() < EXACT).all(-1)
        return exact.long().cumprod(-1).sum(-1)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each noise, seed and layer: the mean SNR over clusters, and the least and largest ratio."""
        ratios = self.ratios
        rows = []
        for i, noise in enumerate(self.noises):
            for j, seed in enumerate(self.seeds):
                for layer in range(self.snr.shape[2]):
                    after = ratios[i, j, layer - 1] if layer else torch.full((self.n_clusters,), math.nan)
                    rows.append(
                        {
                            "noise": noise,
                            "seed": seed,
                            "layer": layer,
                            "snr": float(self.snr[i, j, layer].mean()),
                            "least_ratio": float(after.min()),
                            "largest_ratio": float(after.max()),
                        }
                    )
        return data_frame(rows)


def denoising_rates(
    noises: Sequence[float | int],
    *,
    n_clusters: int = 4,
    rank: int = 64,
    n_tokens: int = 50,
    d_model: int = 256,
    step_size: float | int = 0.5,
    phi: str = "thresholded_softmax",
    threshold: float | int | None = 0.6,
    n_layers: int = 16,
    seeds: Sequence[int] = tuple(range(10)),
    progress: Progress | None = None,
) -> DenoisingRates:
    """Draw mixtures at several δ and seeds, unroll attention on them, and measure the SNR layer by layer, in float64.

    `n_tokens` is of each cluster. An unrolling whose numbers cease to be finite (scores grow with the tokens) is NaN
    from there on in `snr`; the other seeds go on. `progress(done, total)` counts unrollings.

    Time: O(noises · seeds · layers · clusters · N² · rank). Raises `ValueError` as `sample_mixture` and `unroll` do,
    and for an empty list of δ or seeds.
    """
    require_whole("n_layers", n_layers, 1)
    if not len(noises) or not len(seeds):
        raise ValueError(f"expected at least one δ and one seed, got noises={list(noises)} and seeds={list(seeds)}.")
    curves = torch.full((len(noises), len(seeds), n_layers + 1, n_clusters), math.nan, dtype=torch.float64)
    for i, noise in enumerate(noises):
        for j, seed in enumerate(seeds):
            mixture = sample_mixture(n_clusters, rank, n_tokens, d_model, noise, seed)
            measured = unroll_mixture(mixture, step_size, phi, threshold, n_layers).snr
            curves[i, j, : len(measured)] = measured
            if progress is not None:
                progress(i * len(seeds) + j + 1, len(noises) * len(seeds))
    return DenoisingRates(
        noises=tuple(noises),
        seeds=tuple(seeds),
        step_size=step_size,
        phi=phi,
        threshold=threshold,
        n_clusters=n_clusters,
        rank=rank,
        n_tokens=n_tokens,
        d_model=d_model,
        snr=curves,
    )
