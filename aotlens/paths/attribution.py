"""Direct logit attribution: what each head itself adds to a logit, whatever it read."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.conventions import require_shape
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.frozen import read_out_map, reading_map
from aotlens.paths.groups import ByHead
from aotlens.paths.path import SourceName, mlp_name
from aotlens.paths.target import Target, checked_outputs

#: Numbers of one array of a run's sequences, at most: what all layers' heads hold is a small multiple of it.
_MOST_NUMBERS = 2**22


@torch.no_grad()
def direct_logit_attribution(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    target: Target | Tensor | tuple[Tensor, Tensor] = None,
    *,
    attention_mask: Tensor | None = None,
) -> ByHead:
    """Return all paths of a prompt, or of each sequence of a batch, grouped by their last head: out_h[i] / s_final[i] ·
    C w_final (W_U[:, t] − W_U[:, versus]).

    For one layer that is the order-≤1 view of *structures*, Proposition 22. `target` is the output whose logit is taken
    apart, not a label that a loss is of (those are `targets`, in `term_importance`): one output for all positions,
    (token, versus), ids `[pos]`, one for each position, or None for the model's own first choice at each. Equals
    TransformerLens's `logit_attrs` of each head on an exported bridge whose norms are folded and whose writing weights
    are centred, which leaves out the unembedding's bias as well (here it is part of `direct["bias"]`).

    A batch, ids `[sequence, pos]` or texts, gives `[sequence, pos]` in place of `[pos]`, each row what the sequence
    alone gives; `attention_mask`, as in the model's `forward`, says which ids are no padding. Its targets may also be
    ids `[sequence, pos]` or `[sequence]`, one for each sequence, or two of these, (token, versus).

    A forward pass for as many sequences as fit. Raises `ValueError` as `expand` does, and for a mask of another
    shape than the batch's.
    """
    require_ours(model, "direct_logit_attribution", without=NOT_LINEAR)
    batch, mask = model.to_batch(tokens)
    if attention_mask is not None:
        mask = torch.atleast_2d(attention_mask).to(model.device).bool()
    elif len(batch) == 1:
        each = target[None] if isinstance(target, Tensor) and target.ndim == 1 else target
        return _of_batch(model, batch, None, each).of(0)
    return _of_batch(model, batch, mask, target)


def _of_batch(model: AttentionOnlyTransformer, x: Tensor, mask: Tensor | None, target: Any) -> ByHead:
    """The attribution of several sequences: a run for as many as fit into the memory that one array may take."""
    n_pos = model(x[:1], stop_at_layer=0).shape[1]
    if mask is not None:
        require_shape("attention_mask", mask, (len(x), n_pos))
    width = max(n_pos * model.cfg.n_layers * model.cfg.n_heads * model.cfg.d_head, n_pos * model.W_U.shape[1], 1)
    step = max(_MOST_NUMBERS // width, 1)
    parts = []
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        parts.append(_of_rows(model, x[rows], None if mask is None else mask[rows], _target_of(target, rows, len(x))))
    logit = torch.cat([part.logit for part in parts])
    real = torch.ones_like(logit, dtype=torch.bool) if mask is None or mask.shape != logit.shape else mask
    padding = torch.full_like(logit, torch.nan)
    return ByHead(
        heads=torch.where(real, torch.cat([part.heads for part in parts], 2), padding),
        direct={
            name: torch.where(real, torch.cat([part.direct[name] for part in parts]), padding)
            for name in parts[0].direct
        },
        logit=torch.where(real, logit, padding),
        real=real,
    )


def _target_of(target: Any, rows: slice, n: int) -> Any:
    """The targets of some of `n` sequences."""
    if isinstance(target, tuple | list) and any(isinstance(each, Tensor) and each.ndim for each in target):
        return tuple(_target_of(torch.as_tensor(each), rows, n) for each in target)
    if not isinstance(target, Tensor) or target.ndim == 0:
        return target
    if len(target) != n:
        raise ValueError(f"target: expected a row for each of {n} sequences, got {list(target.shape)}.")
    return target[rows]


def _of_rows(model: AttentionOnlyTransformer, x: Tensor, mask: Tensor | None, target: Any) -> ByHead:
    """The attribution of sequences from one run: z, which the hooks show, times W_O and the read-out's columns."""
    cfg = model.cfg
    dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    wanted = {hook_names.EMBED, hook_names.POS_EMBED, hook_names.FINAL_SCALE}
    for layer in range(cfg.n_layers):
        wanted |= {hook_names.attn(layer, hook_names.Z), hook_names.mlp_out(layer)}
    logits, cache = model.run_with_cache(
        x, attention_mask=mask, names_filter=lambda name: name in wanted, return_cache_object=False
    )
    cache = {name: value.to(dtype) for name, value in cache.items()}
    embedded, pooled = cache[hook_names.EMBED], logits.ndim == 2
    logits = logits.to(dtype)[:, None] if pooled else logits.to(dtype)  # [sequence, out_pos, out]
    if not bool((logits if mask is None or pooled else logits[mask]).isfinite().all()):
        raise ValueError("paths: expected finite logits, got NaN or infinite ones; the model's weights overflow here.")
    read = read_out_map(model, dtype)
    R, out_bias = read["R"], read["out_bias"]
    signed = _outputs(target, logits)
    columns = torch.stack([sign * R.T[ids] for sign, ids in signed]).sum(0)  # [sequence, out_pos, d_model]
    scale = cache.get(hook_names.FINAL_SCALE)
    columns = columns.expand_as(embedded) if scale is None else columns / scale

    def values(terms: Tensor) -> Float[Tensor, "sequence out_pos"]:
        """What the read-out makes of numbers at all positions, `[sequence, pos]`."""
        return model.unembed.pool(terms[..., None], mask) if pooled else terms

    sources: dict[SourceName, Tensor] = {"token" if cfg.read_in == "tokens" else "input": embedded}
    if cfg.positions == "learned":
        sources["position"] = cache[hook_names.POS_EMBED].expand_as(embedded)
    if not cfg.attn_only:
        sources |= {mlp_name(layer): cache[hook_names.mlp_out(layer)] for layer in range(cfg.n_layers)}
    direct = {name: values((source * columns).sum(-1)) for name, source in sources.items()}
    b_O = model.b_O.detach().to(dtype)
    v_bias = [
        reading_map(model, layer, block.attn.W_V, block.attn.b_V, dtype)[1] for layer, block in enumerate(model.blocks)
    ]
    if any(bool(bias.any()) for bias in (b_O, out_bias, *v_bias)):
        direct["bias"] = values((b_O.sum(0) * columns).sum(-1)) + sum(sign * out_bias[ids] for sign, ids in signed)
    heads = []
    for layer, W_O in enumerate(model.W_O.detach().to(dtype)):
        written = torch.einsum("bphk,hkd,bpd->hbp", cache[hook_names.attn(layer, hook_names.Z)], W_O, columns)
        heads.append(torch.stack([values(terms) for terms in written]))
    logit = sum(sign * logits.gather(-1, ids[..., None])[..., 0] for sign, ids in signed)
    return ByHead(heads=torch.stack(heads), direct=direct, logit=logit)


