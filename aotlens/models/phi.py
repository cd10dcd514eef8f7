"""φ: what turns a query's scores into its attention, and the masks of the keys that a query sees. `PHIS` is the one
table of them; an entry is all that a φ needs.

In rows, over keys, after masking (aot's and nonlinearity's φ, in columns, is the transpose: `aotlens.conventions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor


@runtime_checkable
class PhiSettings(Protocol):
    """The fields of a `ModelConfig` that a φ reads."""

    @property
    def phi(self) -> str: ...
    @property
    def threshold(self) -> float | None: ...
    @property
    def fixed_pattern(self) -> str | None: ...
    @property
    def positions(self) -> str | None: ...


def _takes_nothing(cfg: PhiSettings) -> None:
    """The check of a φ without parameters of its own."""


@dataclass(frozen=True, kw_only=True)
class Phi:
    """One φ: its function, and what the rest of the library has to know of it."""

    pattern: Callable[[PhiSettings, Tensor, Tensor | None], Tensor] | None
    """`(cfg, scores, visible)` → the pattern, both `[batch, head, query, key]`: scores are −∞ where hidden, `visible`
    is bool and broadcasts to them (None: all are visible), and hidden keys get 0. None where the pattern is a tensor of
    the model: it then needs no queries and keys."""
    rows_sum_to_one: bool
    """Whether a query's attention over all keys is 1."""
    normalises: bool
    """Whether a constant added to a query's scores changes nothing, so that one key alone gets a fixed share. Over no
    key at all it is undefined."""
    ranks_as_softmax: bool
    """Whether skip-trigrams, ranked by a softmax's attention, can be read of it: it is one, or it thresholds one."""
    sdpa: bool = False
    """Whether it is the softmax that `scaled_dot_product_attention` and TransformerLens compute."""
    parameters: tuple[str, ...] = ()
    """Fields of `ModelConfig` that belong to it: with another φ that does not have them they stay None."""
    check: Callable[[PhiSettings], None] = _takes_nothing
    """Raises `ValueError` for parameters that do not fit."""
    untrainable: str | None = None
    """The reason why a model with it cannot be trained, as a clause, or None."""

    @property
    def needs_query_key(self) -> bool:
        """Whether the pattern depends on queries and keys."""
        return self.pattern is not None


def apply_phi(cfg: PhiSettings, scores: Tensor, visible: Tensor | None) -> Tensor:
    """Return the pattern that `cfg`'s φ makes of `scores [batch, head, query, key]`, −∞ where hidden. Hidden keys get
    0.

    Raises `ValueError` for a φ whose pattern is not made of scores.
    """
    pattern = PHIS[cfg.phi].pattern
    if pattern is None:
        raise ValueError(f"phi={cfg.phi!r} makes no pattern of scores; read the model's fixed_pattern.")
    return pattern(cfg, scores, visible)


def _softmax(cfg: PhiSettings, scores: Tensor, visible: Tensor | None) -> Tensor:
    return F.softmax(scores, dim=-1)


def _thresholded_softmax(cfg: PhiSettings, scores: Tensor, visible: Tensor | None) -> Tensor:
    """τ·1{softmax > τ} (aot, Theorem 3.1)."""
    assert cfg.threshold is not None
    softmax = F.softmax(scores, dim=-1)
    return cfg.threshold * (softmax > cfg.threshold).to(softmax.dtype)


def _linear(cfg: PhiSettings, scores: Tensor, visible: Tensor | None) -> Tensor:
    """Scores ÷ the number of visible keys."""
    if visible is None:
        return scores / scores.shape[-1]
    return torch.where(visible, scores, 0.0) / visible.sum(-1, keepdim=True).clamp(min=1)


def _check_threshold(cfg: PhiSettings) -> None:
    if cfg.threshold is None or not 0 < cfg.threshold < 1:
        raise ValueError(f"phi={cfg.phi!r} needs 0 < threshold < 1, got {cfg.threshold}.")


def _check_fixed(cfg: PhiSettings) -> None:
    if cfg.fixed_pattern is None:
        raise ValueError(f"phi={cfg.phi!r} needs fixed_pattern 'given', 'random' or 'learned', got None.")
    if cfg.positions == "qk":
        raise ValueError(f"positions='qk' are added to queries and keys, and phi={cfg.phi!r} has neither.")


