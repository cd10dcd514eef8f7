"""One process or many: what `torchrun` starts, joined and left again."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")

#: The time for which processes wait for each other: one of them measures and saves meanwhile.
_PATIENCE = timedelta(hours=1)


@dataclass(frozen=True)
class World:
    """This process among all of a run."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """True for the one process that prints, evaluates and saves."""
        return self.rank == 0

    def rows(self, batch: Tensor) -> Tensor:
        """Return this process's rows of a global batch; equal shares, so that the mean of means is the mean."""
        assert len(batch) % self.size == 0, "as `require_equal_shares` has found"
        share = len(batch) // self.size
        return batch[self.rank * share : (self.rank + 1) * share]

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a scalar over processes."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.size

    def require_equal_shares(self, batch_sizes: Iterable[int]) -> None:
        """Raise `ValueError` for batches that do not divide over the processes."""
        for rows in batch_sizes:
            if rows % self.size:
                raise ValueError(
                    f"a batch of {rows} rows does not divide over {self.size} processes: choose a batch_size that "
                    "does, or start another number of processes."
                )

    def require_alike(self, settings: Mapping[str, Any]) -> None:
        """Raise `ValueError`, in every process, unless all have the same settings; names what differs, and where."""
        if self.size == 1:
            return
        each: list[Any] = [None] * self.size
        dist.all_gather_object(each, (socket.gethostname(), dict(settings)))
        (first_host, first), *others = each
        for rank, (host, own) in enumerate(others, start=1):
            different = sorted(key for key in {*first, *own} if first.get(key) != own.get(key))
            if different:
                raise ValueError(
                    f"process {rank} on {host} was started with another {', '.join(different)} than process 0 on "
                    f"{first_host}: give every machine the same recipe, options, data and packages."
                )

    def on_leader(self, work: Callable[[], Value]) -> Value:
        """Return in all processes what `work` gives in the leading one; its `ValueError` is raised in all of them.

        So what lies on the disk of one machine decides for all.
        """
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.leads:
            try:
                outcome = [work(), None]
            except ValueError as error:
                outcome = [None, error]
        dist.broadcast_object_list(outcome)
        value, refusal = outcome
        if refusal is not None:
            raise refusal
        return value

    def copy_from_leader(self, tensor: Tensor) -> None:
        """Fill a tensor in place with that of the process that leads."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


def local_device(device: torch.device) -> torch.device:
    """Return the device of this process: under torchrun, each process of a machine takes the GPU of its own number."""
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    return device


def describe(device: torch.device) -> str:
    """Return the device in words, for a card."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return f"{processes} × {name}" if processes > 1 else name


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """Yield the world that torchrun describes in the environment, or a world of one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    # Objects always travel by gloo, so that a machine without a GPU among others with one is named, not waited for.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "cpu:gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
