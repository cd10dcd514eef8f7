"""The input of a head: rows of the residual stream, as its queries, keys or values see them.

A head of layer l reads norm(stream) = centre(stream) / scale · w + b (nothing of this without a norm; an RMS norm has
no centring and no b) through W_Q, W_K or W_V. Centring and gain are linear and belong to every row that something
writes to the stream. The scale depends on the input; a side divides by

    tokens      the token's own centred RMS √(mean(centre(W_E[t])²) + ε), which is the stream's own where a token is
                alone in it: layer 0 of a model whose positions are not added to the stream
    prompt      the scale frozen on the prompt
    positions   the prompt's scale if there is one, position by position (so no more rows than the prompt has);
                otherwise 1, and then they cannot be compared with tokens: a row of W_pos may be many times smaller or
                larger than what is left of it behind the norm
    the others  1

Queries and keys that have a norm of their own are divided in the same way: by the token's own scale, by the prompt's,
and others by 1. What a layer with a norm on its output writes is multiplied by that norm's gain, and divided by 1.

b and the matrices' own biases are a side of their own, `bias`, so that no other side counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.circuits.circuit import Side, SideName
from aotlens.conventions import HEAD_NAME, Head, HeadLike, as_head
from aotlens.models import (
    ActivationCache,
    AttentionOnlyTransformer,
    FoldedNorm,
    folded_norm,
    folded_output_norm,
    hook_names,
    widened,
)

#: One of `_READABLE`, an earlier head, or ("positions", an earlier head): positions as it moves them. A wrong word gets
#: an error that lists the right ones.
SideSpec: TypeAlias = str | HeadLike | tuple[str, HeadLike]
#: The same once it is checked.
ReadSpec: TypeAlias = str | Head | tuple[str, Head]
#: The cache of one prompt.
Frozen: TypeAlias = ActivationCache | dict[str, Tensor] | None
_READABLE = ("tokens", "positions", "bias", "residual", "prompt")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The rows of a side, projected to a head's d_head, and what is not exact about them."""

    rows: Float[Tensor, "row d_head"]
    side: Side
    reasons: Sequence[str] = ()


def read_side(
    model: AttentionOnlyTransformer,
    head: Head,
    matrix: Literal["Q", "K", "V"],
    spec: ReadSpec,
    frozen: Frozen,
) -> Reading:
    """Return the rows of `spec` through norm and W_Q, W_K or W_V of a head: `[row, d_head]`."""
    layer, weight = head[0], widened(model.of_head(f"W_{matrix}", head))
    norm = folded_norm(model, layer)
    if isinstance(spec, tuple):
        what, earlier = ("tokens", spec) if isinstance(spec[0], int) else spec
        reading = _through(model, layer, norm.into(weight), str(what), earlier, frozen)
        return _normalised(model, head, matrix, reading)
    if spec == "prompt" and frozen is None:
        raise ValueError("side 'prompt': give frozen=cache, from `_, cache = model.run_with_cache(tokens)`.")
    if spec == "bias":
        bias = widened(model.of_head(f"b_{matrix}", head))
        return Reading(rows=(norm.bias @ weight + bias)[None], side=Side(name="bias", index="bias"))
    reasons: list[str] = []
    if spec == "tokens":
        read, reasons = _tokens(model, layer, norm)
    elif spec == "positions":
        read, reasons = _positions(model, layer, matrix, norm, frozen)
    elif spec == "residual":
        read, of = torch.diag(norm.gain), "the centred stream" if norm.centres else "the stream"
        reasons = [] if norm.eps is None else [f"residual: of {of}; the norm divides by its scale; here by 1."]
    else:
        stream = _one_row(frozen, hook_names.resid_pre(layer))
        read = norm.read(stream, 1.0 if norm.eps is None else _one_row(frozen, norm.scale_hook))
    index: dict[str, Literal["token", "position", "direction"]] = {"tokens": "token", "residual": "direction"}
    side = Side(
        name=cast(SideName, spec),
        index=index.get(spec, "position"),
        undivided=spec == "positions" and model.cfg.positions == "learned" and norm.eps is not None and frozen is None,
    )
    reading = Reading(rows=read.to(weight) @ weight, side=side, reasons=reasons)
    return _normalised(model, head, matrix, reading, read, frozen)


