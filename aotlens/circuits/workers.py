"""Work shared among threads of ours, one a core, each with buffers of its own.

PyTorch's own threads meet after every operation, and a streamed search is made of thousands of small ones: on two cores
that took twice the time of a search whose two halves never meet.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

#: Entries below which a search is not worth sharing.
LEAST_ENTRIES = 2**24


def n_workers(device: torch.device, n_entries: int) -> int:
    """As many as PyTorch would take threads, for a search over `n_entries` on a CPU; 1 elsewhere or for a small one."""
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
