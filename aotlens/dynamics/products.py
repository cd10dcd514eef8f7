"""The model between two snapshots, along lines in the products that its heads act by.

A straight line in W_Q and W_K depends on how the product is factored: rotating one snapshot's head, which changes
nothing that the model does, moves the split of the loss by more than half. So the lines are in the products

    M_QK = [w ⊙ W_Q; b W_Q + b_Q] [w ⊙ W_K; b W_K + b_K]ᵀ,    M_OV = [w ⊙ W_V; b W_V + b_V] W_O

with the gain w and the bias b of the norm before the layer folded in (gains are another such choice, so that "norms" is
no entry). M(t) = (1 − t) M₀ + t M₁ has rank up to 2 · d_head, and is a head of that width, [(1 − t) Q₀, t Q₁] and
[K₀, K₁], with the scale of scores that the model has. With `positions="qk"`, a row for each position, W_pos W_Q, stands
below the bias: positions then belong to the heads that read them. Rotary positions turn Q₀ and Q₁, K₀ and K₁ each by
itself (R_δ ⊕ R_δ), so that every (1 − t) Q₀ R_δ K₀ᵀ + t Q₁ R_δ K₁ᵀ is a line; ALiBi adds the same at all t. An RMS norm
has a gain and centres nothing. Heads that share keys or values have products of their own. An MSSA head's U Uᵀ and
U W_O are two products. Of tied embeddings both ends are entries of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from aotlens.conventions import all_heads
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.folding import folded_norm
from aotlens.models.phi import apply_phi
from aotlens.models.positions import PositionTerms
from aotlens.models.traits import TRAITS

#: Largest difference between a model's own loss and that of its products, in units (eps) of the model's type relative
#: to the loss, and its bounds. It finds what no trait names, where that writes enough.
_UNITS, _CLOSEST, _WIDEST = 1000, 1e-9, 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A layer's factors, with the norm before it folded in."""

    Q: Tensor  # [head, d_model + 1 (+ n_ctx), d_head]
    K: Tensor
    V: Tensor  # [head, d_model + 1, d_head]
    O: Tensor  # [head, d_head, d_model]  # noqa: E741 (the field's name of it)
    b_O: Tensor  # [d_model]
    mlp: tuple[Tensor, Tensor, Tensor] | None  # [d_model + 1, d_mlp], [d_mlp, d_model], [d_model]


@dataclass(frozen=True, kw_only=True, eq=False)
class Products:
    """A model as the factors of its products."""

    embedding: Tensor  # [d_vocab, d_model]
    positions: Tensor | None  # [n_ctx, d_model], those added to the stream
    layers: tuple[Layer, ...]
    read_out: Tensor  # [d_model + 1, d_vocab]


def products(model: AttentionOnlyTransformer, dtype: torch.dtype) -> Products:
    """Return the products of a model that predicts its next token. Raises `ValueError` for another kind of model."""
    require_ours(model, "a ledger", without=TRAITS)
    cfg = model.cfg
    if (cfg.read_in, cfg.read_out) != ("tokens", "tokens") or model.sees_later_keys or not cfg.has_query_key:
        raise ValueError(
            "a ledger is of models that predict their next token with patterns made of scores; this one reads "
            f"{cfg.read_in}, writes {cfg.read_out} and has phi={cfg.phi!r}."
        )
    positions = None if model.pos_embed is None else model.pos_embed.W_pos.detach().to(dtype)
    layers = []
    for number, block in enumerate(model.blocks):
        norm, attention = folded_norm(model, number), block.attn
        gain, bias = norm.gain.to(dtype), norm.bias.to(dtype)
        own = positions if cfg.positions == "qk" else None
        layers.append(
            Layer(
                Q=_folded(model.W_Q[number], model.b_Q[number], gain, bias, own),
                K=_folded(model.W_K[number], model.b_K[number], gain, bias, own),
                V=_folded(model.W_V[number], model.b_V[number], gain, bias, None),
                O=attention.W_O.detach().to(dtype),
                b_O=model.b_O[number].detach().to(dtype),
                mlp=None if block.mlp is None else _folded_mlp(block, cfg.norm is not None, dtype),
            )
        )
    final = folded_norm(model, None)
    W_U = model.W_U.detach().to(dtype)
    b_U = model.b_U.detach().to(dtype)
    read_out = torch.cat([final.gain.to(dtype)[:, None] * W_U, (final.bias.to(dtype) @ W_U + b_U)[None]])
    return Products(
        embedding=model.W_E.detach().to(dtype),
        positions=positions if cfg.positions == "learned" else None,
        layers=tuple(layers),
        read_out=read_out,
    )


