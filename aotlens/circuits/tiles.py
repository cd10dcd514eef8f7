"""Tiles of a factored matrix's product, of which only the maxima of blocks are kept, shared among threads of ours; and
the best candidates so far.

PyTorch's own threads meet after every operation, and a streamed search is made of thousands of small ones: on two cores
that took twice the time of a search whose two halves never meet.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: A tile's rows and columns on a CPU: its product, 1 MB, stays in a core's own cache, whatever the others do.
CPU_TILE = (256, 1024)
#: The tile where Python does more for each tile than a few calls, and reads the product once: 4 MB.
LARGE_CPU_TILE = (512, 2048)
CUDA_TILE = (4096, 8192)


@dataclass(kw_only=True, eq=False)
class Tiles:
    """Products of `rows` by `columns` at most, in one buffer that is allocated once."""

    rows: int
    columns: int
    device: torch.device
    _buffer: Tensor = field(init=False)
    _last: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._buffer = torch.empty(self.rows * self.columns, dtype=torch.float32, device=self.device)

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return `left @ right.T` `[rows, columns]`, float32, until the next call."""
        shape = (len(left), len(right))
        return torch.mm(left, right.T, out=self._buffer[: shape[0] * shape[1]].view(shape))

    def maxima(self, left: Tensor, right: Tensor, block: int) -> Tensor:
        """Return the largest of every `block` consecutive entries of each row of `left @ right.T`: `[rows, blocks]`."""
        self._last = self.product(left, right)
        return block_maxima(self._last, block)

    def some_rows(self, rows: Tensor) -> Tensor:
        """Return these rows of the product that `maxima` was last asked about."""
        return self._last.index_select(0, rows)


def block_maxima(values: Tensor, block: int) -> Tensor:
    """Return the largest of every `block` consecutive entries of each row; the last block may be shorter."""
    n_rows, n_columns = values.shape
    whole = n_columns // block * block
    result = torch.empty(n_rows, -(-n_columns // block), dtype=values.dtype, device=values.device)
    if whole:
        torch.amax(values[:, :whole].unflatten(1, (-1, block)), 2, out=result[:, : whole // block])
    if whole < n_columns:
        torch.amax(values[:, whole:], 1, out=result[:, -1])
    return result


def tile_sizes(
    n_rows: int, n_columns: int, max_bytes: int, *, device: torch.device, on_cpu: tuple[int, int] = CPU_TILE
) -> tuple[int, int]:
    """Return rows and columns (a power of two) of a tile whose product, and maxima of it, fit `max_bytes`."""
    rows, columns = on_cpu if device.type == "cpu" else CUDA_TILE
    rows, columns = min(rows, n_rows), min(columns, 1 << (n_columns - 1).bit_length())
    while 8 * rows * columns > max_bytes and rows * columns > 1:  # 4 bytes an entry, and maxima
        if columns > 64 or rows == 1:
            columns //= 2
        else:
            rows //= 2
    return rows, columns


#: Entries below which a search is not worth sharing.
LEAST_ENTRIES = 2**24


def n_workers(device: torch.device, n_entries: int) -> int:
    """Return PyTorch's number of threads, for a search over `n_entries` on a CPU; 1 elsewhere or for a small one."""
    return torch.get_num_threads() if device.type == "cpu" and n_entries >= LEAST_ENTRIES else 1


def share(work: Callable[[int], None], n: int) -> None:
    """Run `work(0)` … `work(n − 1)` at once, each with one thread of PyTorch's; the first error is raised again."""
    if n == 1:
        work(0)
        return
    threads, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def alone(worker: int) -> None:
        torch.set_num_threads(1)  # this thread's, and the default of threads to come: put back below
        with torch.inference_mode(inference), torch.no_grad():  # a thread starts outside of both
            work(worker)

    try:
        with ThreadPoolExecutor(n) as pool:
            for finished in [pool.submit(alone, worker) for worker in range(n)]:
                finished.result()
    finally:
        torch.set_num_threads(threads)


#: Bytes that merging takes for each candidate, old or new: three arrays of 8 bytes, their copies and two sorts.
MERGE_BYTES = 120


@dataclass(kw_only=True, eq=False)
class Best:
    """The `k` candidates with the largest values of each group; equal ones in the order of their keys.

    Kept flat, group after group, best first. `ordered_keys` promises that of one group's candidates those with
    smaller keys come first, in one merge and from merge to merge, and saves a sort.
    """

    k: int
    device: torch.device
    ordered_keys: bool = False
    group: Tensor = field(init=False)
    key: Tensor = field(init=False)
    value: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.group = torch.empty(0, dtype=torch.int64, device=self.device)
        self.key = torch.empty(0, dtype=torch.int64, device=self.device)
        self.value = torch.empty(0, dtype=torch.float64, device=self.device)

    def merge(self, group: Tensor, key: Tensor, value: Tensor) -> None:
        """Take int64 `group` and `key` and float64 `value`, one of each per candidate."""
        group, key, value = (torch.cat(pair) for pair in ((self.group, group), (self.key, key), (self.value, value)))
        if not self.ordered_keys:
            group, key, value = _take(key.argsort(), group, key, value)
        # Stable sorts, the last the most important.
        group, key, value = _take(value.sort(descending=True, stable=True).indices, group, key, value)
        group, key, value = _take(group.sort(stable=True).indices, group, key, value)
        is_best = self._rank(group) < self.k
        self.group, self.key, self.value = group[is_best], key[is_best], value[is_best]

    def last_of_full(self) -> tuple[Tensor, Tensor]:
        """Return the groups that have k candidates, and the k-th best value of each."""
        last = self._rank(self.group) == self.k - 1
        return self.group[last], self.value[last]

    @staticmethod
    def _rank(group: Tensor) -> Tensor:
        """Each candidate's place in its group, from 0."""
        place = torch.arange(len(group), device=group.device)
        starts = torch.ones(len(group), dtype=torch.bool, device=group.device)
        starts[1:] = group[1:] != group[:-1]
        return place - torch.cummax(torch.where(starts, place, 0), 0).values if len(group) else place


def _take(order: Tensor, *arrays: Tensor) -> tuple[Tensor, ...]:
    return tuple(array[order] for array in arrays)
