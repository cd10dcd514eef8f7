"""Where each head attends on some text, and how much its pattern depends on that text.

For queries at position i ≥ 2 (as `aotlens.heads.motif_scores`), mean attention to the first token, the previous, the
next (for models that see it), the query itself, separators (special tokens after the first position), and to what
followed an earlier occurrence of the query's token (induction; over queries that have one).

How much a pattern varies with the input, with A the pattern `[query, key]` of one text and Ā its mean over texts:

    variation = Σ (A − Ā)² / Σ A²        0: the same pattern on every text;  towards 1: nothing in common
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Head
from aotlens.distill.heads.classes import CLASSES, classes_of
from aotlens.distill.heads.reader import HeadReader

if TYPE_CHECKING:
    import pandas as pd

TARGETS = ("first token", "separator", "previous", "next", "self", "induction")


@dataclass(frozen=True, kw_only=True, eq=False)
class Attending:
    """One row a head, in the order of `heads`."""

    heads: tuple[Head, ...]
    attention: Float64[np.ndarray, "head target"]
    """Mean attention to each of `TARGETS`; 0 where the text has no such key."""
    variation: Float64[np.ndarray, " head"]

    @property
    def label(self) -> tuple[str, ...]:
        """The target that each head attends to most, `mixed` where none takes 0.4."""
        best = self.attention.argmax(1)
        return tuple(
            TARGETS[k] if row[k] >= 0.4 else "mixed" for row, k in zip(self.attention, best.tolist(), strict=True)
        )

    def to_frame(self) -> pd.DataFrame:
        """layer, head, a column a target, variation, label."""
        import pandas as pd

        frame = pd.DataFrame({"layer": [layer for layer, _ in self.heads], "head": [head for _, head in self.heads]})
        for k, name in enumerate(TARGETS):
            frame[name] = self.attention[:, k]
        return frame.assign(variation=self.variation, label=self.label)


@torch.no_grad()
def attending(
    reader: HeadReader, heads: tuple[Head, ...], windows: Int64[Tensor, "windows pos"], *, batch_size: int = 4
) -> Attending:
    """Memory: a pattern `[heads, pos, pos]` in float32 a layer, and a batch of one layer's.

    Raises `ValueError` for fewer than two windows, and for a bridge whose attention computes no patterns.
    """
    if len(windows) < 2:
        raise ValueError("how a pattern varies needs at least 2 windows of text, got 1; give more held_out_tokens.")
    length = windows.shape[1]
    separators = classes_of(reader, windows) == CLASSES.index("separator")
    sums = torch.zeros(reader.n_layers, reader.n_heads, len(TARGETS), dtype=torch.float64)
    squares = torch.zeros(reader.n_layers, reader.n_heads, dtype=torch.float64)
    layers = sorted({layer for layer, _ in heads})
    mean = {layer: torch.zeros(reader.n_heads, length, length, device=reader.device) for layer in layers}
    n_repeats = 0
    for start in range(0, len(windows), batch_size):
        tokens = windows[start : start + batch_size].to(reader.device)
        follows = _after_earlier(tokens)
        n_repeats += int(follows.any(-1).sum())
        keys = separators[start : start + batch_size].to(reader.device).float()

        def listen(pattern: Tensor, hook: object, follows: Tensor = follows, keys: Tensor = keys) -> None:
            layer = int(str(getattr(hook, "name", "")).split(".")[1])
            A = pattern.float()
            mean[layer] += A.sum(0)
            squares[layer] += A.square().sum((0, 2, 3)).double().cpu()
            found = (
                A[:, :, 2:, 0].sum((0, -1)),
                torch.einsum("bhqk,bk->h", A[:, :, 2:], keys),
                A.diagonal(-1, -2, -1)[..., 1:].sum((0, -1)),
                A.diagonal(1, -2, -1)[..., 2:].sum((0, -1)),
                A.diagonal(0, -2, -1)[..., 2:].sum((0, -1)),
                (A * follows[:, None]).sum((0, -2, -1)),
            )
            sums[layer] += torch.stack(found, -1).double().cpu()

        reader.run(tokens, [(reader.pattern_name(layer), listen) for layer in layers])
    n_queries = len(windows) * max(length - 2, 1)
    counts = torch.tensor([n_queries] * 5 + [max(n_repeats, 1)], dtype=torch.float64)
    explained = torch.zeros_like(squares)
    for layer, total in mean.items():
        explained[layer] = total.double().square().sum((1, 2)).cpu() / len(windows)
    blind = [layer for layer in layers if not bool((squares[layer] > 0).any())]
    if blind:
        raise ValueError(
            f"layer {blind[0]} shows no attention pattern at {reader.pattern_name(blind[0])}; load the Hugging Face "
            "model with attn_implementation='eager'."
        )
    shared = explained / squares.clamp(min=1e-30)
    variation = (1 - shared) * (len(windows) / (len(windows) - 1))  # Ā is from the same texts
    rows = tuple(zip(*heads, strict=True))
    return Attending(
        heads=heads, attention=(sums / counts)[rows].numpy(), variation=variation[rows].clamp(0, 1).numpy()
    )


def _after_earlier(tokens: Tensor) -> Tensor:
    """bool `[batch, query, key]`: key j + 1 ≤ i where 1 ≤ j < i and token j is the query's, for i ≥ 2."""
    n = tokens.shape[1]
    same = tokens[:, :, None] == tokens[:, None, :]
    earlier = torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril(-1)
    earlier[:2], earlier[:, 0] = False, False
    return torch.nn.functional.pad((same & earlier)[:, :, :-1], (1, 0))
