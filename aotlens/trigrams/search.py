"""The best of all V³ triples, exactly.

A triple's score is x ∘ y, with x an increasing function of z[d, s] and y = ov[s, o]; ∘ is a product or a sum. So given
the source, destinations and outs separate: with both sorted best first, the triple of the i-th destination and the j-th
out can be among the k best only if (i + 1)(j + 1) ≤ k, and no triple of the source beats its first destination with its
first out. Hence:

1. The best ov of every source, and, where that could still matter, its best z: two streamed products.
2. Sources whose bound is below the k-th best of what has been reached are left out. At most k sources, and those within
   rounding of the k-th, remain.
3. Those few are worked out in float64, best bound first, until the next bound is below the k-th best found.

Products of step 1 are in float32, of rows brought near 1; a bound is widened by what rounding can do to it, some
inner · 2⁻²⁴ · ‖row‖ ‖column‖ (`aotlens.circuits.factors`, which also knows where PyTorch may shorten the inputs).

z may be given as an upper bound, with `Problem.excess` to say by how much it exceeds the truth: then only destinations
that could reach the k-th best by their bound are asked about. (A normaliser costs a product and an exp an entry; a
lower bound of it costs little.)

Where y is negative, a product is best with the smallest x: the order of destinations reverses. Such triples are ranked
after those with y > 0 and those with y = 0, and looked for only when there are fewer than k of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.factors import coefficient, input_unit

TILE = (1024, 1024)
_UNDERFLOW = 2.0**-126  # what flushing a float32 term to zero can cost, between rows near 1
_UNIT = 2.0**-53


class Columns(NamedTuple):
    """The right-hand rows of products, as `row_maxima` reads them."""

    rows: Tensor
    exponent: int
    longest: float


def columns_of(right: Tensor, kind: torch.dtype) -> Columns:
    """Return `right` in `kind`: float32 where it is, float64 on the CPU."""
    right = right.to(right.device if kind == torch.float32 else torch.device("cpu"))
    exponent = int(_exponents(right).max(initial=0)) if len(right) else 0
    rows = _times_power(right, torch.full((len(right), 1), -exponent)).to(kind)
    return Columns(rows, exponent, float(norms(rows).max(initial=0.0)))


def row_maxima(
    left: Tensor, columns: Columns, mask: Callable[[Tensor], Tensor] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest (admitted) entry of every row of left @ right.T, and how far rounding may have moved it."""
    right, kind, device = columns.rows, columns.rows.dtype, columns.rows.device
    exponents = _exponents(left)
    left = _times_power(left.to(device), torch.from_numpy(-exponents)[:, None]).to(kind)
    best = torch.full((len(left),), -torch.inf, dtype=kind, device=device)
    buffer = torch.empty(TILE[0] * TILE[1], dtype=kind, device=device)  # a fresh tile each time costs page faults
    for start in range(0, len(left), TILE[0]):
        rows = left[start : start + TILE[0]]
        into = best[start : start + len(rows)]
        for part in right.split(TILE[1]):
            tile = torch.mm(rows, part.T, out=buffer[: len(rows) * len(part)].view(len(rows), len(part)))
            torch.maximum(into, (mask(tile) if mask else tile).amax(1), out=into)
    if bool(best.isnan().any()):
        raise ValueError("the circuits have entries that are not finite; is some weight not?")
    unit = coefficient(left.shape[1], input_unit(device)) if kind == torch.float32 else _UNIT * (left.shape[1] + 4)
    slack = 1.01 * (unit * norms(left) * columns.longest + left.shape[1] * _UNDERFLOW)
    back = exponents + columns.exponent
    return np.ldexp(best.cpu().double().numpy(), back), np.ldexp(slack, back)


def _exponents(rows: Tensor) -> Int64[np.ndarray, " row"]:
    """Return for every row e with its largest magnitude in [2^(e−1), 2^e); 0 for a row of zeros."""
    if not rows.shape[1]:
        return np.zeros(len(rows), dtype=np.int64)
    return np.frexp(rows.abs().amax(1).cpu().double().numpy())[1].astype(np.int64)


def _times_power(rows: Tensor, exponents: Tensor) -> Tensor:
    """rows · 2^exponents, in two steps, either of which the dtype has room for."""
    half = exponents // 2
    for part in (half, exponents - half):
        rows = rows * torch.exp2(part.to(torch.float32)).to(rows) if rows.dtype != torch.float64 else (
            rows * torch.exp2(part.to(torch.float64)).to(rows.device)
        )  # fmt: skip
    return rows


