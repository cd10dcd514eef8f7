"""The keys that a query sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotlens.models.phi import PHIS


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
