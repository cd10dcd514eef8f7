"""The k largest scores of a rotary head over all pairs of tokens and many distances: exact, never all at once.

    score(δ) = Σ_f (a_f cos θ_f δ + b_f sin θ_f δ) + c,    |a_f cos + b_f sin| ≤ ‖q_f‖ ‖k_f‖

Norms of tiles prune nothing of a trained head, but each pair's own bound does: Σ_f ‖q_f‖ ‖k_f‖ + c over all distances
together is one product of inner dimension d_head/2, and what stays above the k-th best score so far is some thousandths
of the pairs. Where more is left (rows of one length), a block of distances is bounded by its centre: within h of it a
rotation moves pair f by at most 2 sin(θ_f h/2) ‖q_f‖ ‖k_f‖. What then remains is computed in float64.

Norms say little of a head that attends by distance: its mean query q̄ and key k̄ are long and turn against each other
alike in all pairs. With q = q̄ + q' and k = k̄ + k',

    score(δ) = q R_δ k̄ᵀ + q̄ R_δ k'ᵀ + q' R_δ k'ᵀ

the first two are curves of a row and of a column, whose maxima are added to the bound of the third, where that is less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.circuits.distance import in_pairs, turned
from aotlens.circuits.factors import coefficient, input_unit
from aotlens.circuits.tiles import Best
from aotlens.models import ModelConfig
from aotlens.models.positions import frequencies, rotation
from aotlens.models.weights import double

#: Rows and columns of a tile: its product, 4 MB, and what is compared with it fit a core's cache or nearly.
TILE = (512, 2048)
#: A block of distances spans fewer than this.
BLOCK = 8
#: The share of a tile's pairs below which all their distances are computed; with more, blocks of distances are bounded
#: first.
FEW = 0.02
#: Means are bounded by themselves where that takes the mean bound below this share of the other.
WORTH = 0.75
#: Scores computed in float64 at once.
_AT_ONCE = 2**20


class BestScores(NamedTuple):
    """The largest scores, best first, and how much had to be looked at."""

    values: Float64[Tensor, " k"]
    rows: Int64[Tensor, " k"]
    columns: Int64[Tensor, " k"]
    places: Int64[Tensor, " k"]
    """The index of each score's distance."""
    share_of_pairs: float
    """Share of pairs whose bound over all distances reached the best so far."""
    share_computed: float
    """Share of scores that were computed in float64."""


@torch.no_grad()
def best_scores(
    cfg: ModelConfig,
    queries: Float[Tensor, "row d_head"],
    keys: Float[Tensor, "column d_head"],
    distances: Sequence[int],
    k: int,
) -> BestScores:
    """Return the `k` largest of queries R_δ keysᵀ over rows, columns and distances.

    Values are float64; equal ones come in the order of row, column, distance. Time on trained heads: about that of the
    product of norms, of half the inner dimension, whatever the number of distances; at worst (rows of one length) that
    of one product for every `BLOCK` distances. Memory: some tiles, and twice the factors.
    """
    # Of rows that are the same only the first k can be among the best: a head of zeros is no harder than another.
    distinct = [_first_of_same(rows, k) for rows in (queries, keys)]
    units = [_unit(rows) for rows in (queries, keys)]
    left, right = queries[distinct[0]] / units[0], keys[distinct[1]] / units[1]
    best = _Search(cfg, left, right, distances, k).run()
    share = len(left) * len(right) / (len(queries) * len(keys))
    return BestScores(
        values=best.values * (units[0] * units[1]),
        rows=distinct[0].cpu()[best.rows],
        columns=distinct[1].cpu()[best.columns],
        places=best.places,
        share_of_pairs=best.share_of_pairs * share,
        share_computed=best.share_computed * share,
    )


def _first_of_same(rows: Tensor, k: int) -> Tensor:
    """The places of the rows, in order, but for those that k earlier ones are equal to."""
    weights = torch.linspace(1, 2, rows.shape[1], dtype=rows.dtype, device=rows.device)
    _, group, sizes = (rows * weights).sum(1).unique(return_inverse=True, return_counts=True)
    if int(sizes.max()) <= k:
        return torch.arange(len(rows), device=rows.device)
    order = group.argsort(stable=True)
    rank = torch.arange(len(rows), device=rows.device) - (sizes.cumsum(0) - sizes)[group[order]]
    first = torch.empty_like(order)
    first[group[order][rank == 0]] = order[rank == 0]  # by group: its first row
    late = order[rank >= k]
    late = late[(rows[late] == rows[first[group[late]]]).all(1)]
    is_among_first = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    is_among_first[late] = False
    return is_among_first.nonzero()[:, 0]


def _unit(rows: Tensor) -> float:
    """A power of 2 near the largest entry: squares of what is divided by it neither vanish nor overflow in float32."""
    largest = float(rows.abs().max())
    return 2.0 ** math.floor(math.log2(largest)) if largest > 0 else 1.0


