"""The k largest paths to one logit: best-first search backwards from it.

A node is the upper end of a path, the heads (f_1, …, f_m) nearest to the logit; it holds the gradient of the logit with
respect to the values of its lowest head, `[pos, d_head]`. Expanding it extends it by every head of every layer below,
in one batch, and so finds the exact contribution of each of those paths from each source. A bound on all longer paths
of a node (`aotlens.paths.bounds`) orders the queue. Once the best bound left is no larger than the k-th path found, the
search has proven its answer; before, it has proven the ranks whose contribution is at least that bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from aotlens.conventions import Head, head_name, signed
from aotlens.paths.best import Best, checked_search, slack_of
from aotlens.paths.bounds import Bounds, Reading, bound_longer, bounds_via, read_heads
from aotlens.paths.frozen import Frozen
from aotlens.paths.of_logit import unit_of
from aotlens.paths.path import Path
from aotlens.paths.single import n_paths
from aotlens.paths.streams import root_gradient
from aotlens.paths.target import direction
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

_Named: TypeAlias = tuple[Tensor, Callable[[int], Path]]


#: Rankings in words, next to a bound.
SENSES = {"abs": "in size", "pos": "for it", "neg": "against it"}


@dataclass(frozen=True, kw_only=True, eq=False)
class TopPaths(Result):
    """The largest paths found, largest first, and what is proven of them. Contributions in logits."""

    paths: tuple[Path, ...]
    values: tuple[float, ...]
    descriptions: tuple[str, ...] = ()
    """Each path in words, `PathExpansion.describe`."""
    end: str = "logits"
    """The end of each sentence: the logit in words."""
    position: int
    target: int | tuple[int, int]
    by: str
    logit: float
    """The model's own logit, or difference."""
    through: Head | None
    """The head that all of them pass; None where every path counts."""
    total: float
    """The sum of all paths: the logit, or `through` of the head. Exact."""
    remainder: float
    """total − Σ values: what all other paths add, with its sign."""
    n_proven: int
    """The number of first ranks that are proven: no path anywhere is larger."""
    bound: float
    """No single path (through the head) that is not here is larger than this: in size, for "pos" and "neg" in its own
    direction."""
    n_expanded: int
    """The number of nodes that were expanded."""
    n_evaluated: int
    """Paths whose contribution was computed."""
    n_paths: int
    """The number of paths (through the head)."""

    @property
    def headline(self) -> str:
        return f"{self.n_proven} of {len(self.paths)} ranks are exact; all other paths add {self.remainder:+.3f} logits"

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
        return (
            f"{among}.{together} Listed: {signed(self.total - self.remainder)}; the other {rest:,} together: "
            f"{signed(self.remainder)} {self.unit}. No single one of them is more than {self.bound:.3f} "
            f"{SENSES[self.by]}."
        )

    @property
    def unit(self) -> str:
        """The unit of a contribution."""
        return unit_of(self.target)

    @property
    def complete(self) -> bool:
        """Whether every rank is proven."""
        return self.n_proven == len(self.paths)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a path: rank (from 1), path (its sentence), source, source_position, heads, order, logits,
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

    Above that head's layer a node has no contributions of its own, and what a longer path through it can add is
    bounded from what the head writes on.

    Each expansion costs O(pos · d_model · d_head · heads below + pos² · d_head · heads below); the bounds cost, once an
    expansion of a prompt, O((L·H)² · d_head² · (d_model + pos)). Memory: the values of all heads, and a gradient
    `[pos, d_head]` for each node expanded.

    Raises `ValueError` for k or budget below 1 and for another `by`.
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
    paths = best.sorted()
    top = paths[:k]
    logit = float(to.of(frozen.logits[position]))
    total = logit if passing is None else passing[1]
    unreturned = max([frontier, *(key for key, *_ in paths[k:])])
    return TopPaths(
        paths=tuple(path for *_, path in top),
        values=tuple(value for _, _, value, _ in top),
        position=position,
        target=to.target,
        by=by,
        logit=logit,
        through=through,
        total=total,
        remainder=total - sum(value for _, _, value, _ in top),
        n_proven=sum(key >= frontier for key, *_ in top),
        bound=unreturned if unreturned > float("-inf") else 0.0,
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
    """Return entry i of `[start]`, or `[start, pos]` where sources are split, as the path that it is of.

    Each extends `heads` by one head, and starts at one source.
    """

    def path(i: int) -> Path:
        i, position = divmod(i, bounds.n_pos) if bounds.split else (i, None)
        source, f = starts[i].tolist()
        return Path(bounds.names[source], (divmod(f, bounds.n_heads), *heads), position)

    return path
