"""A model with patterns and norm scales frozen at their values on one prompt: an affine map of its embeddings.

With P the pattern of a head, s a norm's scale `[pos]`, C the centring matrix (I without a norm), w and b the norm's
gain and bias, head h of layer l adds to the stream x `[pos, d_model]`

    P ((C x / s) w W_V + b W_V + b_V) W_O  =  P (x / s · V + v_bias) W_O,    V = C w W_V,  v_bias = b W_V + b_V

and the layer adds b_O once. An MLP is not linear, so its output on the prompt, its b_out in it, is held as it is and
enters the stream after the heads of its layer: a source like the embeddings, with all that it has read hidden in it.
The logits are  read · x · R + out_bias,  with R = C w_final W_U, out_bias = b_final W_U + b_U, and read =
diag(1/s_final) (for classes, times the pooling). Positions of kind "qk" shape P and are nowhere else.

Functions below the class give residual streams of it: by order, by source, with some heads only, and gradients
backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.path import SourceName, mlp_name


@dataclass(frozen=True, eq=False, repr=False)
class Frozen:
    """The linear maps of a model on one prompt, in its own dtype (float32 for half precision, whose own pass rounds
    more)."""

    patterns: Float[Tensor, "layer head query key"]
    inverse_scale: Float[Tensor, "layer pos"]
    """1/s of each layer's norm; 1 without a norm."""
    W_V: Float[Tensor, "layer head d_model d_head"]
    """V: the norm's centring and gain are in it."""
    v_bias: Float[Tensor, "layer head d_head"]
    W_O: Float[Tensor, "layer head d_head d_model"]
    b_O: Float[Tensor, "layer d_model"]
    pool: Float[Tensor, "out_pos pos"]
    """The weights of the read-out over positions: I, or for pooled classes the first, the last or the mean."""
    read: Float[Tensor, "out_pos pos"]
    """`pool` · diag(1/s) of the final norm."""
    R: Float[Tensor, "d_model out"]
    out_bias: Float[Tensor, " out"]
    sources: dict[SourceName, Float[Tensor, "pos d_model"]]
    """The terms that enter the stream before the first layer, by name."""
    mlps: Float[Tensor, "layer pos d_model"] | None
    """The output of the MLP of each layer, after its heads; None for an attention-only model."""
    logits: Float[Tensor, "out_pos out"]
    """The model's own, from the pass that froze it."""
    precision: torch.dtype
    """The dtype of that pass."""

    def __repr__(self) -> str:
        return f"Frozen({self.n_layers} layers × {self.n_heads} heads, {self.n_pos} positions)"

    @property
    def n_layers(self) -> int:
        return self.patterns.shape[0]

    @property
    def n_heads(self) -> int:
        return self.patterns.shape[1]

    @property
    def n_pos(self) -> int:
        return self.patterns.shape[-1]

    @cached_property
    def has_bias(self) -> bool:
        """Whether any bias, a norm's included, is not zero."""
        return any(bool(bias.any()) for bias in (self.v_bias, self.b_O, self.out_bias))

    @property
    def n_mlps(self) -> int:
        return 0 if self.mlps is None else len(self.mlps)

    @cached_property
    def source_names(self) -> tuple[SourceName, ...]:
        """Token (or input), position if added to the stream, mlp_0 … if there are MLPs, bias if there is any."""
        mlps = (mlp_name(layer) for layer in range(self.n_mlps))
        return (*self.sources, *mlps, *(("bias",) if self.has_bias else ()))

    @cached_property
    def entering(self) -> dict[SourceName, Float[Tensor, "pos d_model"]]:
        """All that enters the stream, by the names of the sources; not the biases."""
        mlps = () if self.mlps is None else self.mlps
        return {**self.sources, **{mlp_name(layer): x for layer, x in enumerate(mlps)}}

    @cached_property
    def direct(self) -> dict[SourceName, Float[Tensor, "pos d_model"]]:
        """The final stream's parts that passed no head, by source: all that enters it, and Σ b_O if there is a bias."""
        bias = {"bias": self.bias_before[-1].expand(self.n_pos, -1)} if self.has_bias else {}
        return self.entering | bias

    @cached_property
    def embedded(self) -> Float[Tensor, "pos d_model"]:
        """The stream before the first layer."""
        return torch.stack([*self.sources.values()]).sum(0)

    def added(self, layer: int) -> Float[Tensor, "*pos d_model"]:
        """Return the terms that a layer adds besides its heads: b_O and the output of its MLP."""
        return self.b_O[layer] if self.mlps is None else self.b_O[layer] + self.mlps[layer]

    @cached_property
    def causal(self) -> bool:
        """Whether no position sees a later one on this prompt."""
        return not bool(self.patterns.triu(1).any())

    @cached_property
    def bias_before(self) -> Float[Tensor, "layers d_model"]:
        """Σ b_O of the layers before each layer, and before the read-out: `[n_layers + 1, d_model]`."""
        zero = torch.zeros_like(self.R[:, :1].T)
        return torch.cat([zero, self.b_O]).cumsum(0)

    @cached_property
    def W_V_flat(self) -> Float[Tensor, "layer d_model width"]:
        """The heads of a layer side by side, so that all read in one product."""
        return self.W_V.transpose(1, 2).flatten(2).contiguous()

    @cached_property
    def W_O_flat(self) -> Float[Tensor, "layer width d_model"]:
        return self.W_O.flatten(1, 2)

    def values(self, layer: int, x: Float[Tensor, "*more pos d_model"]) -> Float[Tensor, "*more head pos d_head"]:
        """Return x / s · V of every head of a layer: its values, without biases."""
        scaled = x * self.inverse_scale[layer][:, None]
        return (scaled @ self.W_V_flat[layer]).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)

    def moved(self, layer: int, v: Float[Tensor, "*more head pos d_head"]) -> Float[Tensor, "*more head pos d_head"]:
        """Return P v of every head of a layer."""
        if v.ndim == 3:
            return self.patterns[layer] @ v
        head_first = v.flatten(0, -4).permute(1, 2, 0, 3)  # one product a head serves all streams
        moved = self.patterns[layer] @ head_first.flatten(2)
        return moved.unflatten(-1, (-1, v.shape[-1])).permute(2, 0, 1, 3).reshape(v.shape)

    def written(self, layer: int, z: Float[Tensor, "*more head pos d_head"]) -> Float[Tensor, "*more pos d_model"]:
        """Return Σ_heads z W_O of a layer."""
        return z.transpose(-3, -2).flatten(-2) @ self.W_O_flat[layer]

    def head_step(
        self, head: tuple[int, int], x: Float[Tensor, "pos d_model"], *, bias: bool
    ) -> Float[Tensor, "pos d_model"]:
        """Return the output of one head, given the stream x; with `bias`, also its own bias."""
        v = (x * self.inverse_scale[head[0]][:, None]) @ self.W_V[head]
        return self.patterns[head] @ (v + self.v_bias[head] if bias else v) @ self.W_O[head]

    def read_out(
        self, x: Float[Tensor, "*more pos d_model"], columns: Float[Tensor, "d_model out"] | None = None
    ) -> Float[Tensor, "*more out_pos out"]:
        """Return the logits of a stream without `out_bias`; `columns` instead of R for other directions."""
        return self.pooled(x) @ (self.R if columns is None else columns)

    def pooled(self, x: Float[Tensor, "*more pos d_model"]) -> Float[Tensor, "*more out_pos d_model"]:
        """Return the final scale, and for classes the pooling."""
        if self.read.shape[0] == self.n_pos:
            return x * self.read.diagonal()[:, None]
        return self.read @ x