class _Parts(NamedTuple):
    """Queries and keys without their means, in float64, and what bounds scores."""

    rows: tuple[Tensor, Tensor]
    norms: tuple[Tensor, Tensor]
    """The norms of each pair of coordinates, and of the coordinates that are not rotated."""
    tops: tuple[Tensor, Tensor] | None
    """The largest of each row's curve, and of each column's, over all distances and over each block."""


def _looseness(parts: _Parts) -> float:
    """The mean bound over all pairs."""
    bound = float(parts.norms[0].mean(0) @ parts.norms[1].mean(0))
    return bound if parts.tops is None else bound + sum(float(each[:, 0].mean()) for each in parts.tops)


class _Search:
    def __init__(self, cfg: ModelConfig, queries: Tensor, keys: Tensor, distances: Sequence[int], k: int) -> None:
        self.k, self.n_columns = k, len(keys)
        # Long rows first: what they score is among the best, so that the others are soon below it.
        self.row_order, self.column_order = (rows.norm(dim=1).argsort(descending=True) for rows in (queries, keys))
        self.queries, self.keys = queries[self.row_order].float(), keys[self.column_order].float()
        self.exact = double(queries)[self.row_order.cpu()], double(keys)[self.column_order.cpu()]
        self.cfg, self.distances = cfg, torch.tensor(list(distances))
        theta = frequencies(cfg)
        angles = self.distances[:, None] * theta
        self.cos, self.sin = angles.cos().T, angles.sin().T  # [pair, distance], float64
        device = self.queries.device
        self.blocks = _blocks(distances)
        means = [rows.mean(0, keepdim=True) for rows in self.exact]
        whole, apart = (self._parts(*each) for each in ([0 * mean for mean in means], means))
        parts = apart if _looseness(apart) < WORTH * _looseness(whole) else whole
        self.q_parts, self.k_parts = (rows.float().to(device) for rows in parts.rows)
        self.tops = None if parts.tops is None else [each.float().to(device) for each in parts.tops]
        q_norms, self.k_bare = (each.float().to(device) for each in parts.norms)
        self.q_norms, self.k_norms = self._added(q_norms, self.k_bare, 0)
        ends = [(int(self.distances[block[0]]), int(self.distances[block[-1]])) for block in self.blocks]
        self.centres = [rotation(cfg, torch.tensor((low + high) / 2, dtype=torch.float64)) for low, high in ends]
        half = max((high - low) / 2 for low, high in ends)
        reach = 2 * (theta * half / 2).clamp(max=math.pi / 2).sin()
        unturned = torch.zeros(q_norms.shape[1] - len(theta), dtype=torch.float64)
        self.q_moves = (parts.norms[0] * torch.cat([reach, unturned])).float().to(device)
        self.lengths = [rows.norm(dim=1) for rows in (self.queries, self.keys)]
        tops = [0.0, 0.0] if self.tops is None else [1 + each.abs().amax(1).square() for each in self.tops]
        self.sizes = [
            (rows.norm(dim=1).square() + top).sqrt()
            for rows, top in zip((self.q_parts, self.k_parts), tops, strict=True)
        ]
        # The bound of the widest product, and of two of them that are added.
        self.error = 3 * coefficient(queries.shape[1] + 2, input_unit(device))
        self.cut = -math.inf
        self.n_pairs = self.n_computed = 0

    def _parts(self, q_mean: Tensor, k_mean: Tensor) -> _Parts:
        """q' and k', and what bounds their scores and the curves that the means add."""
        rows = self.exact[0] - q_mean, self.exact[1] - k_mean
        norms = []
        for each in rows:
            u, v, rest = in_pairs(self.cfg, each)
            norms.append(torch.cat([(u.square() + v.square()).sqrt(), rest], 1))
        if not (q_mean.any() or k_mean.any()):
            return _Parts(rows, (norms[0], norms[1]), None)
        curves = self._turning(self.exact[0], k_mean), self._turning(q_mean, rows[1])
        q_tops, k_tops = (
            torch.stack([each.amax(1), *(each[:, block].amax(1) for block in self.blocks)], 1) for each in curves
        )
        return _Parts(rows, (norms[0], norms[1]), (q_tops, k_tops))

    def _added(
        self, left: Tensor, right: Tensor, place: int, r: slice = slice(None), c: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Factors whose product also adds the tops of rows and columns, of all distances (0) or of a block (1 + …)."""
        if self.tops is None:
            return left, right
        q_top, k_top = self.tops[0][r, place, None], self.tops[1][c, place, None]
        return torch.cat([left, q_top, torch.ones_like(q_top)], 1), torch.cat([right, torch.ones_like(k_top), k_top], 1)

    def run(self) -> BestScores:
        self._first_cut()
        self.best = Best(k=self.k, device=torch.device("cpu"))
        rows, columns = TILE
        for r in range(0, len(self.queries), rows):
            for c in range(0, self.n_columns, columns):
                self._visit(slice(r, r + rows), slice(c, c + columns))
        places = self.best.key % len(self.distances)
        pair = self.best.key // len(self.distances)
        size = len(self.queries) * self.n_columns
        return BestScores(
            values=self.best.value,
            rows=pair // self.n_columns,
            columns=pair % self.n_columns,
            places=places,
            share_of_pairs=self.n_pairs / size,
            share_computed=self.n_computed / (size * len(self.distances)),
        )

    def _first_cut(self) -> None:
        """The k-th best of some scores that are likely to be large: no more than the k-th best of all."""
        rows, columns = (slice(n) for n in TILE)
        bound = self.q_norms[rows] @ self.k_norms[columns].T
        places = bound.flatten().topk(min(bound.numel(), max(4 * self.k, 4096))).indices
        i, j = places // bound.shape[1], places % bound.shape[1]
        step = max(1, _AT_ONCE // len(self.distances))
        sample = torch.cat([self._scores(a, b).flatten() for a, b in zip(i.split(step), j.split(step), strict=True)])
        if len(sample) >= self.k:
            # Rounding may differ by how many are computed at once.
            longest = float(self.lengths[0].max() * self.lengths[1].max())
            self.cut = float(sample.topk(self.k).values[-1]) - 1e-12 * longest

    def _visit(self, r: slice, c: slice) -> None:
        longest = float(self.lengths[0][r].max() * self.lengths[1][c].max())
        slack = self.error * float(self.sizes[0][r].max() * self.sizes[1][c].max())
        if longest + slack < self.cut:
            return
        bound = self.q_norms[r] @ self.k_norms[c].T
        hit = (bound.amax(1) >= self.cut - slack).nonzero()[:, 0]
        i, j = (bound[hit] >= self.cut - slack).nonzero().unbind(1)
        if not len(i):
            return
        self.n_pairs += len(i)
        if len(i) <= FEW * bound.numel() or len(self.blocks) == 1:
            self._take(hit[i] + r.start, j + c.start, slice(None))
            return
        moves = self.q_moves[r] @ self.k_bare[c].T
        for place, (block, centre) in enumerate(zip(self.blocks, self.centres, strict=True), start=1):
            left, right = self._added(turned(self.q_parts[r], centre), self.k_parts[c], place, r, c)
            near = torch.minimum((left @ right.T).add_(moves), bound)
            i, j = (near >= self.cut - slack).nonzero().unbind(1)
            self._take(i + r.start, j + c.start, slice(int(block[0]), int(block[-1]) + 1))

    def _take(self, rows: Tensor, columns: Tensor, places: slice) -> None:
        """Merge the scores of pairs at some distances."""
        of = torch.arange(len(self.distances))[places]
        step = max(1, _AT_ONCE // len(of))
        for i, j in zip(rows.split(step), columns.split(step), strict=True):
            scores = self._scores(i, j, places)
            self.n_computed += scores.numel()
            pair, which = (scores >= self.cut).nonzero().unbind(1)
            if len(pair) > self.k:  # ties at the k-th stay
                is_best = scores[pair, which] >= scores[pair, which].topk(self.k).values[-1]
                pair, which = pair[is_best], which[is_best]
            row, column = self.row_order[i[pair]].cpu(), self.column_order[j[pair]].cpu()
            key = (row * self.n_columns + column) * len(self.distances) + of[which]
            self.best.merge(torch.zeros_like(key), key, scores[pair, which])
            if len(self.best.value) == self.k:
                self.cut = max(self.cut, float(self.best.value[-1]))

    def _scores(self, i: Tensor, j: Tensor, places: slice = slice(None)) -> Float64[Tensor, "pair distance"]:
        return self._turning(self.exact[0][i.cpu()], self.exact[1][j.cpu()], places)

    def _turning(self, left: Tensor, right: Tensor, places: slice = slice(None)) -> Float64[Tensor, "pair distance"]:
        """left R_δ rightᵀ of each pair of rows."""
        (u, v, rest), (x, y, other) = (in_pairs(self.cfg, rows) for rows in (left, right))
        turning = (u * x + v * y) @ self.cos[:, places] + (u * y - v * x) @ self.sin[:, places]
        return turning + (rest * other).sum(1, keepdim=True)


def _blocks(distances: Sequence[int]) -> list[Tensor]:
    """Split the places of rising distances into runs that span less than `BLOCK`."""
    blocks: list[list[int]] = []
    for place, distance in enumerate(distances):
        if blocks and distance - distances[blocks[-1][0]] < BLOCK:
            blocks[-1].append(place)
        else:
            blocks.append([place])
    return [torch.tensor(block) for block in blocks]
