"""Errors on documents that were not trained on: of every FFN, closed forms, and the nearest training inputs.

    error = Σ‖y − ŷ‖² / Σ‖y − ȳ‖²        over held-out tokens, ȳ the mean over training tokens (which scores 1)

Sums are kept by kind of token and by block (`blocks_of`), so that errors of a kind and intervals can be had afterwards.
Time: one pass of the model, and of the FFNs.

**Nearest neighbours** estimate how well any function of the input could do: ŷ is the mean of y over the k training
tokens whose x is nearest (Euclidean, in the layer's normalised input). As the text grows and k with it, its error tends
to E[Var(y|x)] / Var(y), the floor of every function of x alone; before that it lies above, so with the wide FFN's it
bounds the floor from above. k is the best for each head on validation text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.data.windows import spread
from aotlens.distill.heads.stream import CLASSES, Piece, Texts, classes_of, windows_of_piece
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


_KS = (1, 2, 4, 8, 16, 32, 64, 128)
_VALIDATION, _HELD_OUT = 2048, 4096  # queries: each is compared with the whole bank
_ROWS = 512


def n_queries(training: Training, held_out: Int64[Tensor, "held_out pos"]) -> int:
    """Count the queries that `step` counts in all."""
    queries = (_spread(training.validation_windows, _VALIDATION), _spread(held_out, _HELD_OUT))
    return len(training.source.layers) * sum(windows.numel() for windows in queries)


@torch.no_grad()
def nearest_neighbour_errors(
    training: Training, held_out: Int64[Tensor, "held_out pos"], step: Callable[[int], None] | None = None
) -> tuple[Float64[Tensor, " head"], Int64[Tensor, " head"]]:
    """Return (error of every head on some held-out windows, its k). `step(queries)` is called as they are answered."""
    source, settings = training.source, training.settings
    length = training.windows.shape[1]
    fits = settings.buffer_bytes // 2 // source.bytes_per_token()
    n_bank = max(1, min(settings.neighbours, fits) // length)
    bank, _ = windows_of_piece(training.windows, min(n_bank, len(training.windows)), settings.text_seed, 0)
    queries = {
        "validation": _spread(training.validation_windows, _VALIDATION),
        "held out": _spread(held_out, _HELD_OUT),
    }
    bank_raw = source.raw(bank)
    raw = {name: source.raw(windows) for name, windows in queries.items()}
    mean = training.moments.mean()
    errors, best_ks = [], []
    for layer, heads in enumerate(source.layers.values()):
        bank_x, bank_z = bank_raw[layer]
        bank_t = training.scaling.targets(heads, bank_z)
        ks = [k for k in _KS if k <= len(bank_x)]
        by_name = {}
        for name, layers in raw.items():
            x, z = layers[layer]
            by_name[name] = _errors(x, training.scaling.targets(heads, z), bank_x, bank_t, ks, mean[heads])
            if step is not None:
                step(len(x))
        best = by_name["validation"].argmin(1)
        errors.append(by_name["held out"].gather(1, best[:, None])[:, 0])
        best_ks.append(torch.tensor(ks)[best])
    return torch.cat(errors), torch.cat(best_ks)


def _spread(windows: Tensor, n_tokens: int) -> Tensor:
    return windows[spread(len(windows), max(1, n_tokens // windows.shape[1]))]


def _errors(
    x: Tensor, t: Tensor, bank_x: Tensor, bank_t: Tensor, ks: list[int], mean: Tensor
) -> Float64[Tensor, "head k"]:
    """x `[queries, d_model]`, t `[head, out, queries]`, the bank's alike; ratio to the training mean's error."""
    n_heads, n_out, n_bank = bank_t.shape
    values = bank_t.reshape(-1, n_bank).T.contiguous()  # [bank, head · out]
    norms = bank_x.square().sum(1)
    counts = torch.arange(1, ks[-1] + 1, dtype=x.dtype, device=x.device)[None, :, None]
    total = torch.zeros(n_heads, len(ks), dtype=torch.float64, device=x.device)
    for start in range(0, len(x), _ROWS):
        distances = torch.addmm(norms[None], x[start : start + _ROWS], bank_x.T, alpha=-2)
        nearest = distances.topk(ks[-1], largest=False).indices  # [rows, k]
        means = values[nearest].cumsum(1).div_(counts)[:, [k - 1 for k in ks]]  # [rows, k, head · out]
        actual = t[:, :, start : start + _ROWS].permute(2, 0, 1).reshape(len(means), 1, -1)
        squared = (means - actual).square().unflatten(2, (n_heads, n_out)).sum(3)
        total += squared.double().sum(0).T
    baseline = (t.double() - mean[:, :, None].to(t.device)).square().sum((1, 2))
    return (total / baseline.clamp(min=1e-30)[:, None]).cpu()
