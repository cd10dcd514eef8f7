"""Direct logit attribution: what each head itself adds to a logit, whatever it read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from aotlens.paths.frozen import freeze
from aotlens.paths.groups import by_head
from aotlens.paths.path import SourceName
from aotlens.paths.streams import head_results
from aotlens.paths.target import Target, direction, whole_number

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectLogitAttribution:
    """Each head's and each source's direct effect on a logit at every position; their sum is the logit."""

    heads: Float[Tensor, "layer head pos"]
    """Of all paths that end with the head, its own bias included."""
    direct: dict[SourceName, Float[Tensor, " pos"]]
    """Of the paths without heads; "bias" is Σ b_O and the read-out's own."""
    logit: Float[Tensor, " pos"]
    """The model's own logit, or difference."""

    def to_frame(self, position: int = -1) -> pd.DataFrame:
        """One row a term at `position`, the largest first: layer, head (missing for sources), term, logits."""
        import pandas as pd

        layers, heads = np.indices(self.heads.shape[:2])
        n = len(self.direct)
        frame = pd.DataFrame(
            {
                "layer": pd.array([None] * n + layers.ravel().tolist(), dtype="Int64"),
                "head": pd.array([None] * n + heads.ravel().tolist(), dtype="Int64"),
                "term": [*self.direct]
                + [f"{layer}.{head}" for layer, head in zip(layers.ravel(), heads.ravel(), strict=True)],
                "logits": [float(value[position]) for value in self.direct.values()]
                + self.heads[:, :, position].flatten().tolist(),
            }
        )
        return frame.sort_values("logits", key=abs, ascending=False, kind="stable", ignore_index=True)


@torch.no_grad()
def direct_logit_attribution(
    model: AttentionOnlyTransformer, tokens: Tensor | str, target: Target | Tensor = None
) -> DirectLogitAttribution:
    """All paths of a prompt grouped by their last head: out_h[i] / s_final[i] · C w_final (W_U[:, t] − W_U[:, versus]).

    For one layer that is the order-≤1 view of *structures*, Proposition 22. `target` is one output for all positions,
    (token, versus), ids `[pos]`, one for each position, or None for the model's own first choice at each. Equals
    TransformerLens's `logit_attrs` of each head on an exported bridge whose norms are folded and whose writing weights
    are centred, which leaves out the unembedding's bias as well (here it is part of `direct["bias"]`).

    One forward pass and one evaluation of the heads. Raises `ValueError` as `expand` does.
    """
    frozen = freeze(model, tokens)
    n_out_pos = frozen.read.shape[0]
    if target is None:
        target = frozen.logits.argmax(-1)
    if isinstance(target, Tensor) and target.ndim == 0:
        target = whole_number("target", target)
    if not isinstance(target, Tensor):
        grouped = by_head(frozen, target)
        return DirectLogitAttribution(
            heads=grouped.heads, direct=grouped.direct, logit=direction(frozen, target).of(frozen.logits)
        )
    ids = target.to(frozen.R.device).reshape(-1)
    whole = not ids.is_floating_point() and not ids.is_complex() and ids.dtype != torch.bool
    if not whole or len(ids) != n_out_pos or not bool(((ids >= 0) & (ids < frozen.R.shape[1])).all()):
        raise ValueError(
            f"target: expected {n_out_pos} outputs 0 to {frozen.R.shape[1] - 1}, one for each position, got "
            f"{list(target.shape)} of {target.dtype}."
        )
    columns = frozen.R[:, ids].T  # [pos, d_model]
    direct: dict[SourceName, Tensor] = {
        name: (frozen.pooled(x) * columns).sum(-1) for name, x in frozen.sources.items()
    }
    if frozen.has_bias:
        bias = frozen.bias_before[-1].expand(frozen.n_pos, -1)
        direct["bias"] = (frozen.pooled(bias) * columns).sum(-1) + frozen.out_bias[ids]
    return DirectLogitAttribution(
        heads=(frozen.pooled(head_results(frozen)) * columns).sum(-1),
        direct=direct,
        logit=frozen.logits.gather(1, ids[:, None])[:, 0],
    )