def _outputs(
    target: Any, logits: Float[Tensor, "sequence out_pos out"]
) -> list[tuple[int, Int[Tensor, "sequence out_pos"]]]:
    """The outputs at each position, by their signs: the target, and with −1 what it is compared with."""
    n, n_pos, n_out = logits.shape
    if target is None:
        return [(1, logits.argmax(-1))]
    several = isinstance(target, tuple | list) and any(isinstance(each, Tensor) and each.ndim for each in target)
    if not several and not (isinstance(target, Tensor) and target.ndim):
        ids = [torch.tensor(each, device=logits.device) for each in checked_outputs(target, n_out)]
    else:
        ids = [each.to(logits.device) for each in (target if several else (target,))]
    for each in ids:
        fits = each.shape in ((), (n,), (n, n_pos)) and not (
            each.is_floating_point() or each.is_complex() or each.dtype == torch.bool
        )
        if not fits or not bool(((each >= 0) & (each < n_out)).all()) or len(ids) > 2:
            raise ValueError(
                f"target: expected outputs 0 to {n_out - 1}: a single one, one for each of {n} sequences, or one for "
                f"each position, {[n, n_pos]}; or two of these (token, versus). Got {list(each.shape)} of {each.dtype}."
            )
    wide = [each.long().reshape(each.shape + (1,) * (each.ndim == 1)).expand(n, n_pos) for each in ids]
    return list(zip((1, -1), wide, strict=False))
