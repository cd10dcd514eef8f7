"""The errors that are reported: every FFN, the linear map and the position's mean on documents not trained on.

    error = Σ‖y − ŷ‖² / Σ‖y − ȳ‖²        over held-out tokens, ȳ the mean over training tokens (which scores 1)

Sums are kept by kind of token and by block (`blocks_of`), so that errors of a kind and intervals can be had afterwards.
Time: one pass of the model, and of the FFNs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.distill.heads.classes import CLASSES, classes_of
from aotlens.distill.heads.stream import Piece
from aotlens.distill.heads.texts import Texts
from aotlens.distill.heads.training import Training
from aotlens.statistics import LEAST_CLUSTERS

N_BLOCKS = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Sums:
    """Σ‖y − ŷ‖² in the units of the target, float64 on the CPU."""

    by_class: list[Float64[Tensor, "_problem class"]]
    """The sums by kind of token, one tensor a batch of FFNs."""
    by_block: list[Float64[Tensor, "_problem block"]]
    linear_by_class: Float64[Tensor, "head class"]
    linear_by_block: Float64[Tensor, "head block"]
    position_by_class: Float64[Tensor, "head class"]
    mean_by_class: Float64[Tensor, "head class"]
    """Σ‖y − ȳ‖²: what errors are divided by."""
    mean_by_block: Float64[Tensor, "head block"]
    blocks_are_documents: bool
    counts: Int64[Tensor, " class"]


def blocks_of(
    n_windows: int, document_of: Int64[np.ndarray, " window"] | None
) -> tuple[Int64[np.ndarray, " window"], bool]:
    """Return the block of each window, and whether blocks are documents: they are where an interval can be over
    documents (`LEAST_CLUSTERS`), otherwise stretches of consecutive windows, `N_BLOCKS` where there are as many."""
    if document_of is not None:
        blocks = np.unique(document_of, return_inverse=True)[1]
        if blocks.max() + 1 >= LEAST_CLUSTERS:
            return blocks, True
    return np.arange(n_windows) * min(N_BLOCKS, n_windows) // n_windows, False


@torch.no_grad()
def held_out_sums(training: Training, texts: Texts, step: Any = None) -> Sums:
    """Sum the errors of all problems on `texts.held_out`. `step(tokens)` is called after each piece."""
    windows = texts.held_out
    block_of, blocks_are_documents = blocks_of(len(windows), texts.document_of)
    source, scaling = training.source, training.scaling
    device, dtype = source.reader.device, source.dtype
    mean = training.moments.mean().to(dtype)
    positions = training.moments.position_means().to(dtype)
    linear = training.moments.linear().to(dtype)
    kinds = classes_of(source.reader, windows)
    n_blocks = int(block_of.max()) + 1
    blocks = torch.from_numpy(block_of)[:, None].expand(windows.shape)
    rows = max(1, 4096 // windows.shape[1])
    totals: dict[str, Any] = {}
    for start in range(0, len(windows), rows):
        piece = source.piece(windows[start : start + rows], scaling)
        member = [
            torch.nn.functional.one_hot(of[start : start + rows].flatten(), size).to(device, torch.float64)
            for of, size in ((kinds, len(CLASSES)), (blocks, n_blocks))
        ]
        squared = {
            **{f"batch {i}": batch.squared_errors(piece.x, piece.t) for i, batch in enumerate(training.batches)},
            "linear": _of_linear(training, linear, piece),
            "position": (piece.t - positions[:, :, piece.positions]).square().sum(1),
            "mean": (piece.t - mean[:, :, None]).square().sum(1),
        }
        for name, errors in squared.items():
            sums = [(errors.double() @ one_hot).cpu() for one_hot in member]
            totals[name] = [old + new for old, new in zip(totals.get(name, (0, 0)), sums, strict=True)]
        if step is not None:
            step(piece.n_tokens)
    units = scaling.scale.double().cpu().square()

    def of(name: str, which: int, places: Tensor | None = None) -> Tensor:
        return totals[name][which] * (units if places is None else units[places])[:, None]

    by_batch = [batch.places.cpu() for batch in training.batches]
    return Sums(
        by_class=[of(f"batch {i}", 0, places) for i, places in enumerate(by_batch)],
        by_block=[of(f"batch {i}", 1, places) for i, places in enumerate(by_batch)],
        linear_by_class=of("linear", 0),
        linear_by_block=of("linear", 1),
        position_by_class=of("position", 0),
        mean_by_class=of("mean", 0),
        mean_by_block=of("mean", 1),
        blocks_are_documents=blocks_are_documents,
        counts=torch.bincount(kinds.flatten(), minlength=len(CLASSES)),
    )


def _of_linear(training: Training, linear: Tensor, piece: Piece) -> Tensor:
    """‖B x̃ − t‖² `[head, tokens]`."""
    parts = []
    for layer, heads in enumerate(training.moments.heads_of_layer):
        parts.append((linear[heads] @ piece.x[layer] - piece.t[heads]).square().sum(1))
    return torch.cat(parts)
