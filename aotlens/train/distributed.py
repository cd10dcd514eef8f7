"""One process or many: what `torchrun` starts, joined and left again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


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
        """This process's rows of a global batch; equal shares, so that the mean of means is the mean."""
        if len(batch) % self.size:
            raise ValueError(f"a batch of {len(batch)} rows does not divide over {self.size} processes.")
        share = len(batch) // self.size
        return batch[self.rank * share : (self.rank + 1) * share]

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a scalar over processes."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.size

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


def local_device(device: torch.device) -> torch.device:
    """Under torchrun, each process of a machine takes the GPU of its own number."""
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    return device


def describe(device: torch.device) -> str:
    """The device in words, for a card."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return f"{processes} × {name}" if processes > 1 else name


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """The world that torchrun describes in the environment, or a world of one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
