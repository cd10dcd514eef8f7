"""The k largest paths to one logit: best-first search backwards from it.

A node is the upper end of a path, the heads (f_1, …, f_m) nearest to the logit; it holds the gradient of the logit with
respect to the values of its lowest head, `[pos, d_head]`. Expanding it extends it by every head of every layer below,
in one batch, and so finds the exact contribution of each of those paths from each source. A bound on all longer paths
of a node (`aotlens.paths.bounds`) orders the queue. Once the best bound left is no larger than the k-th path found, the
search has proven its answer; before, it has proven the ranks whose contribution is at least that bound.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from aotlens.conventions import Head, head_name, require_choice, require_whole, signed
from aotlens.paths.bounds import Bounds, Reading, bound_longer, bounds_via, read_heads
from aotlens.paths.enumeration import n_paths
from aotlens.paths.frozen import Frozen, root_gradient
from aotlens.paths.of_logit import unit_of
from aotlens.paths.path import Path
from aotlens.paths.target import direction
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

Named = TypeVar("Named")
_SIGNS: dict[str, float] = {"pos": 1.0, "neg": -1.0}


class Best(Generic[Named]):
    """The k + 1 largest seen; the last is there to bound what was evaluated and is not returned."""

    def __init__(self, k: int, by: str) -> None:
        self.k, self.by = k, by
        self.heap: list[tuple[float, int, float, Named]] = []
        self.tie = count(0, -1)  # of two equal paths the first found stays
        self.n_seen = 0

    def keys(self, values: Tensor) -> Tensor:
        """Return the numbers that values are ranked by."""
        return values.abs() if self.by == "abs" else values * _SIGNS[self.by]

    def offer(self, values: Tensor, name: Callable[[int], Named]) -> None:
        """Consider all entries of a tensor; `name(index)` says which one is."""
        flat = values.flatten()
        self.n_seen += flat.numel()
        keys, indices = self.keys(flat).topk(min(self.k + 1, flat.numel()))
        if not bool(keys[0].isfinite()):  # NaN counts as the largest
            raise ValueError(
                f"top: a contribution is {float(flat[indices[0]])} in {flat.dtype}; use model.double(), or "
                "by_order, which sums over paths."
            )
        for key, index in zip(keys.tolist(), indices.tolist(), strict=True):
            full = len(self.heap) > self.k
            if full and key <= self.heap[0][0]:
                break
            entry = (key, next(self.tie), float(flat[index]), name(index))
            if full:
                heapq.heapreplace(self.heap, entry)
            else:
                heapq.heappush(self.heap, entry)

    def ranking(self, frontier: float, total: float) -> tuple[tuple[Named, ...], dict[str, Any]]:
        """Return the k best, and the fields of `Ranked`; `frontier` bounds every term that was not computed."""
        ranked = sorted(self.heap, key=lambda entry: entry[:2], reverse=True)
        values = tuple(value for _, _, value, _ in ranked[: self.k])
        unreturned = max([frontier, *(key for key, *_ in ranked[self.k :])])
        return tuple(name for *_, name in ranked[: self.k]), {
            "values": values,
            "by": self.by,
            "total": total,
            "remainder": total - sum(values),
            "n_proven": sum(key >= frontier for key, *_ in ranked[: self.k]),
            "bound": unreturned if unreturned > float("-inf") else 0.0,
        }

    def threshold(self) -> float:
        """Return the k-th best key, −∞ while there are fewer."""
        if len(self.heap) < self.k:
            return float("-inf")
        return self.heap[0][0] if len(self.heap) == self.k else heapq.nsmallest(2, self.heap)[1][0]

    def floor(self) -> float:
        """Return the k + 1-th best key, −∞ while there are fewer; lower keys change nothing that is returned."""
        return self.heap[0][0] if len(self.heap) > self.k else float("-inf")


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranked(Result):
    """The base of what a search returns: the largest of all terms, largest first, and what is proven of them."""

    values: tuple[float, ...]
    by: str
    total: float
    """The sum of all terms, exact: of the paths the logit, or `through` of the head; of the pairs the contrast."""
    remainder: float
    """total − Σ values: what all other terms add, with its sign."""
    n_proven: int
    """The number of first ranks that are proven: no term anywhere is larger."""
    bound: float
    """No term that is not returned is larger than this: in size, for "pos" and "neg" in its own direction."""
    n_expanded: int
    """The number of nodes that were expanded."""
    n_evaluated: int
    """The number of terms that were computed; of pairs, those whose two paths were both evaluated."""

    @property
    def complete(self) -> bool:
        """Whether every rank is proven."""
        return self.n_proven == len(self.values)

    @property
    def _ranks(self) -> str:
        return f"{self.n_proven} of {len(self.values)} ranks are exact"


def checked_search(k: Any, by: str, budget: Any) -> tuple[int, int]:
    """Return k and budget as numbers. Raises `ValueError` for either below 1, and for another `by`."""
    require_choice("by", by, ("abs", *_SIGNS))
    return require_whole("k", k, 1), require_whole("budget", budget, 1, 10**12)


def slack_of(weights: Tensor) -> float:
    """Return the factor of bounds: they are computed in floating point as well, and may have lost to rounding."""
    exact = not weights.is_cuda or torch.get_float32_matmul_precision() == "highest"
    return 1 + (1e-9 if weights.dtype == torch.float64 else 1e-4 if exact else 1e-2)


_Named: TypeAlias = tuple[Tensor, Callable[[int], Path]]


#: Rankings in words, next to a bound.
SENSES = {"abs": "in size", "pos": "for it", "neg": "against it"}


@dataclass(frozen=True, kw_only=True, eq=False)
class TopPaths(Ranked):
    """The largest paths found, and what is proven of them. Contributions in logits."""

    paths: tuple[Path, ...]
    descriptions: tuple[str, ...] = ()
    """Each path in words, `PathExpansion.describe`."""
    end: str = "logits"
    """The end of each sentence: the logit in words."""
    position: int
    target: int | tuple[int, int]
    logit: float
    """The model's own logit, or difference."""
    through: Head | None
    """The head that all of them pass; None where every path counts."""
    n_paths: int
    """The number of paths (through the head)."""

    @property
    def headline(self) -> str:
        return f"{self._ranks}; all other paths add {self.remainder:+.3f} logits"

    def sentences(self) -> str:
        """Return which ranks are proven, what all other paths add, and how large one of them can be."""
        n, rest = len(self.paths), self.n_paths - len(self.paths)
        ranks = f"Exact top {n}" if self.complete else f"The top {self.n_proven} of {n} are exact"
        if not self.complete and not self.n_proven:
            ranks = f"None of these {n} is proven to be in the exact top {n}"
        which = "" if self.through is None else f" through head {head_name(self.through)}"
        among = f"{ranks} among {self.n_paths:,} paths{which} ({self.n_evaluated:,} computed)"
        together = "" if self.through is None else f" All of them together: {signed(self.total)} {self.unit}."
        if not rest:
            return f"{among}: these are all paths there are.{together}"
        bound = math.ceil(1000 * self.bound) / 1000  # rounded up, so that the printed bound is one, too
        return (
            f"{among}.{together} Listed: {signed(self.total - self.remainder)}; the other {rest:,} together: "
            f"{signed(self.remainder)} {self.unit}. No single one of them is more than {bound:.3f} "
            f"{SENSES[self.by]}."
        )

    @property
    def unit(self) -> str:
        """The unit of a contribution."""
        return unit_of(self.target)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per path: rank (from 1), path (its sentence), source, source_position, heads, order, logits,
        proven."""
        import pandas as pd

        return pd.DataFrame(
            {
                "rank": range(1, len(self.paths) + 1),
                "path": self.descriptions or [str(path) for path in self.paths],
                "source": [path.source for path in self.paths],
                "source_position": pd.array([path.source_position for path in self.paths], dtype="Int64"),
                "heads": [" ".join(map(head_name, path.heads)) for path in self.paths],
                "order": [path.order for path in self.paths],
                "logits": self.values,
                "proven": [rank < self.n_proven for rank in range(len(self.paths))],
            }
        )


def top_paths(
    frozen: Frozen,
    bounds: Bounds,
    k: Any,
    position: int,
    target: int | tuple[int, int],
    by: str,
    budget: Any,
    passing: tuple[Head, float] | None = None,
) -> TopPaths:
    """See `PathExpansion.top`. `passing` is a head that all paths pass, and what all of them add.

    Above that head's layer a longer path through it is bounded from what the head writes on. An expansion costs O((pos
    · d_model + pos²) · d_head · heads below); the bounds, once per prompt, O((L·H)² · d_head² · (d_model + pos)).
    Memory: the values of all heads, and a gradient `[pos, d_head]` per expanded node.
    """
    k, budget = checked_search(k, by, budget)
    to = direction(frozen, target)
    split, slack = bounds.split, slack_of(frozen.R)
    best: Best[Path] = Best(k, by)
    root = root_gradient(frozen, position, to.column)
    through = None if passing is None else passing[0]
    via = None if through is None else bounds_via(bounds, through)
    if through is None:
        best.offer(*_direct(frozen, position, root, to.bias, split))
    nodes: dict[tuple[Head, ...], Tensor] = {}
    queue: list[tuple[float, int, tuple[Head, ...]]] = [(float("-inf"), 0, ())]
    tie = count(1)
    n_expanded, pruned = 0, float("-inf")
    while queue and n_expanded < budget and -queue[0][0] > best.threshold():
        _, _, heads = heapq.heappop(queue)
        g = root if not heads else bounds.gradient(heads[0], _own(frozen, bounds, heads, nodes, root))
        n_below = (heads[0][0] if heads else frozen.n_layers) * frozen.n_heads
        n_expanded += 1
        reading = read_heads(bounds, g, n_below)
        longer = bound_longer(bounds, reading)
        children: list[int] = [*range(frozen.n_heads, n_below)]  # nothing is below the first layer
        if through is None or via is None or through in heads:
            best.offer(*_children(bounds, reading, heads, split))
        else:
            it = through[0] * frozen.n_heads + through[1]
            best.offer(*_children(bounds, reading, heads, split, only=it))
            above = (through[0] + 1) * frozen.n_heads
            longer[above:] = bound_longer(via, reading)[above:]
            children = [*([it] if through[0] else []), *range(above, n_below)]
        limits, threshold = (longer * slack).tolist(), best.threshold()
        for child in children:
            if (bound := float(limits[child])) > threshold:
                heapq.heappush(queue, (-bound, next(tie), ((child // frozen.n_heads, child % frozen.n_heads), *heads)))
            else:
                pruned = max(pruned, bound)
    frontier = max([pruned, *([-queue[0][0]] if queue else [])])
    logit = float(to.of(frozen.logits[position]))
    paths, ranking = best.ranking(frontier, logit if passing is None else passing[1])
    return TopPaths(
        **ranking,
        paths=paths,
        position=position,
        target=to.target,
        logit=logit,
        through=through,
        n_expanded=n_expanded,
        n_evaluated=best.n_seen,
        n_paths=n_paths(frozen, split, through),
    )


def _own(
    frozen: Frozen, bounds: Bounds, heads: tuple[Head, ...], nodes: dict[tuple[Head, ...], Tensor], root: Tensor
) -> Tensor:
    """∂ logit / ∂ values of the node's lowest head; its parent has been expanded and is remembered."""
    upper = heads[1:]
    g = root if not upper else bounds.gradient(upper[0], nodes[upper])
    nodes[heads] = bounds.head_values_gradient(heads[0], g)
    return nodes[heads]


