"""The best candidates so far, exactly ordered."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

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
