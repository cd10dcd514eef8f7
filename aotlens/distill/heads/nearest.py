"""The prediction of the nearest training inputs: an estimate of how well any function of the input could do.

ŷ is the mean of y over the k training tokens whose x is nearest (Euclidean, in the layer's normalised input). As the
text grows and k with it, its error tends to E[Var(y|x)] / Var(y), the floor of every function of x alone; before that
it lies above, so with the wide FFN's it bounds the floor from above. k is the best for each head on validation text.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.data.windows import spread
from aotlens.distill.heads.stream import windows_of_piece
from aotlens.distill.heads.training import Training

_KS = (1, 2, 4, 8, 16, 32, 64, 128)
_VALIDATION, _HELD_OUT = 2048, 4096  # queries: each is compared with the whole bank
_ROWS = 512


def n_queries(training: Training, held_out: Int64[Tensor, "held_out pos"]) -> int:
    """Count the queries that `step` will have been told of."""
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
    errors, chosen = [], []
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
        chosen.append(torch.tensor(ks)[best])
    return torch.cat(errors), torch.cat(chosen)


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