@torch.no_grad()
def freeze(model: AttentionOnlyTransformer, tokens: Tensor | str | list[str]) -> Frozen:
    """Return the linear maps of `model` on one prompt: one forward pass on the hooked path. Leaves no hook behind.

    `tokens` is ids `[pos]` or `[1, pos]`, a text, or for models that read something else one input of theirs.
    Raises `ValueError` for a batch, and where the logits are not finite.
    """
    cfg = model.cfg
    require_ours(model, "paths", without=NOT_LINEAR)
    inputs = model.to_prompt(tokens, "paths")
    wanted = {hook_names.EMBED, hook_names.POS_EMBED, hook_names.FINAL_SCALE}
    for layer in range(cfg.n_layers):
        wanted |= {hook_names.attn(layer, hook_names.PATTERN), hook_names.norm_scale(layer), hook_names.mlp_out(layer)}
    logits, cache = model.run_with_cache(inputs, names_filter=lambda name: name in wanted, return_cache_object=False)
    dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    logits = logits.detach().to(dtype)
    if not bool(logits.isfinite().all()):
        raise ValueError("paths: expected finite logits, got NaN or infinite ones; the model's weights overflow here.")
    embedded = cache[hook_names.EMBED][0].to(dtype)
    sources: dict[SourceName, Tensor] = {"token" if cfg.read_in == "tokens" else "input": embedded}
    if cfg.positions == "learned":
        sources["position"] = cache[hook_names.POS_EMBED][0].to(dtype)
    maps = [
        reading_map(model, layer, block.attn.W_V, block.attn.b_V, dtype) for layer, block in enumerate(model.blocks)
    ]
    pool = _pooling(model, embedded.shape[0], dtype)
    return Frozen(
        patterns=torch.stack(
            [cache[hook_names.attn(layer, hook_names.PATTERN)][0].to(dtype) for layer in range(cfg.n_layers)]
        ),
        inverse_scale=torch.stack(
            [_inverse(cache.get(hook_names.norm_scale(layer)), embedded) for layer in range(cfg.n_layers)]
        ),
        W_V=torch.stack([V for V, _ in maps]),
        v_bias=torch.stack([v_bias for _, v_bias in maps]),
        W_O=model.W_O.detach().to(dtype),
        b_O=model.b_O.detach().to(dtype),
        pool=pool,
        read=pool * _inverse(cache.get(hook_names.FINAL_SCALE), embedded),
        **read_out_map(model, dtype),
        sources=sources,
        mlps=None
        if cfg.attn_only
        else torch.stack([cache[hook_names.mlp_out(layer)][0].to(dtype) for layer in range(cfg.n_layers)]),
        # Pooled classes come as [batch, out], one row for the sequence.
        logits=logits if logits.ndim == 2 else logits[0],
        precision=model.dtype,
    )


