"""What a head reads: rows of the residual stream, as its queries, keys or values see them.

A head of layer l reads norm(stream) = centre(stream) / scale · w + b (nothing of this without a norm) through W_Q, W_K
or W_V. Centring and gain are linear and belong to every row that something writes to the stream. The scale depends on
the input; a side divides by

    tokens      the token's own centred RMS √(mean(centre(W_E[t])²) + ε), which is the stream's own where a token is
                alone in it: layer 0 of a model whose positions are not added to the stream
    prompt      the scale frozen on the prompt
    the others  1

b and the matrices' own biases are a side of their own, `bias`, so that no other side counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import ActivationCache

from aotlens.circuits.circuit import Side, SideName
from aotlens.conventions import Head
from aotlens.models import AttentionOnlyTransformer, hook_names

#: One of `_READABLE`, or an earlier head; a wrong word gets an error that lists the right ones.
SideSpec: TypeAlias = str | Head
_READABLE = ("tokens", "positions", "bias", "residual", "prompt")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The rows of a side, projected to a head's d_head, and what is not exact about them."""

    rows: Float[Tensor, "row d_head"]
    side: Side
    relative: str = ""


def read_side(
    model: AttentionOnlyTransformer,
    layer: int,
    head: int,
    matrix: Literal["Q", "K", "V"],
    spec: SideSpec,
    frozen: ActivationCache | dict[str, Tensor] | None,
) -> Reading:
    """The rows of `spec` through norm and W_Q, W_K or W_V of head (layer, head): `[row, d_head]`."""
    weight = getattr(model, f"W_{matrix}")[layer, head]
    if isinstance(spec, tuple):
        return _through(model, layer, weight, spec)
    if spec not in _READABLE:
        raise ValueError(f"side {spec!r}: expected one of {', '.join(_READABLE)}, or an earlier head (layer, head).")
    if spec == "prompt" and frozen is None:
        raise ValueError("side 'prompt': give frozen=cache, from `_, cache = model.run_with_cache(tokens)`.")
    if spec == "bias":
        bias = getattr(model, f"b_{matrix}")[layer, head]
        return Reading(rows=(_norm_bias(model, layer) @ weight + bias)[None], side=Side(name="bias", index="bias"))
    rows: dict[str, Callable[[], tuple[Tensor, str]]] = {
        "tokens": lambda: _tokens(model, layer),
        "positions": lambda: _positions(model, layer, matrix),
        "residual": lambda: _residual(model, layer),
        "prompt": lambda: _prompt(model, layer, frozen),
    }
    read, relative = rows[spec]()
    index: dict[str, Literal["token", "position", "direction"]] = {"tokens": "token", "residual": "direction"}
    return Reading(
        rows=read @ weight, side=Side(name=cast(SideName, spec), index=index.get(spec, "position")), relative=relative
    )


