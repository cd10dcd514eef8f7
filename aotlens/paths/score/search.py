"""The largest pairs of paths of one score: best-first search backwards from both sides of it.

A node is the upper end of a path on one side, heads (f_1, …, f_m) down from the query or the keys. A chain of heads is
one Kronecker product, so what a node brings to the side is

    α v M,    α = (c / s) A_1 … A_m  [pos],    M = V_m O_m … W  [inner, d_head],    v the values of its lowest head:

a row and a matrix. Expanding it extends it by every head below in one batch and gives the exact vector `[d_head]` of
each path with one head more, from every source; the products with all vectors of the other side are the terms of those
pairs. For all longer paths ‖α v‖ ≤ ρ by the bounds that serve logits (`aotlens.paths.bounds`), so a pair of one of them
with a vector κ of the other side is at most

    ρ · max( max over κ found ‖M κ‖,   ‖M‖₂ · β )

with β the most that ‖κ‖ can be of a vector not found yet. It stays a bound when more are found, since β only falls; it
is computed again, with the β of that time, before its node is expanded. The side whose best bound is larger goes next;
once no bound is above the k-th pair, all ranks are proven. Norms are taken in a basis in which the short paths of both
sides have the same second moments, diagonal: ⟨q, κ⟩ = ⟨q G, κ G⁻ᵀ⟩ for every G, and ‖q‖‖κ‖ is small for this one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor

from aotlens.conventions import Head
from aotlens.paths.bounds import Bounds, Sizes, bound_longer, spectral_norm_bound
from aotlens.paths.path import Path, PathPair, SourceName
from aotlens.paths.score.pairs import TopPairs
from aotlens.paths.score.side import ScoreSide
from aotlens.paths.search import Best, checked_search, child_path, slack_of

_MOST_COMPARED = 512  # vectors of the other side that a bound looks at one by one
_RIDGE = 1e-4  # of the mean second moment, so that the basis has an inverse


class _Entry:
    """A node that waits, with the most that a pair of a longer path of it can be."""

    def __init__(self, heads: tuple[Head, ...], index: int, rho: float) -> None:
        self.heads, self.index, self.rho = heads, index, rho
        self.key = self.norm = math.inf
        """The bound on pairs, and the one on the norm of a single vector."""
        self.version = -1
        self.waits = True


class _Tree:
    """One side: its vectors found so far, the largest first, and the nodes that wait."""

    def __init__(self, side: ScoreSide, bounds: Bounds | None, slack: float) -> None:
        self.side, self.bounds, self.slack = side, bounds, slack
        self.split = side.layer.below.split_sources
        self.nodes: dict[tuple[Head, ...], tuple[Tensor, Tensor]] = {(): (side.rows, side.W)}
        self.opened = bounds is None
        self.n_found = self.version = 0
        width = side.W.shape[1]
        self.basis = torch.eye(width, dtype=torch.float64)
        self.vectors = torch.zeros(0, width, dtype=side.W.dtype)
        self.norms = torch.zeros(0, dtype=torch.float64)
        self.names: list[Callable[[], Path]] = []
        self.queue: list[tuple[float, int, _Entry]] = []
        self.by_norm: list[tuple[float, int, _Entry]] = []
        self.tie = count()

    def direct(self) -> tuple[Tensor, Callable[[int], Path]]:
        """The vectors of the paths without heads."""
        names: tuple[SourceName, ...] = self.side.layer.source_names
        positions: list[int | None] = [*range(len(self.side.weights))] if self.split else [None]
        paths = [Path(name, (), position) for name in names for position in positions]
        return torch.stack([self.side.path(path) for path in paths]), paths.__getitem__

    def open(self, heads: tuple[Head, ...]) -> tuple[Tensor, Callable[[int], Path], list[_Entry], Tensor]:
        """Extend a node by every head below: the vectors of its paths, and its children with their matrices M."""
        bounds = self.bounds
        assert bounds is not None
        self.opened = True
        rows, G = self._node(heads)
        n_below = (heads[0][0] if heads else self.side.layer.layer) * bounds.n_heads
        alpha = torch.einsum("p,fpk->fk", rows, bounds.patterns[:n_below])
        M = bounds.W_O[:n_below] @ G
        sizes = rows.abs().cpu().double().expand(n_below, -1)
        rho = bound_longer(bounds, Sizes(alpha.abs().cpu().double(), sizes)) * self.slack
        values, starts = bounds.values[:, :n_below], bounds.starts(0, n_below)
        weighted = alpha[:, :, None] * values if self.split else (alpha[:, None] @ values)
        vectors = (weighted @ M)[starts[:, 0], starts[:, 1]]  # [start, 1 or pos, d_head]
        children = [_Entry(heads, f, float(rho[f])) for f in range(bounds.n_heads, n_below)]
        return vectors.flatten(0, 1), child_path(bounds, starts, heads), children, M[bounds.n_heads :]

    def matrix(self, entry: _Entry) -> Tensor:
        """M of a child, `[1, inner, d_head]`."""
        assert self.bounds is not None
        return self.bounds.W_O[entry.index : entry.index + 1] @ self.nodes[entry.heads][1]

    def expand(self, entry: _Entry) -> tuple[Tensor, Callable[[int], Path], list[_Entry], Tensor]:
        """Open the child that waits."""
        assert self.bounds is not None
        self.version += 1
        return self.open((divmod(entry.index, self.bounds.n_heads), *entry.heads))

    def _node(self, heads: tuple[Head, ...]) -> tuple[Tensor, Tensor]:
        """The row c / s A_1 … / s and the matrix V_m O_m … W of a node; its parent has been opened."""
        bounds = self.bounds
        assert bounds is not None
        if heads not in self.nodes:
            rows, G = self.nodes[heads[1:]]
            f = heads[0][0] * bounds.n_heads + heads[0][1]
            self.nodes[heads] = (
                (rows @ bounds.patterns[f]) * bounds.inverse_scale[f],
                bounds.W_V[f] @ (bounds.W_O[f] @ G),
            )
        return self.nodes[heads]

    def add(self, vectors: Tensor, name: Callable[[int], Path], worth: float) -> tuple[Tensor, Tensor, list[Any]]:
        """Keep the vectors whose norm is above `worth`; the new ones, their norms and names, the largest first."""
        self.n_found += len(vectors)
        vectors = vectors.cpu()
        norms = (vectors.double() @ self.basis).norm(dim=1)
        order = norms.argsort(descending=True)
        order = order[~(norms[order] <= worth)]
        new = vectors[order], norms[order], [lambda i=i: name(i) for i in order.tolist()]
        place = torch.cat([self.norms, new[1]]).argsort(descending=True, stable=True)
        names = self.names + new[2]
        self.vectors, self.norms = torch.cat([self.vectors, new[0]])[place], torch.cat([self.norms, new[1]])[place]
        self.names = [names[i] for i in place.tolist()]
        return new

    def largest_waiting(self, settled: Callable[[_Entry], bool]) -> float:
        """β: the most that the norm of a vector not found yet can be; `settled` nodes wait no more."""
        if not self.opened:
            return math.inf
        while self.by_norm and (not self.by_norm[0][2].waits or settled(self.by_norm[0][2])):
            heapq.heappop(self.by_norm)
        return self.by_norm[0][2].norm if self.by_norm else 0.0

    def best(self) -> _Entry | None:
        """The node with the largest bound."""
        while self.queue and not self.queue[0][2].waits:
            heapq.heappop(self.queue)
        return self.queue[0][2] if self.queue else None

    def push(self, entry: _Entry) -> None:
        """Let a node wait."""
        heapq.heappush(self.queue, (-entry.key, next(self.tie), entry))


class _Search:
    """Both trees, the pairs found, and what was settled without being looked at."""

    def __init__(self, trees: tuple[_Tree, _Tree], best: Best[PathPair], slack: float) -> None:
        self.trees, self.pairs, self.slack = trees, best, slack
        self.settled_at = -math.inf
        """The largest bound of a node that was left out since no pair of it can be among the k best."""
        self.n_expanded = 0

    def run(self, budget: int) -> None:
        direct = [tree.direct() for tree in self.trees]
        opened = [tree.open(()) for tree in self.trees[:budget] if not tree.opened]
        self.n_expanded = len(opened)
        self._balance([torch.cat([direct[i][0], *(o[0] for o in opened[i : i + 1])]) for i in range(2)])
        for side in range(2):
            self._offer(side, *direct[side])
            if side < len(opened):
                self._offer(side, *opened[side][:2])
        for side in range(len(opened)):  # with finite bounds of the other side's, for the norms are set first
            self._set_norms(side, *opened[side][2:])
        for side in range(len(opened)):
            self._queue(side, *opened[side][2:])
        while self.n_expanded < budget and all(tree.opened for tree in self.trees) and self._step():
            pass

    def frontier(self) -> float:
        """Return the bound that no pair that was not looked at exceeds."""
        if not all(tree.opened for tree in self.trees):
            return math.inf
        waiting = (tree.best() for tree in self.trees)
        return max([self.settled_at, *(entry.key for entry in waiting if entry is not None)])

    def _step(self) -> bool:
        """Bound the best node anew, or expand it; whether anything may be left to find."""
        bests = [tree.best() for tree in self.trees]
        keys = [-math.inf if entry is None else entry.key for entry in bests]
        side = int(keys[1] > keys[0])
        tree, entry, other = self.trees[side], bests[side], self.trees[1 - side]
        if entry is None or entry.key <= self.pairs.threshold():
            return False
        heapq.heappop(tree.queue)
        if entry.version < other.version:
            entry.key = min(entry.key, float(self._bounds(side, [entry], tree.matrix(entry))[0]))
            entry.version = other.version
            following = tree.best()
            if not self._settled(entry) and entry.key < max(keys[1 - side], following.key if following else 0.0):
                tree.push(entry)
            elif entry.waits:
                self._expand(side, entry)
            return True
        self._expand(side, entry)
        return True

    def _expand(self, side: int, entry: _Entry) -> None:
        entry.waits = False
        self.n_expanded += 1
        vectors, name, children, M = self.trees[side].expand(entry)
        self._offer(side, vectors, name)
        self._set_norms(side, children, M)
        self._queue(side, children, M)

    def _settled(self, entry: _Entry) -> bool:
        """Whether no pair of the node can be among the k best; it then waits no more."""
        if entry.waits and entry.key <= self.pairs.threshold():
            entry.waits = False
            self.settled_at = max(self.settled_at, entry.key)
        return not entry.waits

    def _offer(self, side: int, vectors: Tensor, name: Callable[[int], Path]) -> None:
        """All pairs of new vectors with those of the other side, but for those that cannot be among the best."""
        tree, other, floor = self.trees[side], self.trees[1 - side], self.pairs.floor()
        most = max([other.largest_waiting(self._settled), *other.norms[:1].tolist()]) * self.slack
        new, norms, names = tree.add(vectors, name, floor / most if most > 0 else -math.inf)
        if not len(new) or not len(other.vectors):
            return
        n_other = int((~(other.norms * norms[0] * self.slack <= floor)).sum())
        n_new = int((~(norms * other.norms[0] * self.slack <= floor)).sum())
        if not n_other or not n_new:
            return
        others, terms = other.names[:n_other], new[:n_new] @ other.vectors[:n_other].T

        def pair(i: int) -> PathPair:
            mine, theirs = names[i // n_other](), others[i % n_other]()
            return (mine, theirs) if side == 0 else (theirs, mine)

        self.pairs.offer(terms, pair)

    def _set_norms(self, side: int, children: list[_Entry], M: Tensor) -> None:
        tree = self.trees[side]
        sizes = spectral_norm_bound(M.cpu().double() @ tree.basis).tolist()
        for entry, size in zip(children, sizes, strict=True):
            entry.norm = math.inf if math.isnan(entry.rho * size) else entry.rho * size
            if entry.norm > 0:
                heapq.heappush(tree.by_norm, (-entry.norm, next(tree.tie), entry))

    def _queue(self, side: int, children: list[_Entry], M: Tensor) -> None:
        if not children:
            return
        tree, version = self.trees[side], self.trees[1 - side].version
        for entry, key in zip(children, self._bounds(side, children, M).tolist(), strict=True):
            entry.key, entry.version = key, version
            if not self._settled(entry):
                tree.push(entry)

    def _bounds(self, side: int, entries: list[_Entry], M: Tensor) -> Tensor:
        """The most that a pair of a longer path of each node can be."""
        other, M = self.trees[1 - side], M.cpu().double()
        beta = other.largest_waiting(self._settled)
        n = min(int((other.norms > beta).sum()), _MOST_COMPARED)
        rest = max([beta, *other.norms[n : n + 1].tolist()])
        compared = other.vectors[:n].double()
        rho = torch.tensor([entry.rho for entry in entries], dtype=torch.float64)
        most = torch.tensor([entry.norm for entry in entries], dtype=torch.float64) * rest
        if n:
            # What cancels keeps the rounding of what it was.
            eps = 64 * torch.finfo(other.vectors.dtype).eps * compared.norm(dim=1).amax()
            one_by_one = (M @ compared.T).norm(dim=1).amax(1) + eps * M.flatten(1).norm(dim=1)
            most = torch.maximum(most, rho * one_by_one)
        return most.nan_to_num(nan=torch.inf, posinf=torch.inf)

    def _balance(self, short: list[Tensor]) -> None:
        """Set the bases of both sides: G and G⁻ᵀ with Gᵀ Σ_q G = G⁻¹ Σ_k G⁻ᵀ diagonal."""
        moments = []
        for vectors in short:
            wide = vectors.cpu().double()
            moment = (wide / wide.abs().amax().clamp(min=1e-300)).nan_to_num()
            moment = moment.T @ moment
            ridge = _RIDGE * moment.diagonal().mean() + 1e-300
            moments.append(moment / ridge + torch.eye(len(moment), dtype=torch.float64))
        root = torch.linalg.cholesky(moments[0])
        values, U = torch.linalg.eigh(root.T @ moments[1] @ root)
        quarter = values.clamp(min=1e-12) ** 0.25
        self.trees[0].basis = torch.linalg.solve_triangular(root.T, U, upper=True) * quarter
        self.trees[1].basis = (root @ U) / quarter


def top_pairs(sides: tuple[ScoreSide, ScoreSide], k: Any, by: str, budget: Any, total: float, n_pairs: int) -> TopPairs:
    """See `ScoreExpansion.top`.

    A node costs O(pos² · heads below) and two products with `[d_head, d_model]` per head below; memory: `[d_model,
    d_head]`.
    """
    k, budget = checked_search(k, by, budget)
    below = sides[0].layer.below
    bounds, slack = below._bounds if below.n_layers else None, slack_of(sides[0].W)
    best: Best[PathPair] = Best(k, by)
    search = _Search((_Tree(sides[0], bounds, slack), _Tree(sides[1], bounds, slack)), best, slack)
    search.run(budget)
    pairs, ranking = best.ranking(search.frontier(), total)
    return TopPairs(
        **ranking,
        pairs=pairs,
        n_expanded=search.n_expanded,
        n_evaluated=search.trees[0].n_found * search.trees[1].n_found,
        n_pairs=n_pairs,
    )
