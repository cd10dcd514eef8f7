"""Statistics of every row of a factored matrix as a whole, streamed: its level and spread, the rank of its diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.circuit import Circuit
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.factors import Factors, check, prepare
from aotlens.circuits.tiles import Tiles, tile_sizes
from aotlens.circuits.topk import MAX_BYTES
from aotlens.conventions import require_shape
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStatistics(Result):
    """Statistics of every row, on the CPU, in the matrix's unit (nats or logits)."""

    mean: Float64[Tensor, " row"]
    log_mean_exp: Float64[Tensor, " row"]
    """The level that softmax compares entries with: log of the mean of exp(entry)."""
    std: Float64[Tensor, " row"]
    """The population's standard deviation: divided by the number of columns (or by the sum of weights, which is 1)."""

    def to_frame(self) -> pd.DataFrame:
        """Return one line a row: mean, log_mean_exp, std."""
        return data_frame({name: getattr(self, name).numpy() for name in ("mean", "log_mean_exp", "std")})


@torch.no_grad()
def row_statistics(
    circuit: FactoredMatrix, *, weights: Float64[Tensor, " column"] | None = None, max_bytes: int = MAX_BYTES
) -> RowStatistics:
    """Return mean, log-mean-exp and standard deviation of every row of M = A B, in float64.

    With weights w `[columns]` (a distribution, such as tokens' frequencies; default 1 / columns):

        mean_i = Σ_j w_j M_ij = a_i · Σ_j w_j b_j
        log_mean_exp_i = log Σ_j w_j exp(M_ij)
        std_i = (Σ_j w_j (M_ij − mean_i)²)^½ = ‖R a_i‖,   Rᵀ R = Σ_j w_j (b_j − b̄)(b_j − b̄)ᵀ

    where a_i is a row of A `[rows, inner]`, b_j a column of B `[inner, columns]`. Mean and deviation go through the
    small side: rows · inner² operations, R from QR decompositions of centred columns, so a large mean or a small spread
    costs no digits. Log-mean-exp streams float64 tiles with a running maximum: no overflow, never NaN. Time: some
    three times the float32 product's. Columns of weight 0 count nowhere. Memory beyond the factors: `max_bytes`.

    Raises `ValueError` if a factor is not finite, not real, or has no entries; if the circuit is not one matrix; if
    weights are not one for each column, not finite, negative, or do not sum to 1 within 1e-6 (they are divided by their
    sum); and if `max_bytes` is too
    small.
    """
    check(circuit)
    n_rows, n_columns = circuit.shape
    device = torch.device("cpu") if circuit.A.device.type == "mps" else circuit.A.device
    w = _weights(weights, n_columns).to(device)
    left, right = circuit.A.detach().to(device), circuit.B.detach().to(device).T
    if bool((w == 0).any()):
        right, w = right[w > 0], w[w > 0]
    inner = left.shape[1]
    copied = right.nbytes if right.data_ptr() != circuit.B.data_ptr() else 0
    vectors = 8 * (5 * n_rows + 2 * n_columns) + 64 * inner * inner + copied
    rows, columns = tile_sizes(n_rows, len(right), (max_bytes - vectors) // 6, device=device)
    while (parts := 8 * (2 * rows * columns + 3 * inner * (rows + columns))) > max_bytes - vectors:
        if rows * columns == 1:
            raise ValueError(
                f"max_bytes={max_bytes} is too small: vectors of rows and columns take {vectors} bytes, and the "
                f"smallest tile {parts} more."
            )
        rows, columns = max(1, rows // 2), max(1, columns // 2)
    centre = torch.zeros(inner, dtype=torch.float64, device=device)
    for c in range(0, len(right), columns):
        centre += right[c : c + columns].double().T @ w[c : c + columns]
    missed = torch.zeros_like(centre)
    for c in range(0, len(right), columns):  # what rounding left: Σ w (b − centre), with w that sum to 1
        missed += (right[c : c + columns].double() - centre).T @ w[c : c + columns]
    centre += missed
    triangle = torch.zeros(0, inner, dtype=torch.float64, device=device)
    for c in range(0, len(right), columns):
        centred = (right[c : c + columns].double() - centre) * w[c : c + columns, None].sqrt()
        triangle = torch.linalg.qr(torch.cat([triangle, centred]), mode="r").R
    mean, level, std = (torch.empty(n_rows, dtype=torch.float64) for _ in range(3))
    buffer = torch.empty(rows * columns, dtype=torch.float64, device=device)
    for r in range(0, n_rows, rows):
        part, a = slice(r, r + rows), left[r : r + rows].double()
        mean[part] = (a @ centre).cpu()
        std[part] = (a @ triangle.T).norm(dim=1).cpu()
        level[part] = _log_mean_exp(a, right, w, columns, buffer).cpu()
    return RowStatistics(mean=mean, log_mean_exp=level, std=std)


@torch.no_grad()
def above_row_level(
    circuit: Circuit, rows: Int64[Tensor, " n"], values: Float64[Tensor, " n"]
) -> Float64[Tensor, " n"]:
    """Return entries relative to what their rows have on average, which is all that a softmax over columns sees.

    `values[i]` is an entry of row `rows[i]`. QK (nats): less the row's log-mean-exp, so that scores of different
    destinations can be compared. OV (logits): less the row's mean. Cost as `row_statistics`, of the distinct rows.
    """
    distinct, where = rows.unique(return_inverse=True)
    statistics = row_statistics(FactoredMatrix(circuit.A[distinct.to(circuit.A.device)], circuit.B))
    return values - (statistics.log_mean_exp if circuit.kind == "qk" else statistics.mean)[where]


def _weights(weights: Tensor | None, n_columns: int) -> Tensor:
    if weights is None:
        return torch.full((n_columns,), 1 / n_columns, dtype=torch.float64)
    w = double(require_shape("weights", weights, (n_columns,)))
    total = float(w.sum())
    if not bool(torch.isfinite(w).all()) or bool((w < 0).any()) or abs(total - 1) > 1e-6:
        raise ValueError(
            f"expected finite weights that are at least 0 and sum to 1; got a smallest of {float(w.min()):.3g} and a "
            f"sum of {total:.6g}. Divide counts by their sum."
        )
    return w / total


def _log_mean_exp(a: Tensor, right: Tensor, w: Tensor, columns: int, buffer: Tensor) -> Tensor:
    """log Σ_j w_j exp(a_i · b_j) for the rows of `a`; every w_j > 0."""
    highest = torch.full((len(a),), -torch.inf, dtype=torch.float64, device=a.device)
    total = torch.zeros_like(highest)
    for c in range(0, len(right), columns):
        b = right[c : c + columns].double()
        tile = torch.mm(a, b.T, out=buffer[: len(a) * len(b)].view(len(a), len(b)))
        higher = torch.maximum(highest, tile.amax(1))
        total = total * (highest - higher).exp() + tile.sub_(higher[:, None]).exp_() @ w[c : c + columns]
        highest = higher
    return highest + total.log()


@torch.no_grad()
def diagonal_rank(circuit: FactoredMatrix, *, max_bytes: int = MAX_BYTES) -> Int64[Tensor, " row"]:
    """Count the entries of row i that come before entry (i, i): 0 where the diagonal is the row's maximum.

    Of a copying head, tokens whose own logit is the largest have rank 0. Equal entries come in order of columns, as in
    `top_per_row`: rank_i < k exactly if (i, i) is among row i's k best. Exact in the same way: entries within the
    rounding bound of the diagonal are compared in float64. int64 `[rows]`, on the CPU. Time: about twice the float32
    product. Memory beyond the factors: `max_bytes`. Raises `ValueError` as `top_per_row`, and if the matrix is not
    square.
    """
    check(circuit)
    n = circuit.shape[0]
    if circuit.shape[1] != n:
        raise ValueError(f"expected a square circuit, whose diagonal means something; got {n} × {circuit.shape[1]}.")
    factors = prepare(circuit, max_bytes, by_row=True)
    device = factors.rows32.device
    left = max_bytes - factors.copied_bytes - 48 * n
    # A tile's product, two masks, and the indices of entries to be compared exactly, at worst all.
    rows, columns = tile_sizes(n, n, left // 16, device=device)
    if 128 * rows * columns > left:
        raise ValueError(f"max_bytes={max_bytes} is too small: {max_bytes - left} are taken by vectors and copies.")
    tiles = Tiles(rows=rows, columns=columns, device=device)
    every = torch.arange(n, device=device)
    diagonal = factors.entries(every, every)
    ranks = torch.zeros(n, dtype=torch.int64, device=device)
    for c in range(0, n, columns):
        norm = float(factors.column_norms[c : c + columns].amax())
        for r in range(0, n, rows):
            ranks[r : r + rows] += _before(factors, tiles, diagonal, slice(r, r + rows), slice(c, c + columns), norm)
    return ranks.cpu()


def _before(factors: Factors, tiles: Tiles, diagonal: Tensor, rows: slice, columns: slice, norm: float) -> Tensor:
    """Count the entries of one tile that come before their row's diagonal."""
    product = tiles.product(factors.rows32[rows], factors.columns32[columns])
    here = torch.arange(rows.start, rows.start + len(product), device=product.device)
    centre = factors.scaled(diagonal[rows], here)
    error = factors.error * factors.row_norms[rows] * norm + factors.floors[rows]
    above = product > (centre + error).float()[:, None]
    count = above.sum(1)
    near = (product >= (centre - error).float()[:, None]).logical_xor_(above)
    row, column = near.nonzero().unbind(1)
    if len(row):
        i, j = row + rows.start, column + columns.start
        entries, own = factors.entries(i, j), diagonal[i]
        first = (entries > own) | ((entries == own) & (j < i))
        count.index_add_(0, row, first.long())
    return count