def norms(rows: Tensor) -> Float64[np.ndarray, " row"]:
    """Return the norm of every row, in float64."""
    return rows.cpu().double().norm(dim=1).numpy()


_FEW = 32


class Triples(NamedTuple):
    """Row numbers of the factors (not token ids), best first, with z (nats), ov (logits) and the score."""

    source: Int64[np.ndarray, " k"]
    destination: Int64[np.ndarray, " k"]
    out: Int64[np.ndarray, " k"]
    z: Float64[np.ndarray, " k"]
    ov: Float64[np.ndarray, " k"]
    value: Float64[np.ndarray, " k"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Maximise combine(x(z), y) over triples, z = key · query and y = value · out.

    `product` says which ∘ it is; `positive_z` admits z > 0 only.
    """

    query: Tensor  # [destination, inner]
    key: Tensor  # [source, inner]
    value: Tensor  # [source, inner']
    out: Tensor  # [out, inner']
    x: Callable[[np.ndarray], np.ndarray]
    product: bool
    positive_z: bool = False
    excess: Callable[[np.ndarray], np.ndarray] | None = None
    """The excess of z of these destinations above the truth (≥ 0); only with x increasing in key · query, and 1 as the
    last number of every key."""

    def combine(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the score; −∞ where z or y is."""
        x = self.x(z)
        with np.errstate(invalid="ignore"):
            total = x * y if self.product else x + y
        return np.where(np.isneginf(y) | np.isnan(total), -np.inf, total)


@torch.no_grad()
def best_triples(problem: Problem, k: int) -> Triples:
    """Return the k best triples (fewer if fewer exist), ties by source, destination, out.

    Time: the two products, less what bounds spare, and k / n_sources of each again in float64. Memory: the factors in
    float64 and tiles. Triples whose scores differ by less than float64 rounding may change places.
    """
    if not problem.product:
        return _search(problem, k, sign=0)
    best = _search(problem, k, sign=1)
    if len(best.value) < k and problem.excess is not None:
        query = problem.query.clone()
        query[:, -1] -= torch.from_numpy(problem.excess(np.arange(len(query)))).to(query)
        problem = replace(problem, query=query, excess=None)
    for sign in (None, -1):
        missing = k - len(best.value)
        if missing:
            more = _zeros(problem, missing) if sign is None else _search(problem, missing, sign=sign)
            best = Triples(*(np.concatenate(pair) for pair in zip(best, more, strict=True)))
    return best


def _search(problem: Problem, k: int, sign: int) -> Triples:
    """The best triples among those with y of this sign (0: any)."""
    z_sign = -1 if sign < 0 else 1
    kind = torch.float64 if sign < 0 else torch.float32  # masks need the sign itself, not a bound of the value
    longest_query = float(norms(problem.query).max(initial=0.0))
    best_y, slack_y = row_maxima(problem.value, columns_of(problem.out, kind), _below_zero if sign < 0 else None)
    upper_y = np.minimum(best_y + slack_y, 0.0) if sign < 0 else best_y + slack_y
    lower_y = best_y - slack_y
    reach = norms(problem.key) * longest_query
    optimistic = problem.combine(z_sign * reach, upper_y)
    optimistic[upper_y <= 0 if sign > 0 else np.isneginf(upper_y)] = -np.inf
    bounds = np.full(len(optimistic), -np.inf)
    reached = np.empty(0)
    threshold = -np.inf
    order = np.argsort(-optimistic, kind="stable")
    query = columns_of(problem.query, kind)
    for batch in np.split(order, range(TILE[0], len(order), TILE[0])):
        batch = batch[(optimistic[batch] >= threshold) & (optimistic[batch] > -np.inf)]
        if not len(batch):
            break
        # The smallest z > 0 needs a mask; the largest z is the largest z > 0 wherever there is one.
        mask = _below_zero if problem.positive_z and z_sign < 0 else None
        key = problem.key[torch.from_numpy(batch).to(problem.key.device)] * z_sign
        best_t, slack_t = row_maxima(key, query, mask)
        bounds[batch] = np.where(
            np.isneginf(best_t), -np.inf, problem.combine(z_sign * (best_t + slack_t), upper_y[batch])
        )
        if problem.excess is not None:
            continue  # bounds are not attained
        attained = problem.combine(z_sign * (best_t - slack_t), lower_y[batch])
        certain = np.isfinite(best_t) & ((lower_y[batch] > 0) if sign > 0 else np.isfinite(lower_y[batch]))
        if problem.positive_z and z_sign > 0:
            bounds[batch[best_t + slack_t <= 0]] = -np.inf
            certain &= best_t - slack_t > 0
        reached = np.sort(np.append(reached, attained[certain]))[::-1][:k]
        threshold = reached[-1] if len(reached) == k else -np.inf
    if problem.excess is not None:
        threshold = _reached(problem, k, sign, bounds)
    return _expand(problem, k, sign, bounds, threshold)


def _reached(problem: Problem, k: int, sign: int, bounds: np.ndarray) -> float:
    """A score that k triples reach: of the most promising sources with their most promising destinations and outs."""
    assert problem.excess is not None
    sources = torch.from_numpy(np.argsort(-bounds, kind="stable")[:_FEW])
    t = problem.key[sources.to(problem.key.device)].cpu().double() @ problem.query.cpu().double().T
    y = problem.value[sources.to(problem.value.device)].cpu().double() @ problem.out.cpu().double().T
    best = t.topk(min(_FEW, t.shape[1]), dim=1)
    z = best.values.numpy() - _excess(problem, best.indices.numpy())
    outs = y.topk(min(k, y.shape[1]), dim=1).values.numpy()
    values = problem.combine(z[:, :, None], outs[:, None, :])
    values[np.broadcast_to((z[:, :, None] <= 0) & problem.positive_z | (outs[:, None, :] <= 0) & (sign > 0),
                           values.shape)] = -np.inf  # fmt: skip
    flat = values[np.isfinite(values)]
    if len(flat) < k:
        return -np.inf
    kth = float(np.partition(flat, len(flat) - k)[len(flat) - k])
    return kth - 1e-9 * abs(kth) - 1e-12  # the same triple, in another product, may differ in its last bit


def _excess(problem: Problem, destinations: np.ndarray) -> np.ndarray:
    """`problem.excess`, each destination asked about once; 0 where z is the truth."""
    if problem.excess is None:
        return np.zeros(destinations.shape)
    distinct, index = np.unique(destinations, return_inverse=True)
    return problem.excess(distinct)[index].reshape(destinations.shape)


def _expand(problem: Problem, k: int, sign: int, bounds: np.ndarray, threshold: float) -> Triples:
    """Work out the sources with the best bounds in float64, until no bound reaches the k-th best score."""
    z_sign = -1 if sign < 0 else 1
    order = np.argsort(-bounds, kind="stable")
    order = order[bounds[order] > -np.inf]
    best = _nothing()
    query, out = (factor.cpu().double() for factor in (problem.query, problem.out))
    start, size = 0, 1  # the first few sources already give a threshold
    while start < len(order):
        chunk = order[start : start + size]
        chunk = chunk[bounds[chunk] >= threshold]
        if not len(chunk):
            break
        sources = torch.from_numpy(chunk)
        t = z_sign * (problem.key[sources.to(problem.key.device)].cpu().double() @ query.T)
        y = problem.value[sources.to(problem.value.device)].cpu().double() @ out.T
        if problem.positive_z:
            t = t.masked_fill(t * z_sign <= 0, -torch.inf)
        if sign:
            y = y.masked_fill(y * sign <= 0, -torch.inf)
        promising = list(_promising(problem, z_sign, t, y, threshold))
        everywhere = np.concatenate([np.empty(0, dtype=np.int64), *(part[1] for part in promising)])
        excess = np.split(_excess(problem, everywhere), np.cumsum([len(part[1]) for part in promising]))
        parts = []
        for (row, destinations, t_row, outs, y_row), above in zip(promising, excess[:-1], strict=True):
            z = z_sign * t_row - above
            if problem.excess is not None and problem.positive_z:
                destinations, z = destinations[z > 0], z[z > 0]
            parts.append(_of_source(problem, k, z_sign, int(chunk[row]), destinations, z, outs, y_row, threshold))
        every = Triples(*(np.concatenate(columns) for columns in zip(best, *parts, strict=True)))
        ranked = np.lexsort((every.out, every.destination, every.source, -every.value))[:k]
        best = Triples(*(column[ranked] for column in every))
        if len(best.value) == k:
            threshold = max(threshold, float(best.value[-1]))
        start, size = start + size, min(4 * size, 64)
    return best


def _promising(
    problem: Problem, z_sign: int, t: Tensor, y: Tensor, threshold: float
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for every source the destinations (with t = ± z) that reach `threshold` with its best out, and the outs
    likewise; t and y are −∞ if not admitted."""
    best_t, best_y = t.amax(1).numpy(), y.amax(1).numpy()
    rows = np.flatnonzero(np.isfinite(best_t) & np.isfinite(best_y))
    if not len(rows):
        return
    t, y, best_t, best_y = t[rows], y[rows], best_t[rows], best_y[rows]
    reach_t, reach_y = (float(values[values.isfinite()].abs().max()) + 1.0 for values in (t, y))
    least_t = _cut(lambda middle: problem.combine(z_sign * middle, best_y), -reach_t, best_t, threshold)
    least_y = _cut(lambda middle: problem.combine(z_sign * best_t, middle), -reach_y, best_y, threshold)
    destinations, outs = (_at_least(values, least) for values, least in ((t, least_t), (y, least_y)))
    for i, row in enumerate(rows):
        yield int(row), destinations[i], t[i].numpy()[destinations[i]], outs[i], y[i].numpy()[outs[i]]


def _of_source(
    problem: Problem,
    k: int,
    z_sign: int,
    source: int,
    destinations: np.ndarray,
    z: np.ndarray,
    outs: np.ndarray,
    y: np.ndarray,
    threshold: float,
) -> Triples:
    """The triples of one source that can be among the k best and reach `threshold`."""
    # Attention saturates: destinations that differ in z may tie in x, and ties go by number.
    by_x, by_y = _first(destinations, z_sign * problem.x(z), k), _first(outs, y, k)
    per_row = np.minimum(k // np.arange(1, len(by_x) + 1), len(by_y))
    i = np.repeat(by_x, per_row)
    j = by_y[np.arange(len(i)) - np.repeat(np.cumsum(per_row) - per_row, per_row)]
    value = problem.combine(z[i], y[j])
    i, j, value = (column[value >= threshold] for column in (i, j, value))
    return Triples(np.full(len(i), source), destinations[i], outs[j], z[i], y[j], value)


def _at_least(values: Tensor, least: np.ndarray) -> list[np.ndarray]:
    """Return for every row the columns whose value is at least the row's `least` (and finite), ascending."""
    rows, columns = ((values >= torch.from_numpy(least)[:, None]) & (values > -torch.inf)).nonzero(as_tuple=True)
    return np.split(columns.numpy(), np.cumsum(np.bincount(rows.numpy(), minlength=len(values)))[:-1])


def _first(ids: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """Find the places of the k largest keys, best first, ties by id."""
    places = np.arange(len(ids))
    if len(places) > k:
        places = places[keys >= np.partition(keys, len(keys) - k)[len(keys) - k]]
    return places[np.lexsort((ids[places], -keys[places]))][:k]


def _cut(
    score: Callable[[np.ndarray], np.ndarray], low: float, high: np.ndarray, threshold: float
) -> Float64[np.ndarray, " source"]:
    """Find by bisection a point for every source below which the rising `score` is below `threshold`; `low` at
    least."""
    lows = np.full(len(high), low)
    highs = high.copy()
    everywhere = score(lows) >= threshold
    for _ in range(40):
        middle = (lows + highs) / 2
        enough = score(middle) >= threshold
        highs = np.where(enough, middle, highs)
        lows = np.where(enough, lows, middle)
    return np.where(everywhere, low, lows)


def _zeros(problem: Problem, k: int) -> Triples:
    """The first k triples with y = 0: those of a source all tie."""
    triples, n = [_nothing()], 0
    query, out = (factor.cpu().double() for factor in (problem.query, problem.out))
    for source in range(len(problem.value)):
        y = (problem.value[source].cpu().double() @ out.T).numpy()
        outs = np.flatnonzero(y == 0)
        if not len(outs):
            continue
        z = (problem.key[source].cpu().double() @ query.T).numpy()
        destinations = np.flatnonzero(z > 0) if problem.positive_z else np.arange(len(z))
        destinations = destinations[: -(-(k - n) // len(outs))]  # all outs are zero where a source writes nothing
        d, o = (grid.ravel()[: k - n] for grid in np.meshgrid(destinations, outs, indexing="ij"))
        triples.append(Triples(np.full(len(d), source), d, o, z[d], y[o], np.zeros(len(d))))
        n += len(d)
        if n == k:
            break
    return Triples(*(np.concatenate(columns) for columns in zip(*triples, strict=True)))


def _below_zero(tile: Tensor) -> Tensor:
    return torch.where(tile < 0, tile, -torch.inf)


def _nothing() -> Triples:
    ids, numbers = np.empty(0, dtype=np.int64), np.empty(0)
    return Triples(ids, ids, ids, numbers, numbers, numbers)
