"""How often a head, or several together, raise the very token that they read above every other.

Of the OV circuit tokens × logits, `W_E W_V W_O W_U` with norms folded in, row t says what attending to token t adds to
each logit. A token counts as copied if its own logit is the row's maximum. An eigenvalue copying score (`spectrum`)
weighs how strongly tokens are copied; this rate counts them, and means something for any model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from jaxtyping import Int64

from aotlens.circuits.circuit import sum_of_circuits
from aotlens.circuits.qk_ov import ov_circuit
from aotlens.circuits.rows import diagonal_rank
from aotlens.circuits.sides import check_head
from aotlens.conventions import Head
from aotlens.models import AttentionOnlyTransformer


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyingRate:
    """Shares of the vocabulary, 0 to 1. By chance they would be 1 and 5 in `n_tokens`."""

    heads: tuple[Head, ...]
    """(layer, head) of every head in the sum."""
    top1: float | int
    """Tokens whose own logit is the largest of their row."""
    top5: float | int
    """Tokens whose own logit is among the five largest of their row."""
    n_tokens: int
    ranks: Int64[np.ndarray, " token"]
    """How many logits of a token's row are before its own: 0 is the largest. Equal ones come in order of ids."""
    exact: bool
    """Whether the circuit's entries are terms of the model's own logits."""
    relative: str
    """Why not, in a sentence. A row's order is exact all the same where its scale is the only thing missing."""


def copying_rate(model: AttentionOnlyTransformer, layer: int | None, heads: int | Iterable[Any]) -> CopyingRate:
    """The share of tokens t with argmax_u M[t, u] = t, for the OV circuit M `[d_vocab, d_vocab]` of a sum of heads.

    `copying_rate(model, 1, 4)` is of head 1.4, `copying_rate(model, 1, [4, 6])` of the sum of 1.4 and 1.6, as if both
    attended to the same token, and `copying_rate(model, None, [(0, 2), (1, 4)])` of heads of several layers. Two heads
    can copy together what neither copies alone. A head named twice counts once.

    What is left out scales whole rows (a token's own scale, the final norm's) and so leaves a row's order as it is, but
    a sum's heads of different layers read a token at different scales, of which only the token's own is known.

    Exact, streamed: two float32 products [d_vocab, d_head · heads] × [d_head · heads, d_vocab]; memory: see
    `diagonal_rank`. Raises `ValueError` for a head that the model does not have, for no head, and for a model that does
    not read and write tokens.
    """
    cfg = model.cfg
    if (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
        raise ValueError(
            f"copying_rate: expected a model from tokens to tokens, got one from {cfg.read_in} to {cfg.read_out}."
        )
    pairs = _as_pairs(model, layer, heads)
    circuit = sum_of_circuits([ov_circuit(model, *pair) for pair in pairs])
    ranks = diagonal_rank(circuit).numpy()
    return CopyingRate(
        heads=pairs,
        top1=float((ranks < 1).mean()),
        top5=float((ranks < 5).mean()),
        n_tokens=len(ranks),
        ranks=ranks,
        exact=circuit.exact,
        relative=circuit.relative,
    )


def _as_pairs(model: AttentionOnlyTransformer, layer: int | None, heads: int | Iterable[Any]) -> tuple[Head, ...]:
    listed: list[Any] = list(heads) if isinstance(heads, Iterable) else [heads]
    if layer is None:
        if len(listed) == 2 and not any(isinstance(item, Iterable) for item in listed):
            listed = [tuple(listed)]  # one pair
    else:
        listed = [(layer, head) for head in listed]
    pairs = []
    for pair in listed:
        try:
            one, two = (index(item) for item in pair)
        except (TypeError, ValueError):
            expected = "(layer, head) pairs with layer=None" if layer is None else "heads of one layer as whole numbers"
            raise ValueError(f"copying_rate: expected {expected}, got {pair!r}.") from None
        check_head(model, (one, two))
        pairs.append((one, two))
    if not pairs:
        raise ValueError("copying_rate: expected at least one head, got none.")
    return tuple(dict.fromkeys(pairs))