def _direct(frozen: Frozen, position: int, root: Tensor, bias: float, split: bool) -> _Named:
    """The paths without heads."""
    names = frozen.source_names
    rows = [(root * x).sum(-1) for x in frozen.entering.values()]
    if frozen.has_bias:
        rows.append(root @ frozen.bias_before[-1] + frozen.pool[position] * bias)
    values = torch.stack(rows)
    n_pos = values.shape[1]
    if split:
        return values, lambda i: Path(names[i // n_pos], (), i % n_pos)
    return values.sum(1), lambda i: Path(names[i])


def _children(
    bounds: Bounds, reading: Reading, heads: tuple[Head, ...], split: bool, only: int | None = None
) -> _Named:
    """The contributions of the node's paths with one head more (`only` this): `[start]` or `[start, pos]`."""
    first, stop = (0, len(reading.u)) if only is None else (only, only + 1)
    starts = bounds.starts(first, stop)
    values = bounds.contributions(reading)[starts[:, 0], starts[:, 1]]
    return values if split else values.sum(-1), child_path(bounds, starts, heads)


def child_path(bounds: Bounds, starts: Int[Tensor, "start 2"], heads: tuple[Head, ...]) -> Callable[[int], Path]:
    """Return the function from an entry of `[start]`, or `[start, pos]` with split sources, to its path: `heads` and
    one more."""

    def path(i: int) -> Path:
        i, position = divmod(i, bounds.n_pos) if bounds.split else (i, None)
        source, f = starts[i].tolist()
        return Path(bounds.names[source], (divmod(f, bounds.n_heads), *heads), position)

    return path
