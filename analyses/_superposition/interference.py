"""N features as directions in d dimensions, random or trained, and how much they disturb each other.

Feature k is a row v_k of `[n_features, d]`. Writing x in those directions and reading it back gives x V Vᵀ: the
interference of feature k with feature j is ⟨v_j, v_k⟩, the off-diagonal of the Gram matrix. N unit vectors in d < N
dimensions cannot all be orthogonal: some |⟨v_j, v_k⟩| is at least √((N − d) / (d (N − 1))) (Welch 1974).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.models.weights import double
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class Interference(Result):
    """The interference of n features in d dimensions."""

    gram: Float[Tensor, "feature feature"]
    """⟨v_j, v_k⟩."""
    lengths: Float[Tensor, " feature"]
    """‖v_k‖: near 0 for a feature that is not represented."""
    largest: float
    """max |cos| over pairs of features that are represented; 0 for fewer than two."""
    rms: float
    """Root mean square of those cosines."""
    welch_bound: float
    """The Welch bound: no n unit vectors have a smaller largest |cos|; 0 for n ≤ d."""

    @property
    def headline(self) -> str:
        return f"the largest |cosine| is {self.largest:.3f} (Welch: at least {self.welch_bound:.3f})"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a feature: length, the feature that disturbs it most (signed cosine); a single one
        has none."""
        import pandas as pd

        cosines = _cosines(self.gram)
        alone = len(cosines) == 1
        worst = cosines.abs().fill_diagonal_(-1).argmax(1)
        return pd.DataFrame(
            {
                "feature": range(len(self.gram)),
                "length": self.lengths.tolist(),
                "nearest": pd.array([None] if alone else worst.tolist(), dtype="Int64"),
                "cosine": cosines.gather(1, worst[:, None])[:, 0].tolist(),
            }
        )


def interference(features: Float[Tensor, "feature d"], min_length: float = 1e-6) -> Interference:
    """Return the interference of the rows of `features`. O(features² · d).

    Raises `ValueError` for no features, entries that are not finite, and products that are not.
    """
    wide = double(features)
    gram = wide @ wide.T
    if len(wide) == 0 or not bool(gram.isfinite().all()):
        raise ValueError(
            f"interference: expected at least one feature, and finite ones whose products are finite, got "
            f"{list(features.shape)} with entries up to {float(wide.abs().max()) if wide.numel() else 0:.3g}."
        )
    lengths = wide.norm(dim=1)
    long_gram = gram[lengths > min_length][:, lengths > min_length]
    n, d = len(long_gram), features.shape[1]
    pairs = _cosines(long_gram).flatten()
    return Interference(
        gram=gram,
        lengths=lengths,
        largest=float(pairs.abs().max()) if n > 1 else 0.0,
        rms=float((pairs.pow(2).sum() / (n * (n - 1))).sqrt()) if n > 1 else 0.0,
        welch_bound=math.sqrt((n - d) / (d * (n - 1))) if n > d else 0.0,
    )


def polygon(n: int) -> Float[Tensor, "n 2"]:
    """Return v_k = (cos 2πk/n, sin 2πk/n), k = 1 … n (*structures*, Example 26 for n = 5); float64."""
    angles = 2 * math.pi * torch.arange(1, n + 1, dtype=torch.float64) / n
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def random_features(n: int, d: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Draw n random unit vectors in d dimensions, float64: their cosines have mean 0 and variance 1/d."""
    drawn = torch.randn(n, d, generator=torch.Generator().manual_seed(require_seed(seed)), dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True)


def feature_network(
    x: Float[Tensor, "*batch n"], features: Float[Tensor, "n d"], bias: Float[Tensor, " n"]
) -> Float[Tensor, "*batch n"]:
    """Give x̂ = ReLU(x V Vᵀ + b): write, read back, suppress small interference (Elhage et al. 2022, "Toy models")."""
    return (x @ features @ features.T + bias).relu()


def train_features(
    n: int,
    d: int,
    *,
    probability: float | int = 0.05,
    steps: int = 2000,
    seed: int = 0,
    learning_rate: float | int = 0.02,
) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Train V and b of `feature_network` to give back sparse inputs; returns both, detached, float32.

    Each of the `n` features is on with `probability`, uniform in (0, 1) where it is, and weighs the same; the loss is
    the mean squared error (Elhage et al. 2022). Some seconds on one core for n = 50. Raises `ValueError` for n, d or
    steps below 1 and a probability outside (0, 1].
    """
    if min(n, d, steps) < 1 or not 0 < probability <= 1:
        raise ValueError(
            f"train_features: expected n, d, steps ≥ 1 and 0 < probability ≤ 1, got n={n}, d={d}, steps={steps}, "
            f"probability={probability}."
        )
    generator = torch.Generator().manual_seed(require_seed(seed))
    features = (torch.randn(n, d, generator=generator) * d**-0.5).requires_grad_()
    bias = torch.zeros(n, requires_grad=True)
    optimiser = torch.optim.Adam([features, bias], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = torch.rand(256, n, generator=generator) * (torch.rand(256, n, generator=generator) < probability)
        loss = (feature_network(x, features, bias) - x).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return features.detach(), bias.detach()


def _cosines(gram: Tensor) -> Tensor:
    """Return the cosines of a Gram matrix; 0 on the diagonal and where a vector is 0."""
    lengths = gram.diagonal().sqrt()
    products = lengths[:, None] * lengths
    cosines = torch.where(products > 0, gram / products.clamp(min=torch.finfo(gram.dtype).tiny), 0.0)
    return cosines - torch.diag(cosines.diagonal())
