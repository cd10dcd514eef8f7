"""How much each head behaves like a named motif, read from its attention patterns.

For a query at position i ≥ 2 of a sequence with tokens t, the attention of a head that goes to

    previous token    position i − 1
    current token     position i
    first token       position 0
    induction         every position j + 1 ≤ i where an earlier token t_j (1 ≤ j < i) equals t_i

averaged over queries; induction over the queries that have such a position. (At i = 1 the previous token *is* the
first one, so it would count for both.) On repeated random tokens the induction score is the usual one: attention
from the second occurrence of a token to what followed the first (Olsson et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.data import repeated_random_tokens
from aotlens.models import AttentionOnlyTransformer, hook_names

if TYPE_CHECKING:
    import pandas as pd

MOTIFS = ("previous_token", "current_token", "first_token", "induction")


@dataclass(frozen=True, kw_only=True, eq=False)
class MotifScores:
    """Mean attention (0 to 1 for softmax) of every head to each motif's targets, `[n_layers, n_heads]`."""

    previous_token: Float64[np.ndarray, "layer head"]
    current_token: Float64[np.ndarray, "layer head"]
    first_token: Float64[np.ndarray, "layer head"]
    induction: Float64[np.ndarray, "layer head"]
    """NaN where no token of the sequences occurs twice."""

    def __getitem__(self, motif: str) -> Float64[np.ndarray, "layer head"]:
        if motif not in MOTIFS:
            raise KeyError(f"{motif!r}: expected one of {', '.join(MOTIFS)}")
        return getattr(self, motif)

    def to_frame(self) -> pd.DataFrame:
        """One row a head: layer, head, and a column a motif."""
        import pandas as pd

        layers, heads = np.indices(self.previous_token.shape)
        columns = {motif: self[motif].ravel() for motif in MOTIFS}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


def motif_scores(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, "batch pos"] | None = None,
    *,
    n_sequences: int = 16,
    half_length: int = 50,
    seed: int = 0,
    batch_size: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> MotifScores:
    """Score every head on `tokens`, or on `n_sequences` of the start token and twice the same random tokens.

    Definitions at the head of this module. `progress(done, total)` is called after each batch of sequences. Memory:
    one layer's patterns for `batch_size` sequences. Raises `ValueError` for sequences shorter than 3 tokens or longer
    than the model's context, and for a model that doesn't read tokens.
    """
    if model.cfg.read_in != "tokens":
        raise ValueError(f"motif scores need a model of tokens; this one reads {model.cfg.read_in}.")
    if tokens is None:
        assert model.cfg.d_vocab is not None
        half_length = min(half_length, (model.cfg.n_ctx - 1) // 2)
        start = 0 if model.tokenizer is None else model.tokenizer.eot_id
        tokens = repeated_random_tokens(model.cfg.d_vocab, n_sequences, half_length, seed, eot_id=start)
    if tokens.shape[1] < 3:
        raise ValueError(f"expected sequences of at least 3 tokens, got {tokens.shape[1]}.")
    totals = {motif: torch.zeros(model.cfg.n_layers, model.cfg.n_heads, dtype=torch.float64) for motif in MOTIFS}
    n_queries, n_repeats = 0, 0
    for start in range(0, len(tokens), batch_size):
        batch = tokens[start : start + batch_size].to(model.device)
        targets = _induction_targets(batch)  # [batch, query, key]
        has_target = targets.any(-1)
        _add_scores(model, batch, targets, totals)
        n_queries += batch.shape[0] * (batch.shape[1] - 2)
        n_repeats += int(has_target.sum())
        if progress is not None:
            progress(start + len(batch), len(tokens))
    divisors = {motif: n_repeats if motif == "induction" else n_queries for motif in MOTIFS}
    means = {
        motif: (total / divisors[motif] if divisors[motif] else torch.full_like(total, torch.nan)).numpy()
        for motif, total in totals.items()
    }
    return MotifScores(**means)


def _induction_targets(tokens: Tensor) -> Tensor:
    """bool `[batch, query, key]`: the key follows an earlier occurrence of the query's token."""
    same = tokens[:, :, None] == tokens[:, None, :]  # [batch, query, key]: equal tokens
    same = same.tril(-1)
    same[:, :, 0] = False  # the start token
    targets = torch.zeros_like(same)
    targets[:, :, 1:] = same[:, :, :-1]
    targets[:, :2] = False
    return targets


@torch.no_grad()
def _add_scores(model: AttentionOnlyTransformer, tokens: Tensor, targets: Tensor, totals: dict[str, Tensor]) -> None:
    """Add each head's summed attention on one batch to `totals`, layer by layer as the model runs."""

    def listen(pattern: Tensor, hook: object) -> None:
        layer = int(str(getattr(hook, "name", "")).split(".")[1])
        wide = pattern if pattern.dtype == torch.float64 else pattern.float()  # MPS has no float64
        sums = {
            "previous_token": wide.diagonal(-1, -2, -1)[..., 1:].sum((0, -1)),
            "current_token": wide.diagonal(0, -2, -1)[..., 2:].sum((0, -1)),
            "first_token": wide[:, :, 2:, 0].sum((0, -1)),
            "induction": (wide * targets[:, None]).sum((0, -2, -1)),
        }
        for motif, value in sums.items():
            totals[motif][layer] += value.cpu().double()

    model.run_with_hooks(tokens, fwd_hooks=[(lambda name: name.endswith(hook_names.PATTERN), listen)])