def _folded(weight: Tensor, own_bias: Tensor, gain: Tensor, bias: Tensor, positions: Tensor | None) -> Tensor:
    """[w ⊙ W; b W + b_own; W_pos W], `[head, d_model + 1 (+ n_ctx), d_head]`."""
    weight = weight.detach().to(gain.dtype)
    row = (bias @ weight)[:, None] + own_bias.detach().to(gain.dtype)[:, None]
    parts = [gain[:, None] * weight, row]
    return torch.cat(parts if positions is None else [*parts, positions @ weight], dim=1)


def _folded_mlp(block: Any, normed: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    W_in, W_out = block.mlp.W_in.detach().to(dtype), block.mlp.W_out.detach().to(dtype)
    b_in, b_out = (torch.zeros(width).to(W_in) if b is None else b.detach().to(dtype)
                   for b, width in ((block.mlp.b_in, W_in.shape[1]), (block.mlp.b_out, W_out.shape[1])))  # fmt: skip
    if not normed:
        return torch.cat([W_in, b_in[None]]), W_out, b_out
    gain = block.ln2.w.detach().to(dtype) + block.ln2.offset
    bias = torch.zeros_like(gain) if block.ln2.b is None else block.ln2.b.detach().to(dtype)
    return torch.cat([gain[:, None] * W_in, (bias @ W_in + b_in)[None]]), W_out, b_out


class Between:
    """The loss of the models between two snapshots, each entry at a place of its own from 0, the earlier, to 1."""

    def __init__(
        self,
        earlier: AttentionOnlyTransformer,
        later: AttentionOnlyTransformer,
        tokens: Int[Tensor, "sequence pos"],
        dtype: torch.dtype,
        batch_size: int,
    ) -> None:
        """Raises `ValueError` for two models of different shape, and for a model whose own loss is another one."""
        self.cfg, self.tokens, self.batch_size = earlier.cfg, tokens.to(earlier.device), batch_size
        self.ends = products(earlier, dtype), products(later, dtype)
        shapes = [model.cfg.to_dict() | {"seed": 0} for model in (earlier, later)]
        if shapes[0] != shapes[1]:
            different = [name for name in shapes[0] if shapes[0][name] != shapes[1][name]]
            raise ValueError(f"expected two snapshots of one model, got two that differ in {', '.join(different)}.")
        self.visible = earlier.visible_keys(tokens.shape[1], None, earlier.device)
        self.order = PositionTerms.of(self.cfg, torch.arange(tokens.shape[1], device=earlier.device)[None], dtype)
        self.entries = entries(earlier)
        self._activation = None if self.cfg.attn_only else earlier.blocks[0].mlp.activation
        self._place = {name: index for index, name in enumerate(self.entries)}
        self.n_passes = 0
        with torch.no_grad():
            for t, model in enumerate((earlier, later)):
                own = float(
                    torch.cat([model.loss_per_token(rows) for rows in self.tokens.split(batch_size)]).double().mean()
                )
                loss = self.loss(float(t))
                agreement = min(max(_UNITS * torch.finfo(model.dtype).eps, _CLOSEST), _WIDEST)
                if abs(loss - own) > agreement * max(1.0, own):
                    raise ValueError(
                        f"a ledger: this model's loss is {own:.6f}, and that of its products {loss:.6f}: it has "
                        "a part that the ledger does not know."
                    )

    def loss(self, t: float) -> float:
        """Return the mean loss in nats per token where all entries are at t."""
        with torch.no_grad():
            place = torch.full((len(self.entries),), t, dtype=self.ends[0].embedding.dtype, device=self.tokens.device)
            return sum(float(self._loss(place, rows)) * len(rows) for rows in self._batches()) / len(self.tokens)

    def slopes(self, t: float) -> Tensor:
        """Return ∂loss/∂t of each entry where all are at t: one pass forward and backward gives all of them."""
        place = torch.full((len(self.entries),), t, dtype=self.ends[0].embedding.dtype, device=self.tokens.device)
        place.requires_grad_(True)
        total = torch.zeros_like(place)
        with torch.enable_grad():
            for rows in self._batches():
                total += torch.autograd.grad(self._loss(place, rows), place)[0] * (len(rows) / len(self.tokens))
        self.n_passes += 1
        return total.detach().cpu().double()

    def _batches(self) -> tuple[Tensor, ...]:
        return self.tokens.split(self.batch_size)

    def _loss(self, place: Tensor, tokens: Tensor) -> Tensor:
        """The mean next-token loss with each entry at its own `place [entry]`."""
        first, last = self.ends
        place_of = dict(zip(self.entries, place, strict=True))
        stream = _between(first.embedding, last.embedding, place_of["embedding"])[tokens]
        if first.positions is not None and last.positions is not None:
            stream = stream + _between(first.positions, last.positions, place_of["positions"])[: tokens.shape[1]]
        for number, (before, after) in enumerate(zip(first.layers, last.layers, strict=True)):
            stream = stream + self._attention(number, before, after, place, self._normalised(stream))
            if "output biases" in place_of:
                stream = stream + _between(before.b_O, after.b_O, place_of["output biases"])
            if before.mlp is not None and after.mlp is not None:
                W_in, W_out, b_out = (
                    _between(*pair, place_of[f"MLP {number}"]) for pair in zip(before.mlp, after.mlp, strict=True)
                )
                assert self._activation is not None
                stream = stream + self._activation(_affine(self._normalised(stream), W_in)) @ W_out + b_out
        logits = _affine(
            self._normalised(stream[:, :-1]), _between(first.read_out, last.read_out, place_of["read-out"])
        )
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten().long())

    def _attention(self, number: int, before: Layer, after: Layer, place: Tensor, x: Tensor) -> Tensor:
        heads = range(self.cfg.n_heads)
        qk, ov = (
            place[[self._place[f"{number}.{head} {kind}"] for head in heads]][:, None, None] for kind in ("QK", "OV")
        )
        q = torch.cat([(1 - qk) * self._turned(x, before.Q), qk * self._turned(x, after.Q)], -1)
        k = torch.cat([self._turned(x, before.K), self._turned(x, after.K)], -1)
        v = torch.cat([(1 - ov) * self._read(x, before.V), ov * self._read(x, after.V)], -1)
        scores = q @ k.mT * self.cfg.score_scale
        if self.order.bias is not None:
            scores = scores + self.order.bias
        if self.visible is not None:
            scores = scores.masked_fill(~self.visible, float("-inf"))
        z = apply_phi(self.cfg, scores, self.visible) @ v
        return torch.einsum("bhpk,hkd->bpd", z, torch.cat([before.O, after.O], 1))

    def _turned(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the queries or keys that heads read: rotated by their positions."""
        return self.order.rotated(self._read(x, weight).transpose(1, 2)).transpose(1, 2)

    def _read(self, x: Tensor, weight: Tensor) -> Tensor:
        """`[batch, head, pos, d_head]`: what heads read of the normalised stream, the bias and the positions."""
        d_model = x.shape[-1]
        read = x[:, None] @ weight[:, :d_model] + weight[:, d_model, None]
        own = weight[:, d_model + 1 :]
        return read + own[:, : x.shape[1]] if own.shape[1] else read

    def _normalised(self, stream: Tensor) -> Tensor:
        if self.cfg.norm is None:
            return stream
        if self.cfg.norm == "rms":
            return F.rms_norm(stream, stream.shape[-1:], eps=self.cfg.norm_eps)
        return F.layer_norm(stream, stream.shape[-1:], eps=self.cfg.norm_eps)


def entries(model: AttentionOnlyTransformer) -> tuple[str, ...]:
    """Name the entries that a ledger of this model splits the loss by."""
    cfg = model.cfg
    heads = all_heads(cfg)
    names = [f"{layer}.{head} {kind}" for kind in ("QK", "OV") for layer, head in heads]
    names += ["embedding", *(["positions"] if cfg.positions == "learned" else []), "read-out"]
    names += ["output biases"] if cfg.bias else []
    return (*names, *(f"MLP {layer}" for layer in range(cfg.n_layers) if not cfg.attn_only))


def _between(before: Tensor, after: Tensor, t: Tensor) -> Tensor:
    return (1 - t) * before + t * after


def _affine(x: Tensor, weight: Tensor) -> Tensor:
    """x W + b of [W; b]."""
    return x @ weight[:-1] + weight[-1]