def centre(model: AttentionOnlyTransformer, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Rows without their mean, as a norm takes it off; unchanged where the model has no norm."""
    return rows - rows.mean(-1, keepdim=True) if model.cfg.norm else rows


def gain(model: AttentionOnlyTransformer, layer: int | None) -> Float[Tensor, " d_model"] | None:
    """The gain of the norm before `layer` (None: before the unembedding), or None without a norm."""
    if not model.cfg.norm:
        return None
    norm = model.ln_final if layer is None else model.blocks[layer].ln1
    return cast(Tensor, norm.w)


def _gained(model: AttentionOnlyTransformer, layer: int, rows: Tensor) -> Tensor:
    w = gain(model, layer)
    return rows if w is None else rows * w


def _norm_bias(model: AttentionOnlyTransformer, layer: int) -> Tensor:
    if model.cfg.norm:
        return model.blocks[layer].ln1.b
    return torch.zeros(model.cfg.d_model, dtype=model.dtype, device=model.device)


def _tokens(model: AttentionOnlyTransformer, layer: int) -> tuple[Tensor, str]:
    rows = normalised_tokens(model)
    if not model.cfg.norm:
        return rows, ""
    if layer > 0:
        why = f"tokens: layer {layer}'s norm divides by the whole stream's scale; here by the token's own."
    elif model.cfg.positions == "learned":
        why = "tokens: the norm divides by the scale of token and position together; here by the token's own."
    else:
        why = ""
    return _gained(model, layer, rows), why


def normalised_tokens(model: AttentionOnlyTransformer) -> Float[Tensor, "d_vocab d_model"]:
    """W_E, centred and divided by each row's own scale where the model has a norm."""
    rows = centre(model, model.W_E)
    if model.cfg.norm:
        rows = rows / (rows.pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt()
    return rows


def _positions(model: AttentionOnlyTransformer, layer: int, matrix: str) -> tuple[Tensor, str]:
    if model.cfg.positions is None:
        raise ValueError("side 'positions': this model has positions=None; use 'tokens', 'residual' or 'bias'.")
    if model.cfg.positions == "qk":
        if matrix == "V":
            raise ValueError(
                "side 'positions': this model adds positions to queries and keys only (positions='qk'), so its OV "
                "circuits have none."
            )
        return model.W_pos, ""  # added after the norm: no centring, no gain, no scale
    rows = _gained(model, layer, centre(model, model.W_pos))
    return rows, "positions: the norm divides by the stream's scale; here by 1." if model.cfg.norm else ""


def _residual(model: AttentionOnlyTransformer, layer: int) -> tuple[Tensor, str]:
    rows = _gained(model, layer, torch.eye(model.cfg.d_model, dtype=model.dtype, device=model.device))
    return rows, "residual: of the centred stream; the norm divides by its scale; here by 1." if model.cfg.norm else ""


def _prompt(
    model: AttentionOnlyTransformer, layer: int, cache: ActivationCache | dict[str, Tensor] | None
) -> tuple[Tensor, str]:
    assert cache is not None
    stream = _one_row(cache, hook_names.resid_pre(layer))
    if not model.cfg.norm:
        return stream, ""
    scale = _one_row(cache, hook_names.norm_scale(layer))
    return _gained(model, layer, centre(model, stream) / scale), ""


def _one_row(cache: ActivationCache | dict[str, Tensor], name: str) -> Tensor:
    try:
        value = (cache if isinstance(cache, dict) else cache.cache_dict)[name]
    except KeyError:
        raise ValueError(
            f"frozen: expected a cache with {name}, got one without it; run model.run_with_cache(tokens) without a "
            "names_filter, or keep that hook."
        ) from None
    if value.ndim == 3 and value.shape[0] != 1:
        raise ValueError(f"frozen: expected the cache of one prompt, got a batch of {value.shape[0]}.")
    return value[0] if value.ndim == 3 else value


def _through(model: AttentionOnlyTransformer, layer: int, weight: Tensor, earlier: Head) -> Reading:
    """Token t, moved by the earlier head and read by this one: norm(W_E[t]) W_V W_O, centred, gained."""
    check_head(model, earlier)
    if earlier[0] >= layer:
        raise ValueError(
            f"side {earlier}: expected a head of a layer before {layer}, since a head reads only what was written "
            f"before it; got layer {earlier[0]}."
        )
    moved = model.W_O[earlier] @ _reader(model, layer, weight)
    values = read_side(model, *earlier, "V", "tokens", None)
    relative = values.relative
    if model.cfg.norm:
        relative = f"through {earlier[0]}.{earlier[1]}: layer {layer}'s norm divides by the stream's scale; here by 1."
    return Reading(rows=values.rows @ moved, side=Side(name="head", index="token", through=earlier), relative=relative)


def _reader(model: AttentionOnlyTransformer, layer: int, weight: Tensor) -> Tensor:
    """What a row that is written to the stream meets on its way into `weight`: centring, gain, weight."""
    w = gain(model, layer)
    if w is None:
        return weight
    gained = w[:, None] * weight
    return gained - gained.mean(0)  # x ↦ centre(x) @ gained, as one matrix


def reader_of_layer(model: AttentionOnlyTransformer, later: Head) -> Float[Tensor, "d_model d_head"]:
    """Centring, gain and W_V of a head, as one matrix on what is written to the stream."""
    return _reader(model, later[0], model.W_V[later])


def reader_of_logits(model: AttentionOnlyTransformer) -> Float[Tensor, "d_model d_vocab"]:
    """Centring, gain and unembedding, as one matrix on what is written to the stream."""
    w = gain(model, None)
    if w is None:
        return model.W_U
    gained = w[:, None] * model.W_U
    return gained - gained.mean(0)


def check_head(model: AttentionOnlyTransformer, head: Head) -> None:
    """Raise `ValueError` for a head that the model does not have."""
    cfg = model.cfg
    if len(head) != 2 or not all(isinstance(part, int) for part in head):
        raise ValueError(f"head {head!r}: expected (layer, head), two whole numbers.")
    layer, index = head
    if not (0 <= layer < cfg.n_layers and 0 <= index < cfg.n_heads):
        raise ValueError(
            f"head {layer}.{index}: this model has layers 0 to {cfg.n_layers - 1} and heads 0 to {cfg.n_heads - 1}."
        )
