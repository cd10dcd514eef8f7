"""The lengths of the value vectors of some tokens beside those of others (*nonlinearity*, Figure 10).

A head that attends to a token moves pattern · v; where v is next to nothing, attending there is doing nothing, and the
pattern acts as a gate on the rest (Theorem 4.1 needs a fixed vector with W_V v = 0). For head h of layer l and a class
c of tokens, the mean of ‖v‖ = ‖x W_V + b_V‖ (d_head units) over the tokens of c.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from aotlens.heads.reader import HeadReader, Model
from aotlens.models import hook_names
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueNorms(Result):
    """Mean norms by layer, head and class of tokens."""

    names: tuple[str, ...]
    """The names of the classes."""
    counts: Int64[np.ndarray, " kind"]
    """Tokens of each class."""
    norms: Float64[np.ndarray, "layer head kind"]
    """Mean ‖v‖; NaN for a class without tokens."""

    @property
    def headline(self) -> str:
        return ", ".join(f"{name} {mean:.3g}" for name, mean in zip(self.names, self.norms.mean((0, 1)), strict=True))

    def by_layer(self) -> Float64[np.ndarray, "layer kind"]:
        """Return the mean over heads: what Figure 10 draws."""
        return self.norms.mean(1)

    def relative(self, name: str, to: str) -> Float64[np.ndarray, "layer head"]:
        """Return the norm of one class ÷ that of another. Raises `ValueError` for an unknown class."""
        for wanted in (name, to):
            if wanted not in self.names:
                raise ValueError(f"no class {wanted!r}; there are {', '.join(self.names)}.")
        return self.norms[..., self.names.index(name)] / self.norms[..., self.names.index(to)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: layer, head, and a column a class."""
        import pandas as pd

        layers, heads = np.indices(self.norms.shape[:2])
        columns = {name: self.norms[..., i].ravel() for i, name in enumerate(self.names)}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


def value_norms(
    model: Model,
    batches: Iterable[tuple[Int[Tensor, ...], Int[Tensor, ...]]],
    names: Sequence[str],
) -> ValueNorms:
    """Measure the mean norms of value vectors, over batches of (tokens, class of each token: its index in `names`, −1
    for none).

    Sequences of a batch have one length, without padding. Heads that share keys and values (grouped keys, of a bridge)
    have the norms of those that they share. Cost: a forward pass. Raises `ValueError` for no batches,
    classes of another shape or out of range, and a model that doesn't read tokens.
    """
    reader = HeadReader.of(model, "value norms")
    n_layers, n_heads = reader.n_layers, reader.n_heads
    totals = torch.zeros(n_layers, n_heads, len(names), dtype=torch.float64)
    counts = torch.zeros(len(names), dtype=torch.long)
    for tokens, kinds in batches:
        if kinds.shape != tokens.shape or kinds.min() < -1 or kinds.max() >= len(names):
            raise ValueError(
                f"expected a class from −1 to {len(names) - 1} for each of {list(tokens.shape)} tokens, got "
                f"{list(kinds.shape)} from {int(kinds.min())} to {int(kinds.max())}."
            )
        member = torch.stack([kinds == kind for kind in range(len(names))]).flatten(1).double().cpu()  # [kind, token]
        counts += member.sum(1).long()

        def add(layer: int, v: Tensor, member: Tensor = member) -> None:
            norms = v.detach().float().cpu().double().norm(dim=-1).flatten(0, 1)  # [token, head]
            shared = norms.repeat_interleave(n_heads // norms.shape[1], 1)  # grouped keys: each serves heads in turn
            totals[layer] += (member @ shared).T

        reader.listen(tokens, lambda layer: hook_names.attn(layer, hook_names.V), add)
    if not counts.any():
        raise ValueError("expected at least one token of a class, got none.")
    norms = torch.where(counts > 0, totals / counts.clamp(min=1), torch.nan)
    return ValueNorms(names=tuple(names), counts=counts.numpy(), norms=norms.numpy())
