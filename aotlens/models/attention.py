"""The attention operators: MHSA and MSSA, with any φ (`aotlens.models.phi`).

With x the layer's (normalised) input `[batch, pos, d_model]`, head k computes

    scores = (x W_Q + b_Q)(x W_K + b_K)ᵀ · scale     [query, key], nats; positions: `aotlens.models.positions`
    pattern = φ(scores)                               over keys, after masking
    result = pattern (x W_V + b_V) W_O                [pos, d_model]

and the layer writes Σ_k result_k + b_O. MHSA has W_Q, W_K, W_V of its own (aot Eq. 5); MSSA has
W_Q = W_K = W_V = U_k (aot Eq. 4), with W_O learned or tied to η·U_kᵀ. Heads of a group share W_K and W_V (grouped
keys): W_K and W_V read as those of each head, and so do the hooks. The papers write tokens as columns; here they are
rows (`aotlens.conventions`).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models.config import ModelConfig
from aotlens.models.hook_points import HookPoint
from aotlens.models.norms import HeadNorm
from aotlens.models.phi import PHIS, apply_phi
from aotlens.models.positions import PositionTerms


class Attention(nn.Module):
    """One attention layer of any kind; `W_Q W_K W_V W_O` and biases read the same whatever the kind.

    Hooks: hook_q, hook_k, hook_v, hook_z `[batch, pos, head, d_head]`, with rotary positions hook_rot_q and hook_rot_k,
    which are rotated; hook_attn_scores and hook_pattern
    `[batch, head, query, key]`; hook_result `[batch, pos, head, d_model]`. While nobody listens to scores or
    patterns, softmax attention runs through `scaled_dot_product_attention`; results are computed for a
    listener only.
    """

    # Where a matrix or bias does not exist (fixed patterns need no query or key; bias=False), it is None.
    W_Q: Tensor | None  # [head, d_model, d_head]
    W_K: Tensor | None
    W_V: Tensor
    W_O: Tensor  # [head, d_head, d_model]
    b_Q: Tensor | None  # [head, d_head]
    b_K: Tensor | None
    b_V: Tensor | None
    b_O: Tensor | None  # [d_model]
    fixed_pattern: Tensor  # [head, n_ctx, n_ctx]

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        shape = (cfg.n_heads, cfg.n_ctx, cfg.n_ctx)
        if cfg.fixed_pattern == "learned":
            self.fixed_pattern = nn.Parameter(torch.empty(shape))
        elif cfg.fixed_pattern is not None:
            self.register_buffer("fixed_pattern", torch.empty(shape))
        self.register_parameter("b_O", nn.Parameter(torch.empty(cfg.d_model)) if cfg.bias else None)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()
        if cfg.qk_norm is not None:
            self.q_norm, self.k_norm = HeadNorm(cfg, cfg.n_heads), HeadNorm(cfg, cfg.n_kv_heads or cfg.n_heads)
        if cfg.position_kind.rotates:
            self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()

    def project(self, x: Tensor, x_qk: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Return queries, keys (None for fixed patterns) and values, `[batch, pos, head, d_head]` each."""
        raise NotImplementedError

    def _unshared(self, q: Tensor | None, k: Tensor | None, v: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Return MSSA's one tensor as copies if a hook listens: an edit of one would reach all."""
        has_query_key_hooks = self.hook_q.has_hooks() or self.hook_k.has_hooks()
        if v is k and (has_query_key_hooks or self.hook_v.has_hooks()):
            v = v.clone()
        if k is not None and k is q and has_query_key_hooks:
            k = k.clone()
        return q, k, v

    def clipped(self, *parts: Tensor | None) -> tuple[Any, ...]:
        """Return queries, keys and values as the model clips them."""
        c = self.cfg.clip_qkv
        return parts if c is None else tuple(None if part is None else part.clamp(-c, c) for part in parts)

    def placed(self, part: Tensor, which: Literal["q", "k"], order: PositionTerms, start: int = 0) -> Tensor:
        """Return queries or keys `[row, pos, head, d_head]` from position `start` on, as scores read them: normalised
        and rotated."""
        if self.cfg.qk_norm is not None:
            part = (self.q_norm if which == "q" else self.k_norm)(part)
        return order.rotated(part, start)

    def _needs_pattern(self) -> bool:
        return not uses_sdpa(self.cfg) or self.hook_attn_scores.has_hooks() or self.hook_pattern.has_hooks()

    def _rotated(self, q: Tensor, k: Tensor, order: PositionTerms) -> tuple[Tensor, Tensor]:
        if order.rotation is None:
            return self.placed(q, "q", order), self.placed(k, "k", order)
        same = q is k and not (self.hook_rot_q.has_hooks() or self.hook_rot_k.has_hooks())
        q = self.hook_rot_q(self.placed(q, "q", order))
        return q, q if same else self.hook_rot_k(self.placed(k, "k", order))

    def forward(self, x: Tensor, order: PositionTerms, visible: Tensor | None, causal_only: bool) -> Tensor:
        """Return the layer's output `[batch, pos, d_model]`.

        `order` is what positions do to queries, keys and scores; `visible` is `visible_keys`'s, and `causal_only` says
        that it is the plain causal mask.
        """
        q, k, v = self._unshared(*self.clipped(*self.project(x, x if order.added is None else x + order.added)))
        v = self.hook_v(v).transpose(1, 2)  # [batch, head, pos, d_head]
        if q is None or k is None:
            z = self._fixed(x, visible) @ v
        else:
            q, k = self._rotated(self.hook_q(q), self.hook_k(k), order)
            q, k = q.transpose(1, 2), k.transpose(1, 2)
            if self._needs_pattern():
                scores = scores_of(self.cfg, q, k, order)
                if visible is not None:
                    scores = scores.masked_fill_(~visible, float("-inf"))
                scores = self.hook_attn_scores(scores)
                pattern = self.hook_pattern(apply_phi(self.cfg, scores, visible))
                z = pattern @ v
            else:
                z = attended(self.cfg, q, k, v, order, visible, causal_only)
        z = self.hook_z(z.transpose(1, 2))  # [batch, pos, head, d_head]
        if self.hook_result.has_hooks():
            out = self.hook_result(torch.einsum("bphk,hkd->bphd", z, self.W_O)).sum(2)
            return out if self.b_O is None else out + self.b_O
        return F.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)

    def _fixed(self, x: Tensor, visible: Tensor | None) -> Tensor:
        n_pos = x.shape[1]
        pattern = self.fixed_pattern[None, :, :n_pos, :n_pos]
        if visible is not None:
            pattern = pattern * visible
        pattern = pattern.expand(x.shape[0], -1, -1, -1)
        # A view of the weights: an in-place hook would edit the model itself.
        return self.hook_pattern(pattern.clone()) if self.hook_pattern.has_hooks() else pattern


