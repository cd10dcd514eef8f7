"""The similarity of the same [MASK] between different contexts (*nonlinearity*, Figure 3).

The mask token at one position of two sequences of one length has the same embedding; after each layer the cosine of the
two residual streams there says how far the contexts have told them apart. A layer of standard attention can do so
(Proposition 5.1), and so can one with a fixed pattern (Propositions 5.2 and 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.heads.reader import HeadReader, Model
from aotlens.models import hook_names
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskSimilarity(Result):
    """Cosines of the residual stream at one position of pairs of sequences."""

    position: int
    cosine: Float64[np.ndarray, "depth pair"]
    """The cosine before the first layer, then after each."""

    @property
    def headline(self) -> str:
        return f"mean cosine {self.cosine[0].mean():.3f} before the layers, {self.cosine[-1].mean():.3f} after them"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a depth and pair: depth (0 is before the first layer), pair, cosine."""
        import pandas as pd

        depths, pairs = np.indices(self.cosine.shape)
        return pd.DataFrame({"depth": depths.ravel(), "pair": pairs.ravel(), "cosine": self.cosine.ravel()})


def mask_similarity(
    model: Model,
    one: Int[Tensor, "pair pos"],
    other: Int[Tensor, ...],
    position: int,
    *,
    batch_size: int = 32,
) -> MaskSimilarity:
    """Compute the cosine of the streams at `position` of each pair of sequences, which have the same token (the mask)
    there.

    Cost: a forward pass of every sequence. Raises `ValueError` for pairs of different shapes, none, a position outside
    them, and different tokens there, which differ before any layer.
    """
    reader = HeadReader.of(model, "mask similarity")
    if one.shape != other.shape or len(one) == 0:
        raise ValueError(f"expected pairs of sequences of one length, got {list(one.shape)} and {list(other.shape)}.")
    if not 0 <= position < one.shape[1]:
        raise ValueError(f"position={position}: expected 0 to {one.shape[1] - 1}.")
    if not torch.equal(one[:, position], other[:, position]):
        raise ValueError(f"expected the same token, the mask, at position {position} of both sequences of each pair.")
    parts: list[np.ndarray] = []
    for start in range(0, len(one), batch_size):
        ends = [start, start + batch_size]
        first, second = _streams(reader, one[slice(*ends)], position), _streams(reader, other[slice(*ends)], position)
        parts.append(torch.nn.functional.cosine_similarity(first, second, dim=-1).numpy())
    cosine = np.concatenate(parts, axis=1)
    assert cosine.shape == (reader.n_layers + 1, len(one))
    return MaskSimilarity(position=position, cosine=cosine)


def _streams(reader: HeadReader, tokens: Tensor, position: int) -> Float64[Tensor, "depth pair d_model"]:
    """The stream at `position` before the first layer and after each."""
    streams: dict[int, Tensor] = {}

    def keep(layer: int, stream: Tensor) -> None:
        streams[layer] = stream[:, position].detach().float().cpu().double()

    reader.listen(tokens, hook_names.resid_pre, keep)
    reader.listen(tokens, hook_names.resid_post, lambda layer, stream: keep(layer + 1, stream))
    return torch.stack([streams[depth] for depth in range(len(streams))])
