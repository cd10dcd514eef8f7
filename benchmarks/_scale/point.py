"""One measurement in a process of its own: seconds, and the memory that the analysis adds to a process with the model.

The processes are forked from a server that has the libraries loaded and has computed nothing, so that none pays their
import or sees what another's allocator kept. Where the system has no such server, each starts afresh.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

import aotlens
from benchmarks._scale.headline import HEADLINES
from benchmarks._scale.laws import DISTILLED_WINDOWS
from benchmarks._scale.shapes import TINY, Shape, untrained
from benchmarks.cache_memory import forget_peak, peak_bytes, resident_bytes

Figures = dict[str, Any]

#: Calls are repeated until they took this long together, so many at most; the fastest counts.
ENOUGH_SECONDS, MOST_CALLS = 2.0, 5


def measure(
    name: str,
    shape: Shape,
    *,
    checkpoint: str | None = None,
    device: str = "cpu",
    threads: int = 1,
    seconds: float = 60.0,
    memory_bytes: float = 6e9,
) -> Figures:
    """Measure the figures of one analysis at one shape, or why there are none.

    `{"cpu": seconds, "wall": seconds, "bytes": …, "calls": …}`: the fastest call's processor and wall time, and the
    peak of the process above its size before the first call. `{"failed": sentence}` where the library refuses, where
    memory would exceed `memory_bytes` (the model's own included), or where it runs three times longer than `seconds`.
    With `checkpoint` the model is that one instead of an untrained one of `shape`.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe(duplex=False)
    arguments = (theirs, name, shape, checkpoint, device, threads, memory_bytes)
    process = context.Process(target=_measure_here, args=arguments, daemon=True)
    process.start()
    theirs.close()
    longest = 3 * seconds + 60
    try:
        if not ours.poll(longest):
            return {"failed": f"ran past {longest:.0f} s"}
        return ours.recv()  # type: ignore[no-any-return]
    except EOFError:
        process.join(10)
        return {"failed": f"its process ended with status {process.exitcode}; was memory exhausted?"}
    finally:
        process.kill()
        process.join()
        ours.close()


def _measure_here(
    pipe: Connection, name: str, shape: Shape, checkpoint: str | None, device: str, threads: int, memory_bytes: float
) -> None:
    torch.set_num_threads(threads)
    try:
        _limit_memory(memory_bytes)
        pipe.send(_figures(name, shape, checkpoint, device))
    except (ValueError, RuntimeError, MemoryError) as error:
        message = " ".join(str(error).split())
        if "can't allocate memory" in message or isinstance(error, MemoryError):
            message = f"does not fit {memory_bytes / 1e9:g} GB"
        pipe.send({"failed": message[:200]})


def _limit_memory(n_bytes: float) -> None:
    """Limit memory beyond what the process has already; without effect where there are no such limits."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        in_use = resident_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (in_use + int(n_bytes), resource.getrlimit(resource.RLIMIT_DATA)[1]))


@torch.no_grad()
def _figures(name: str, shape: Shape, checkpoint: str | None, device: str) -> Figures:
    call = HEADLINES[name].call
    call(untrained(TINY, device), _ids(TINY, device))  # libraries load on first use
    model = untrained(shape, device) if checkpoint is None else aotlens.load(checkpoint, device).eval()
    ids = _ids(shape, device)
    note: Any = None

    def once() -> tuple[float, float]:
        nonlocal note
        wall, cpu = time.perf_counter(), time.process_time()
        note = call(model, ids)
        _wait(device)
        return time.process_time() - cpu, time.perf_counter() - wall

    first, n_bytes = _peak_of(once, device)
    calls = [first]
    while len(calls) < MOST_CALLS and sum(cpu for cpu, _ in calls) < ENOUGH_SECONDS:
        calls.append(once())
    cpu, wall = min(calls)
    figures = {"cpu": _rounded(cpu), "wall": _rounded(wall), "bytes": n_bytes, "calls": len(calls)}
    return figures if not isinstance(note, dict) else {**figures, **note}


def _peak_of(once: Callable[[], tuple[float, float]], device: str) -> tuple[tuple[float, float], int]:
    """Return what a call takes, and the bytes that it adds at its peak: of the device's memory on a GPU."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return once(), torch.cuda.max_memory_allocated() - before
    forget_peak()
    before = resident_bytes()
    taken = once()
    return taken, max(0, peak_bytes() - before)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _ids(shape: Shape, device: str) -> torch.Tensor:
    """Draw random tokens, as many windows as any analysis reads."""
    generator = torch.Generator().manual_seed(0)
    windows = (DISTILLED_WINDOWS, shape.tokens)
    return torch.randint(1, shape.vocabulary, windows, generator=generator).to(device)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