def _tokens(model: AttentionOnlyTransformer, layer: int, norm: FoldedNorm) -> tuple[Tensor, list[str]]:
    reasons = _of_mlps(model, layer, "tokens")
    if norm.eps is not None and layer > 0:
        reasons.append(f"tokens: layer {layer}'s norm divides by the whole stream's scale; here by the token's own.")
    elif norm.eps is not None and model.cfg.positions == "learned":
        reasons.append("tokens: the norm divides by the scale of token and position together; here by the token's own.")
    embedding = widened(model.W_E)
    return norm.read(embedding, norm.scale(embedding)), reasons


def _of_mlps(model: AttentionOnlyTransformer, layer: int, side: str) -> list[str]:
    """List what a circuit leaves out of a side that the MLPs before `layer` have read; nothing where there are none."""
    if model.cfg.attn_only or layer == 0:
        return []
    return [f"{side}: an MLP stands before layer {layer} and has read them too; what it adds is left out."]


def _positions(
    model: AttentionOnlyTransformer, layer: int, matrix: str, norm: FoldedNorm, frozen: Frozen
) -> tuple[Tensor, list[str]]:
    if not model.cfg.position_kind.table:
        raise ValueError(
            f"side 'positions': this model {model.cfg.position_kind.meaning}; use 'tokens', 'residual' or 'bias'."
        )
    if model.cfg.positions == "qk":
        if matrix == "V":
            raise ValueError(
                "side 'positions': this model adds positions to queries and keys only (positions='qk'), so its OV "
                "circuits have none."
            )
        return widened(model.W_pos), []  # added after the norm: no centring, no gain, no scale
    rows, reasons = widened(model.W_pos), _of_mlps(model, layer, "positions")
    if norm.eps is not None and frozen is not None:
        scale = _one_row(frozen, norm.scale_hook)
        return norm.read(rows[: len(scale)], scale), reasons
    if norm.eps is not None:
        reasons.append(
            "positions: the norm divides by the stream's scale; here by 1, so that these rows cannot be compared with "
            "those of tokens (frozen=cache divides by a prompt's scale)."
        )
    return norm.read(rows), reasons


def _one_row(frozen: Frozen, name: str, n_dims: int = 2) -> Tensor:
    assert frozen is not None
    try:
        value = widened((frozen if isinstance(frozen, dict) else frozen.cache_dict)[name])
    except KeyError:
        raise ValueError(
            f"frozen: expected a cache with {name}, got one without it; run model.run_with_cache(tokens) without a "
            "names_filter, or keep that hook."
        ) from None
    if value.ndim > n_dims and value.shape[0] != 1:
        raise ValueError(f"frozen: expected the cache of one prompt, got a batch of {value.shape[0]}.")
    return value[0] if value.ndim > n_dims else value


def _through(
    model: AttentionOnlyTransformer, layer: int, reader: Tensor, what: str, earlier: Head, frozen: Frozen
) -> Reading:
    """Each token or position, moved by the earlier head and read by this one, divided by the earlier norm's scale
    alone."""
    if earlier[0] >= layer:
        raise ValueError(
            f"side {earlier}: expected a head of a layer before {layer}, since a head reads only what was written "
            f"before it; got layer {earlier[0]}."
        )
    if what == "positions" and model.cfg.positions != "learned":
        raise ValueError(
            f"side ('positions', {earlier}): expected a model whose positions are in the stream (positions='learned'), "
            f"since a head moves nothing else; this one {model.cfg.position_kind.meaning}."
        )
    moved = folded_output_norm(model, earlier[0]).after(widened(model.of_head("W_O", earlier))) @ reader
    values = read_side(model, earlier, "V", what, frozen if what == "positions" else None)
    name = f"through {earlier[0]}.{earlier[1]}"
    reasons = [*values.reasons, *output_norm_reasons(model, earlier)]
    if model.cfg.reads_normed:
        reasons.append(f"{name}: layer {layer}'s norm divides by the stream's scale; here by 1.")
    if not model.cfg.attn_only:
        reasons.append(f"{name}: an MLP stands between the two heads; what it makes of the first one's is left out.")
    side = replace(values.side, name="head", through=earlier)
    return Reading(rows=values.rows @ moved, side=side, reasons=reasons)


