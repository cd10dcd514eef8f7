"""Direct logit attribution: what each head itself adds to a logit, whatever it read."""

from __future__ import annotations

import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.frozen import freeze
from aotlens.paths.groups import ByHead, by_head
from aotlens.paths.path import SourceName
from aotlens.paths.streams import head_results
from aotlens.paths.target import Target, whole_number


@torch.no_grad()
def direct_logit_attribution(
    model: AttentionOnlyTransformer, tokens: Tensor | str | list[str], target: Target | Tensor = None
) -> ByHead:
    """Return all paths of a prompt grouped by their last head: out_h[i] / s_final[i] · C w_final (W_U[:, t] − W_U[:,
    versus]).

    For one layer that is the order-≤1 view of *structures*, Proposition 22. `target` is the output whose logit is taken
    apart, not a label that a loss is of (those are `targets`, in `term_importance`): one output for all positions,
    (token, versus), ids `[pos]`, one for each position, or None for the model's own first choice at each. Equals
    TransformerLens's `logit_attrs` of each head on an exported bridge whose norms are folded and whose writing weights
    are centred, which leaves out the unembedding's bias as well (here it is part of `direct["bias"]`).

    One forward pass and one evaluation of the heads. Raises `ValueError` as `expand` does.
    """
    require_ours(model, "direct_logit_attribution", without=NOT_LINEAR)
    frozen = freeze(model, tokens)
    n_out_pos = frozen.read.shape[0]
    if target is None:
        target = frozen.logits.argmax(-1)
    if isinstance(target, Tensor) and target.ndim == 0:
        target = whole_number("target", target)
    if not isinstance(target, Tensor):
        return by_head(frozen, target)
    ids = target.to(frozen.R.device).reshape(-1)
    whole = not ids.is_floating_point() and not ids.is_complex() and ids.dtype != torch.bool
    if not whole or len(ids) != n_out_pos or not bool(((ids >= 0) & (ids < frozen.R.shape[1])).all()):
        raise ValueError(
            f"target: expected {n_out_pos} outputs 0 to {frozen.R.shape[1] - 1}, one for each position, got "
            f"{list(target.shape)} of {target.dtype}."
        )
    columns = frozen.R[:, ids].T  # [pos, d_model]
    direct: dict[SourceName, Tensor] = {
        name: (frozen.pooled(x) * columns).sum(-1) for name, x in frozen.entering.items()
    }
    if frozen.has_bias:
        bias = frozen.bias_before[-1].expand(frozen.n_pos, -1)
        direct["bias"] = (frozen.pooled(bias) * columns).sum(-1) + frozen.out_bias[ids]
    return ByHead(
        heads=(frozen.pooled(head_results(frozen)) * columns).sum(-1),
        direct=direct,
        logit=frozen.logits.gather(1, ids[:, None])[:, 0],
    )
