"""The measured points, each in a process of its own, and the file from which a run resumes.

The processes are forked from a server that has the libraries loaded and has computed nothing, so none pays their import
or sees another's allocator. A system without such a server starts each afresh.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import aotlens
from aotlens.files import replacing_file
from benchmarks import _common
from benchmarks._common import forget_peak, peak_bytes, resident_bytes
from benchmarks._scale.analyses import DISTILLED_WINDOWS, HEADLINES, TINY, Headline, Shape, untrained

Figures = dict[str, Any]

#: Calls are repeated until they took this long together, so many at most; the fastest counts.
ENOUGH_SECONDS, MOST_CALLS = 2.0, 5


def measure(
    name: str,
    shape: Shape,
    *,
    device: str = "cpu",
    threads: int = 1,
    seconds: float = 60.0,
    memory_bytes: float = 6e9,
) -> Figures:
    """Measure the figures of one analysis at one shape, or why there are none.

    `{"cpu": seconds, "wall": seconds, "bytes": …, "calls": …}`: the fastest call's processor and wall time, and the
    peak of the process above its size before the first call. `{"failed": sentence}` where the library refuses, where
    memory would exceed `memory_bytes` (the model's own included), or where it runs three times longer than `seconds`.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe(duplex=False)
    arguments = (theirs, name, shape, device, threads, memory_bytes)
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


def _measure_here(pipe: Connection, name: str, shape: Shape, device: str, threads: int, memory_bytes: float) -> None:
    torch.set_num_threads(threads)
    try:
        _limit_memory(memory_bytes)
        pipe.send(_figures(name, shape, device))
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
def _figures(name: str, shape: Shape, device: str) -> Figures:
    call = HEADLINES[name].call
    call(untrained(TINY, device), _ids(TINY, device))  # libraries load on first use
    model = untrained(shape, device)
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


#: A shape that no series contains, with which the laws are compared.
CORNER = Shape(vocabulary=2000, layers=6, heads=6, width=768, tokens=192)


@dataclass(kw_only=True)
class Points:
    """Figures by point, and what they were measured with; a file has the same as JSON."""

    about: dict[str, Any]
    figures: dict[str, Figures] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def open(cls, path: Path | None, about: dict[str, Any]) -> Points:
        """Open the points of a file, where there is one already, to go on with.

        Raises `ValueError` where the file was measured with something else than `about` says.
        """
        points = cls(about=about, path=path)
        if path is not None and path.exists():
            stored = cls.read(path)
            different = sorted(name for name in about if stored.about.get(name) != about[name])
            if different:
                was, now = ({name: where.get(name) for name in different} for where in (stored.about, about))
                raise ValueError(
                    f"{path}: its points were measured with {was}, this run has {now}; give another --out, or the same "
                    "settings."
                )
            points.figures = stored.figures
        return points

    @classmethod
    def read(cls, path: Path) -> Points:
        """Read the points of a file. Raises `ValueError` for another file."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(about=stored["about"], figures=stored["points"], path=path)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: expected a file of `python -m benchmarks scale --out`; got {error}.") from error

    def add(self, key: str, figures: Figures) -> None:
        self.figures[key] = figures
        if self.path is not None:
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in self.figures.items())
            about = json.dumps(self.about)
            with replacing_file(self.path) as temporary:
                temporary.write_text(f'{{"about": {about},\n "points": {{\n{lines}\n}}}}\n', encoding="utf-8")

    @property
    def clock(self) -> str:
        """The figure that is fitted: processor time, but wall time on a GPU."""
        return "cpu" if self.about["device"] == "cpu" else "wall"

    def measured(self, key: str) -> Figures | None:
        """Return the figures of a point that was measured."""
        figures = self.figures.get(key)
        return figures if figures is not None and self.clock in figures else None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits of a point, and of a whole run."""

    seconds: float
    memory_bytes: float
    until: float = float("inf")
    """The time from which no more points are begun, on `time.monotonic`."""


def about(device: str, threads: int, quick: bool) -> dict[str, Any]:
    """Return what points must share to stand in one file."""
    machine = _common.machine()
    versions = {name: machine[name] for name in ("processor", "torch")}
    return {"aotlens": aotlens.__version__, **versions, "device": device, "threads": threads, "quick": quick}


def key_of(name: str, shape: Shape) -> str:
    """Return a point's name: the analysis and the shape."""
    return f"{name} {shape}"


def wanted(names: list[str], quick: bool) -> Iterator[tuple[str, list[Shape]]]:
    """Yield each analysis with the shapes of one series, smallest first, and then with the corner.

    With `quick` only the first axis of each analysis.
    """
    for name in names:
        headline = HEADLINES[name]
        for axis in headline.axes[:1] if quick else headline.axes:
            yield name, headline.series(axis, quick)
        if not quick:
            yield name, [headline.middle, CORNER]


def run(points: Points, names: list[str], bounds: Bounds, say: Callable[[str], None]) -> bool:
    """Measure missing points; False if the time was over before all were considered."""
    for name, shapes in wanted(names, points.about["quick"]):
        last: tuple[Shape, Figures] | None = None
        for shape in shapes:
            key = key_of(name, shape)
            if points.measured(key) is None and "failed" not in points.figures.get(key, {}):
                why = too_large(HEADLINES[name], shape, last, points.clock, bounds)
                if why is None and time.monotonic() > bounds.until:
                    return False
                points.add(key, {"skipped": why} if why else _measure(name, shape, points, bounds))
                say(f"{key}: {points.figures[key]}")
            if (known := points.measured(key)) is not None:
                last = shape, known
    return True


def _measure(name: str, shape: Shape, points: Points, bounds: Bounds) -> Figures:
    device, threads = points.about["device"], points.about["threads"]
    return measure(
        name, shape, device=device, threads=threads, seconds=bounds.seconds, memory_bytes=bounds.memory_bytes
    )


def too_large(
    headline: Headline, shape: Shape, last: tuple[Shape, Figures] | None, clock: str, bounds: Bounds
) -> str | None:
    """Say why a point is not measured, by the law from the last one of its series, or None."""
    memory = 4.0 * shape.n_weights
    if last is not None:
        before, figures = last
        seconds = figures[clock] * headline.operations(shape) / headline.operations(before)
        if seconds > bounds.seconds:
            return f"predicted {seconds:.0f} s, above {bounds.seconds:.0f} s"
        memory += figures["bytes"] * headline.bytes(shape) / headline.bytes(before)
    if memory > bounds.memory_bytes:
        return f"predicted {memory / 1e9:.1f} GB, above {bounds.memory_bytes / 1e9:.1f} GB"
    return None