def scores_of(cfg: ModelConfig, q: Tensor, k: Tensor, order: PositionTerms, start: int = 0) -> Tensor:
    """Return scores `[row, head, query, key]` before masking, in nats, of rotated queries (from position `start` on)
    and keys, `[row, head, pos, d_head]`."""
    scores = capped((q * cfg.score_scale) @ k.transpose(-1, -2), cfg.score_cap)
    return scores if order.bias is None else scores + order.bias[:, :, start:]


def capped(values: Tensor, cap: float | None) -> Tensor:
    """Return c · tanh(values / c) of a soft cap c: their order stays."""
    return values if cap is None else cap * torch.tanh(values / cap)


def uses_sdpa(cfg: ModelConfig) -> bool:
    """Return whether attention may run through `scaled_dot_product_attention`: softmax of scores that are not
    capped."""
    return PHIS[cfg.phi].sdpa and cfg.score_cap is None


def attended(
    cfg: ModelConfig,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: PositionTerms,
    visible: Tensor | None,
    causal_only: bool = False,
    start: int = 0,
) -> Tensor:
    """Return z `[row, head, query, d_head]` of softmax attention through `scaled_dot_product_attention`, as
    `scores_of`."""
    mask = None if causal_only else visible
    if order.bias is not None:
        mask = order.bias[:, :, start:]
        if visible is not None:
            mask = mask.masked_fill(~visible, float("-inf"))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None and causal_only, scale=cfg.score_scale
    )