def output_norm_reasons(model: AttentionOnlyTransformer, head: Head) -> list[str]:
    """List the caveats of a head whose layer's output is normalised before it is added."""
    name = f"{head[0]}.{head[1]}"
    why = f"{name}: what its layer writes is divided by its scale, which all of its heads decide; here by 1."
    return [why] if model.cfg.norms_output else []


#: Rows whose queries or keys of all heads are held at once.
_AT_ONCE = 4096


def _normalised(
    model: AttentionOnlyTransformer,
    head: Head,
    matrix: Literal["Q", "K", "V"],
    reading: Reading,
    read: Tensor | None = None,
    frozen: Frozen = None,
) -> Reading:
    """Queries or keys behind their own norm, if any: a token's divided by its own scale, a prompt's by its scale,
    others by 1."""
    if matrix == "V" or model.cfg.qk_norm is None:
        return reading
    layer, cfg, which, kind = head[0], model.cfg, matrix.lower(), reading.side.name
    attn: Any = model.blocks[layer].attn
    norm = attn.q_norm if which == "q" else attn.k_norm
    place = 0 if cfg.qk_norm == "layer" else head[1]
    scale, reasons = torch.ones_like(reading.rows[:, :1]), [*reading.reasons]
    if kind == "tokens" and read is not None:
        if cfg.qk_norm == "layer":
            weights = widened(getattr(attn, f"W_{matrix}"))
            parts = [
                norm.scale(torch.einsum("td,hdk->thk", part.to(weights), weights)) for part in read.split(_AT_ONCE)
            ]
            scale = torch.cat(parts)[:, 0]
        else:
            scale = norm.scale(reading.rows[:, None])[:, 0]
        if layer > 0 or cfg.positions == "learned":
            reasons.append(
                f"tokens: {which} is divided by the scale of the whole stream's {which}; here of the token's."
            )
    elif kind == "prompt":
        scale = _one_row(frozen, hook_names.attn(layer, f"{which}_norm.hook_scale"), 3)[:, place]
    elif kind != "bias":
        reasons.append(f"{kind}: {which} is divided by the scale of the whole stream's {which}; here by 1.")
    gain = widened(norm.gain(cfg.n_heads))[head[1] if cfg.qk_norm == "layer" else 0]
    return replace(reading, rows=reading.rows / scale * gain, reasons=reasons)


def as_side(model: AttentionOnlyTransformer, spec: SideSpec, words: Sequence[str] = _READABLE) -> ReadSpec:
    """Return a side's word, the head it names, or positions with the head that moves them. `ValueError` for another
    word or head."""
    moved = isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], str)
    if moved and spec[0] == "positions" and "positions" in words:
        return "positions", as_head(cast(HeadLike, spec[1]), model.cfg)
    if moved or (isinstance(spec, str) and not HEAD_NAME.fullmatch(spec)):
        if spec not in words:
            moving = ', or ("positions", "1.0")' if "positions" in words else ""
            raise ValueError(
                f'side {spec!r}: expected one of {", ".join(words)}, or a head as (1, 0) or "1.0"{moving}.'
            )
        return cast(str, spec)
    return as_head(cast(HeadLike, spec), model.cfg)
