"""Sums over groups of paths: by last head, through a head, by source, by the last two heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.conventions import Head
from aotlens.paths.frozen import (
    Frozen,
    carried,
    head_results,
    head_values,
    root_gradient,
    source_streams,
    total_gradients,
)
from aotlens.paths.path import SourceName
from aotlens.paths.target import Target, direction, output
from aotlens.results import Result, top_head

if TYPE_CHECKING:
    import pandas as pd

_MAX_BYTES = 2 * 10**9


@dataclass(frozen=True, kw_only=True, eq=False)
class ByHead(Result):
    """A partition of all paths by their last head: `heads.sum((0, 1)) + Σ direct` is the logits.

    A head's entry is its whole direct effect, with everything that it read; `direct` are the paths without heads, by
    source, where "bias" is Σ b_O and the read-out's own and "mlp_0" what the MLP of layer 0 itself adds. Of a batch,
    `[sequence, pos]` replaces `[pos]` everywhere, and what stands at padding is NaN.
    """

    heads: Float[Tensor, "layer head pos *out"]
    direct: dict[SourceName, Float[Tensor, " pos *out"]]
    logit: Float[Tensor, " pos *out"]
    """The model's own logit, difference, or all logits."""
    real: Bool[Tensor, " pos *out"] | None = None
    """The positions of a batch `[sequence, pos]` that are no padding; None for one prompt."""

    def of(self, sequence: int) -> ByHead:
        """Return one sequence of a batch by itself, without its padding. Raises `ValueError` for one prompt."""
        if self.real is None:
            raise ValueError("ByHead.of: expected the values of a batch; these are of one prompt.")
        real = self.real[sequence]
        direct = {name: values[sequence, real] for name, values in self.direct.items()}
        return ByHead(heads=self.heads[:, :, sequence, real], direct=direct, logit=self.logit[sequence, real])

    @property
    def headline(self) -> str:
        if self.real is not None:
            last = torch.stack([self.of(row).heads[:, :, -1] for row in range(len(self.real))])
            most = top_head(last.mean(0).cpu().numpy())
            return f"{most} adds most at the last positions, mean over {len(last)} sequences"
        if self.heads.ndim != 3:
            return ""
        most = top_head(self.heads[:, :, -1].cpu().numpy())
        return f"{most} adds most at the last position, where the logit is {float(self.logit[-1]):.3f}"

    def total(self) -> Float[Tensor, " pos *out"]:
        """Return the sum over all paths: the logit itself."""
        return self.heads.sum((0, 1)) + torch.stack([*self.direct.values()]).sum(0)

    def _table(self) -> pd.DataFrame | None:
        return self.to_frame() if self.real is not None or self.heads.ndim == 3 else None  # the values of one target

    def to_frame(self, position: int = -1) -> pd.DataFrame:
        """Return one row a term at `position`, the largest first: layer, head (missing for sources), term, logits; of a
        batch one row a sequence and term, where positions are counted without padding.

        Raises `ValueError` for the values of all outputs.
        """
        import pandas as pd

        if self.real is not None:
            frames = [self.of(row).to_frame(position) for row in range(len(self.real))]
            return pd.concat(frames, keys=range(len(frames)), names=["sequence"]).reset_index(0).reset_index(drop=True)
        if self.heads.ndim != 3:
            raise ValueError("ByHead.to_frame: expected the values of one target; ask by_head(target) for them.")
        rows: list[tuple[int | None, int | None, str, float]] = [
            (None, None, name, float(values[position])) for name, values in self.direct.items()
        ]
        for (layer, head), value in np.ndenumerate(self.heads[:, :, position].cpu().numpy()):
            rows.append((layer, head, f"{layer}.{head}", float(value)))
        frame = pd.DataFrame(rows, columns=["layer", "head", "term", "logits"])
        frame = frame.astype({"layer": "Int64", "head": "Int64"})
        return frame.sort_values("logits", key=abs, ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class BySource(Result):
    """A partition of all paths by where they start: `values.sum(0)` is the logits."""

    names: tuple[SourceName, ...]
    values: Float[Tensor, "source pos *out"]


def by_head(frozen: Frozen, target: Target) -> ByHead:
    """See `PathExpansion.by_head`. Memory: the values of all heads, or for all outputs what heads write, and its
    logits."""
    if target is None:
        check_size("by_head", frozen, frozen.n_layers * frozen.n_heads * frozen.logits.numel())
    direct = {
        name: output(frozen, x[None], target, 0 if name == "bias" else None)[0] for name, x in frozen.direct.items()
    }
    if target is None:
        results = head_results(frozen)
        heads = output(frozen, results.flatten(0, 1), target, None).unflatten(0, results.shape[:2])
    else:
        # W_O r first: a number a position and head, where what heads write would be d_model of them.
        writes = frozen.W_O @ direction(frozen, target).column
        heads = frozen.pooled(frozen.patterns @ head_values(frozen) @ writes[..., None])[..., 0]
    logit = frozen.logits if target is None else direction(frozen, target).of(frozen.logits)
    return ByHead(heads=heads, direct=direct, logit=logit)


def through(frozen: Frozen, head: Head, target: Target) -> Tensor:
    """Return the head's output on the prompt, carried to the end."""
    written = frozen.patterns[head] @ head_values(frozen)[head] @ frozen.W_O[head]
    return output(frozen, carried(frozen, written, head[0] + 1)[None], target, None)[0]


def through_each(frozen: Frozen, position: int, target: int | tuple[int, int]) -> Tensor:
    """Return ⟨what a head writes, ∂ logit / ∂ the stream after its layer⟩."""
    streams, _ = total_gradients(frozen, root_gradient(frozen, position, direction(frozen, target).column))
    return torch.einsum("lhpd,lpd->lh", head_results(frozen), streams[1:])


def by_source(frozen: Frozen, target: Target) -> BySource:
    """Return one stream a source, through all layers."""
    streams = source_streams(frozen)
    values = output(frozen, torch.stack([*streams.values()]), target, len(streams) - 1 if frozen.has_bias else None)
    return BySource(names=tuple(streams), values=values)


def by_source_position(
    frozen: Frozen, root: Float[Tensor, "pos d_model"], own_bias: Float[Tensor, " pos"]
) -> Float[Tensor, "source pos"]:
    """Return each source times its gradient at its position, of a number with gradient `root` in the final stream;
    `own_bias` is that of the read-out."""
    streams, heads = total_gradients(frozen, root)
    rows = [(streams[0] * x).sum(-1) for x in frozen.sources.values()]
    if frozen.mlps is not None:
        rows += [*(streams[1:] * frozen.mlps).sum(-1)]
    if frozen.has_bias:
        layers = torch.einsum("lpd,ld->p", streams[1:], frozen.b_O)
        rows.append(layers + torch.einsum("lhpk,lhk->p", heads, frozen.v_bias) + own_bias)
    return torch.stack(rows)


def by_virtual_head(frozen: Frozen, target: Target) -> Tensor:
    """Return P_later ((out_earlier / s) · V W_O r), with one column r for one target.

    O((L·H)² · pos · (d_model + pos)) time for one target; for all outputs d_model · d_head and an unembedding more.
    """
    results = head_results(frozen)
    n_layers, n_heads = results.shape[:2]
    n_out = frozen.R.shape[1] if target is None else 1
    check_size("by_virtual_head", frozen, (n_layers * n_heads) ** 2 * frozen.read.shape[0] * n_out)
    column = frozen.R if target is None else direction(frozen, target).column[:, None]
    values = results.new_zeros(n_layers, n_heads, n_layers, n_heads, frozen.read.shape[0], n_out)
    for later in range(1, n_layers):
        for head in range(n_heads):
            writes = frozen.W_V[later, head] @ (frozen.W_O[later, head] @ column)  # [d_model, out]
            read = (results[:later] @ writes) * frozen.inverse_scale[later][:, None]
            values[:later, :, later, head] = frozen.read @ (frozen.patterns[later, head] @ read)
    return values if target is None else values[..., 0]


def check_size(name: str, frozen: Frozen, n_numbers: int) -> None:
    """Raise `ValueError` for more than 2 GB of logits."""
    n_bytes = n_numbers * frozen.R.element_size()
    if n_bytes > _MAX_BYTES:
        raise ValueError(f"{name}: {n_numbers:,} logits are {n_bytes:,} bytes, above {_MAX_BYTES:,}; give one target.")