class MultiHeadSelfAttention(Attention):
    """MHSA (aot Eq. 5): separate W_Q, W_K, W_V per head. A fixed pattern has W_V only."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__(cfg)
        for name in ("W_Q", "W_K", "W_V"):
            exists = name == "W_V" or cfg.has_query_key
            self._make(name, _matrix(cfg) if exists else None)
            self._make(f"b_{name[-1]}", _bias(cfg) if exists and cfg.has_qkv_bias else None)
        self.W_O = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_head, cfg.d_model))

    def _make(self, name: str, parameter: nn.Parameter | None) -> None:
        self.register_parameter(name, parameter)

    def project(self, x: Tensor, x_qk: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        v = _per_head(x, self.W_V, self.b_V)
        if self.W_Q is None or self.W_K is None:
            return None, None, v
        return _per_head(x_qk, self.W_Q, self.b_Q), _per_head(x_qk, self.W_K, self.b_K), v


class GroupedSelfAttention(MultiHeadSelfAttention):
    """MHSA whose heads share keys and values in groups (Ainslie et al. 2023): `_W_K`, `_W_V [group, d_model, d_head]`,
    as TransformerLens stores them; W_K and W_V show those of each head, in runs of n_heads ÷ n_kv_heads."""

    _W_K: Tensor | None  # [group, d_model, d_head]
    _W_V: Tensor
    _b_K: Tensor | None  # [group, d_head]
    _b_V: Tensor | None

    def _make(self, name: str, parameter: nn.Parameter | None) -> None:
        grouped = name[-1] != "Q"
        if grouped and parameter is not None:
            parameter = nn.Parameter(parameter.detach()[: self.cfg.n_kv_heads].clone())
        super()._make(f"_{name}" if grouped else name, parameter)

    def _of_heads(self, grouped: Tensor | None, dim: int = 0) -> Tensor | None:
        n_sharing = self.cfg.n_heads // (self.cfg.n_kv_heads or self.cfg.n_heads)
        return None if grouped is None else grouped.repeat_interleave(n_sharing, dim)

    W_K = property(lambda self: self._of_heads(self._W_K))  # type: ignore[assignment]
    W_V = property(lambda self: self._of_heads(self._W_V))  # type: ignore[assignment]
    b_K = property(lambda self: self._of_heads(self._b_K))  # type: ignore[assignment]
    b_V = property(lambda self: self._of_heads(self._b_V))  # type: ignore[assignment]

    def project(self, x: Tensor, x_qk: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        v = self._of_heads(_per_head(x, self._W_V, self._b_V), 2)
        assert v is not None
        if self.W_Q is None or self._W_K is None:
            return None, None, v
        k = self._of_heads(_per_head(x_qk, self._W_K, self._b_K), 2)
        return _per_head(x_qk, self.W_Q, self.b_Q), k, v


class SubspaceSelfAttention(Attention):
    """MSSA (aot Eq. 4): one U_k for query, key and value (one shared bias), and a learned W_O."""

    U: Tensor  # [head, d_model, d_head]
    b: Tensor | None  # [head, d_head]

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__(cfg)
        self.U = _matrix(cfg)
        self.register_parameter("b", _bias(cfg) if cfg.has_qkv_bias else None)
        self._make_output()

    def _make_output(self) -> None:
        self.W_O = nn.Parameter(torch.empty(self.cfg.n_heads, self.cfg.d_head, self.cfg.d_model))

    W_Q = W_K = W_V = property(lambda self: self.U)  # type: ignore[assignment]
    b_V = property(lambda self: self.b)  # type: ignore[assignment]
    b_Q = b_K = property(lambda self: self.b if self.cfg.has_query_key else None)  # type: ignore[assignment]

    def project(self, x: Tensor, x_qk: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        projected = _per_head(x, self.U, self.b)
        if not self.cfg.has_query_key:
            return None, None, projected
        qk = projected if x_qk is x else _per_head(x_qk, self.U, self.b)
        return qk, qk, projected


class TiedSubspaceSelfAttention(SubspaceSelfAttention):
    """MSSA with W_O = η·U_kᵀ (aot Eqs. 3 and 4): no output matrix of its own."""

    def _make_output(self) -> None:
        """The output is U's transpose: nothing to store."""

    W_O = property(lambda self: self.cfg.step_size * self.U.transpose(-1, -2))  # type: ignore[assignment]


def make_attention(cfg: ModelConfig) -> Attention:
    """Return the attention layer that `cfg` describes."""
    if cfg.attention == "mhsa":
        return MultiHeadSelfAttention(cfg) if cfg.n_kv_heads is None else GroupedSelfAttention(cfg)
    return TiedSubspaceSelfAttention(cfg) if cfg.tied_output else SubspaceSelfAttention(cfg)


def _matrix(cfg: ModelConfig) -> nn.Parameter:
    return nn.Parameter(torch.empty(cfg.n_heads, cfg.d_model, cfg.d_head))


def _bias(cfg: ModelConfig) -> nn.Parameter:
    return nn.Parameter(torch.empty(cfg.n_heads, cfg.d_head))


def _per_head(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W_h + b_h for every head, as one matrix product: `[batch, pos, head, d_head]`."""
    heads, _, d_head = weight.shape
    # [d_model, head · d_head]: whole rows are copied, which costs a fifth of gathering its transpose.
    flat = weight.transpose(0, 1).flatten(1)
    return F.linear(x, flat.T, None if bias is None else bias.flatten()).unflatten(-1, (heads, d_head))