PHIS: dict[str, Phi] = {
    "softmax": Phi(pattern=_softmax, rows_sum_to_one=True, normalises=True, ranks_as_softmax=True, sdpa=True),
    "thresholded_softmax": Phi(
        pattern=_thresholded_softmax,
        rows_sum_to_one=False,
        normalises=True,
        ranks_as_softmax=True,
        parameters=("threshold",),
        check=_check_threshold,
        untrainable="it is a step, without a gradient to its scores, so W_Q and W_K would never change; train with "
        "phi='softmax' and threshold the trained model",
    ),
    "linear": Phi(pattern=_linear, rows_sum_to_one=False, normalises=False, ranks_as_softmax=False),
    "fixed": Phi(
        pattern=None,
        rows_sum_to_one=False,
        normalises=False,
        ranks_as_softmax=False,
        parameters=("fixed_pattern",),
        check=_check_fixed,
    ),
}


def checked_mask(mask: Any, n_heads: int, n_ctx: int, needs_key: bool) -> tuple[tuple[tuple[bool, ...], ...], ...]:
    """Return a mask as nested tuples of bools, so that configurations compare, hash and serialise. Raises
    `ValueError`."""
    rows = mask.tolist() if hasattr(mask, "tolist") else mask
    expected = f"attn_mask: expected [1 or {n_heads} heads, {n_ctx} queries, {n_ctx} keys]"
    if not isinstance(rows, Sequence) or len(rows) not in (1, n_heads):
        got = f"{len(rows)} heads" if isinstance(rows, Sequence) else type(rows).__name__
        raise ValueError(f"{expected}, got {got}.")
    for head in rows:
        if not isinstance(head, Sequence) or not all(isinstance(row, Sequence) for row in head):
            raise ValueError(f"{expected}, got heads that are not tables.")
        if len(head) != n_ctx or any(len(row) != n_ctx for row in head):
            widths = sorted({len(row) for row in head})
            raise ValueError(f"{expected}, got a head of {len(head)} queries with {widths} keys.")
        strange = next((seen for row in head for seen in row if seen not in (0, 1)), None)
        if strange is not None:
            raise ValueError(f"{expected}, True where a query sees a key, got an entry {strange!r}.")
    if needs_key:
        for h, head in enumerate(rows):
            for query, row in enumerate(head):
                if not any(row):
                    raise ValueError(
                        f"attn_mask hides every key from query {query} of head {h}; a softmax over nothing "
                        "is undefined. Let it see at least itself."
                    )
    return tuple(tuple(tuple(bool(seen) for seen in row) for row in head) for head in rows)


def visible_keys(
    cfg: Any,
    mask: Tensor | None,
    n_pos: int,
    attention_mask: Tensor | None,
    device: torch.device,
    window: int | None = None,
) -> Tensor | None:
    """Return the keys that a query sees: bool `[1 or batch, 1 or n_heads, query, key]`, or None where it sees all.

    `mask` is the configuration's `[n_heads or 1, n_ctx, n_ctx]`: its top-left block replaces the causal mask.
    With a `window`, of a causal model, it sees itself and the window − 1 positions before it.
    `attention_mask [batch, pos]` hides padding as keys. A padded query sees itself, so that no row is empty.

    Raises `ValueError` where `mask` leaves a query without a key that a softmax needs.
    """
    visible: Tensor | None = None
    if mask is not None:
        visible = mask[None, :, :n_pos, :n_pos]
    elif cfg.causal:
        visible = torch.ones(n_pos, n_pos, dtype=torch.bool, device=device).tril()[None, None]
        if window is not None:
            visible = visible.triu(1 - window)
    if attention_mask is not None:
        real = attention_mask[:, None, None, :]
        itself = torch.eye(n_pos, dtype=torch.bool, device=device) & ~attention_mask[:, None, :, None]
        visible = (real if visible is None else visible & real) | itself
    if mask is not None and PHIS[cfg.phi].normalises:
        assert visible is not None
        if not visible.is_meta and not visible.any(-1).all():
            raise ValueError(
                f"attn_mask leaves a query without a key among these {n_pos} positions; "
                f"give {cfg.n_ctx} unpadded positions or another mask."
            )
    return visible


def require_right_padding(attention_mask: Tensor) -> None:
    if (attention_mask[:, 1:] & ~attention_mask[:, :-1]).any():
        raise ValueError(
            "attention_mask: expected padding on the right only, since this model's mask, fixed pattern or read-out "
            "names positions by number; got padding before a real position."
        )