def reading_map(
    model: AttentionOnlyTransformer, layer: int, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Float[Tensor, "head d_model d_head"], Float[Tensor, "head d_head"]]:
    """Return a layer's W_Q, W_K or W_V behind its norm, as maps on the stream, and the biases beside them.

    x ↦ (C x / s · w + b) W + bias is x / s ↦ x / s · V + v with V = C w W and v = b W + bias.
    """
    norm, weight = folded_norm(model, layer), weight.detach().to(dtype)
    own = torch.zeros_like(weight[:, 0]) if bias is None else bias.detach().to(dtype)
    return norm.into(weight), own + norm.bias.to(dtype) @ weight


def read_out_map(model: AttentionOnlyTransformer, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the read-out `R` and its bias `out_bias`, with the final norm's gain and bias folded in."""
    reads_stream = not model.cfg.tied_embeddings and model.unembed.W_U is None
    if reads_stream:
        weight = torch.eye(model.cfg.d_model, dtype=dtype, device=model.device)
        bias = torch.zeros_like(weight[0])
    else:
        weight, bias = model.W_U.detach().to(dtype), model.b_U.detach().to(dtype)
    norm = folded_norm(model, None)
    return {"R": norm.into(weight), "out_bias": bias + norm.bias.to(dtype) @ weight}


def _inverse(scale: Tensor | None, stream: Tensor) -> Tensor:
    """1/s `[pos]`, or ones where there is no norm."""
    return torch.ones_like(stream[:, 0]) if scale is None else 1 / scale[0, :, 0].to(stream.dtype)


def _pooling(model: AttentionOnlyTransformer, n_pos: int, dtype: torch.dtype) -> Tensor:
    every = torch.eye(n_pos, dtype=dtype, device=model.device)
    if model.cfg.read_out != "classes" or model.cfg.pooling is None:
        return every
    if model.cfg.pooling != "mean":
        return every[:1] if model.cfg.pooling == "first" else every[-1:]
    return torch.full((1, n_pos), 1 / n_pos, dtype=dtype, device=model.device)


def order_streams(frozen: Frozen, max_order: int | None = None) -> Float[Tensor, "order pos d_model"]:
    """Return the final stream's parts that passed exactly k heads, k = 0 … n_layers (or `max_order`).

    After a layer, part k is part k plus the layer's heads applied to part k−1. A head's own bias joins part 1, b_O and
    an MLP's output part 0. O(L²) head evaluations.
    """
    last = frozen.n_layers if max_order is None else min(max_order, frozen.n_layers)
    x = torch.zeros(last + 1, frozen.n_pos, frozen.R.shape[0], dtype=frozen.R.dtype, device=frozen.R.device)
    x[0] = frozen.embedded
    for layer in range(frozen.n_layers):
        reading = min(layer + 1, last)  # parts that exist and whose successor is wanted
        if reading:
            v = frozen.values(layer, x[:reading])
            v[0] += frozen.v_bias[layer][:, None]
            x[1 : reading + 1] += frozen.written(layer, frozen.moved(layer, v))
        x[0] += frozen.added(layer)
    return x


def source_streams(frozen: Frozen) -> dict[SourceName, Float[Tensor, "pos d_model"]]:
    """Return the final stream's parts that come from each source, over all paths; by `source_names`, in their order."""
    n_embedded = len(frozen.sources)
    x = torch.zeros(n_embedded + frozen.n_mlps + 1, *frozen.embedded.shape).to(frozen.embedded)
    x[:n_embedded] = torch.stack([*frozen.sources.values()])
    for layer in range(frozen.n_layers):
        v = frozen.values(layer, x)
        v[-1] += frozen.v_bias[layer][:, None]
        x = x + frozen.written(layer, frozen.moved(layer, v))
        x[-1] += frozen.b_O[layer]
        if frozen.mlps is not None:
            x[n_embedded + layer] = frozen.mlps[layer]
    return dict(zip(frozen.source_names, x, strict=False))  # the last is of the biases, and 0 where there are none


def head_values(frozen: Frozen) -> Float[Tensor, "layer head pos d_head"]:
    """Return the values of every head on the prompt, biases in them."""
    x = frozen.embedded
    values = x.new_empty(frozen.n_layers, frozen.n_heads, frozen.n_pos, frozen.W_O.shape[2])
    for layer in range(frozen.n_layers):
        values[layer] = frozen.values(layer, x) + frozen.v_bias[layer][:, None]
        x = x + frozen.written(layer, frozen.moved(layer, values[layer])) + frozen.added(layer)
    return values


def head_results(frozen: Frozen) -> Float[Tensor, "layer head pos d_model"]:
    """Return the output of every head on the prompt: the sum of all paths that end with it, before the read-out."""
    return (frozen.patterns @ head_values(frozen)) @ frozen.W_O


def masked_streams(frozen: Frozen, keep: Float[Tensor, "variant layer head"]) -> Float[Tensor, "variant pos d_model"]:
    """Return the final stream with each head's output multiplied by `keep`, which is 0 for a head that is left out."""
    x = frozen.embedded.expand(len(keep), -1, -1)
    for layer in range(frozen.n_layers):
        z = frozen.moved(layer, frozen.values(layer, x) + frozen.v_bias[layer][:, None])
        x = x + frozen.written(layer, z * keep[:, layer, :, None, None]) + frozen.added(layer)
    return x


def carried(
    frozen: Frozen, x: Float[Tensor, "*more pos d_model"], first_layer: int
) -> Float[Tensor, "*more pos d_model"]:
    """Carry a part of the stream to the end, through layers `first_layer` on and past them; no biases."""
    for layer in range(first_layer, frozen.n_layers):
        x = x + frozen.written(layer, frozen.moved(layer, frozen.values(layer, x)))
    return x


def root_gradient(
    frozen: Frozen, position: int, column: Float[Tensor, "*more d_model"]
) -> Float[Tensor, "*more pos d_model"]:
    """Return ∂ logit / ∂ final stream: the read-out's row for `position`, times the direction, or each of several."""
    return frozen.read[position][:, None] * column[..., None, :]


def head_gradients(
    frozen: Frozen, layer: int, g: Float[Tensor, "*more pos d_model"]
) -> Float[Tensor, "*more head pos d_head"]:
    """Return ∂ logit / ∂ values of a layer's heads, given g = ∂ logit / ∂ stream after the layer: Pᵀ g W_Oᵀ."""
    y = (g @ frozen.W_O_flat[layer].mT).unflatten(-1, (frozen.n_heads, -1)).transpose(-3, -2)
    return frozen.patterns[layer].mT @ y


def stream_gradients(
    frozen: Frozen, layer: int, u: Float[Tensor, "*more head pos d_head"]
) -> Float[Tensor, "*more head pos d_model"]:
    """Return ∂ logit / ∂ stream before the layer through each head alone: u Vᵀ / s."""
    return (u @ frozen.W_V[layer].mT) * frozen.inverse_scale[layer][:, None]


def total_gradients(
    frozen: Frozen, root: Float[Tensor, "*more pos d_model"]
) -> tuple[Float[Tensor, "layers *more pos d_model"], Float[Tensor, "layer *more head pos d_head"]]:
    """Return ∂ / ∂ stream before each layer and before the read-out, and ∂ / ∂ values of every head, of one number or
    several whose gradient in the final stream is `root`."""
    g, streams = root, [root]
    heads = g.new_empty(frozen.n_layers, *g.shape[:-2], frozen.n_heads, frozen.n_pos, frozen.W_O.shape[2])
    for layer in reversed(range(frozen.n_layers)):
        heads[layer] = head_gradients(frozen, layer, g)
        g = g + stream_gradients(frozen, layer, heads[layer]).sum(-3)
        streams.append(g)
    return torch.stack(streams[::-1]), heads
