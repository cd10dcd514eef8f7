"""The common parts of the measurements: paired timing, a table, and a JSON file."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig

#: Memory of this process, on Linux.
STATUS = Path("/proc/self/status")

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Two functions timed in turn: medians in seconds, and medians of the ratios of each pair."""

    first: float
    second: float
    ratio: float
    cpu_ratio: float
    """The same ratio of processor time, which other programs on the machine disturb less."""
    pairs: int

    def row(self, first: str, second: str) -> dict[str, float]:
        """Return the columns of a table: both times, and the first over the second."""
        ratio = f"{first} ÷ {second}"
        return {
            f"{first} (s)": self.first, f"{second} (s)": self.second, ratio: self.ratio,
            f"{ratio} (processor time)": self.cpu_ratio, "pairs": self.pairs,
        }  # fmt: skip


def time_in_turn(first: Callable[[], Any], second: Callable[[], Any], pairs: int) -> Timing:
    """Time `first` and `second` alternately, after one unmeasured call of each; who begins alternates too."""
    first(), second()
    wall: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    for pair in range(pairs):
        order = (first, second) if pair % 2 == 0 else (second, first)
        timed = {function: _time(function) for function in order}
        wall.append((timed[first][0], timed[second][0]))
        cpu.append((timed[first][1], timed[second][1]))
    return Timing(
        first=statistics.median(a for a, _ in wall),
        second=statistics.median(b for _, b in wall),
        ratio=statistics.median(a / b for a, b in wall),
        cpu_ratio=statistics.median(a / b for a, b in cpu),
        pairs=pairs,
    )


def _time(function: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


class Options(argparse.ArgumentParser):
    """Options of a measurement; `--threads` is set when they are parsed."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        values = super().parse_args(args, namespace)
        if values.threads:
            torch.set_num_threads(values.threads)
        return values


def parser(description: str | None) -> Options:
    """Return options that every measurement of a model has; `--quick` is a small model and few pairs."""
    options = Options(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a small model: does it run, not how fast")
    options.add_argument("--pairs", type=int, help="pairs of runs whose median counts")
    options.add_argument("--threads", type=int, help="threads of PyTorch (default: its own choice)")
    options.add_argument("--json", type=Path, metavar="PATH", help="write the figures to a file as well")
    return options


def model_config(d_vocab: int, n_ctx: int, *, quick: bool, bias: bool = True) -> ModelConfig:
    """Return a configuration: 12 layers, 12 heads of 64 and d_model 768; with `quick` 2 layers, 2 heads and 128."""
    n_layers, n_heads = (2, 2) if quick else (12, 12)
    return ModelConfig(
        n_layers=n_layers, d_model=64 * n_heads, n_heads=n_heads, d_head=64, d_vocab=d_vocab, n_ctx=n_ctx,
        bias=bias,
    )  # fmt: skip


def build(cfg: ModelConfig) -> AttentionOnlyTransformer:
    """Build the model with noise on its biases and gains too, ready to be measured."""
    model = AttentionOnlyTransformer(cfg).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.rsplit(".", 1)[-1].startswith(("b", "w")):
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a Chromium that asks no proxy and fetches nothing of its own. Ends the program where there is none."""
    path = os.environ.get("AOTLENS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("Chromium was not found: apt-get install chromium, or set AOTLENS_CHROMIUM.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--no-proxy-server", "--disable-background-networking"]
        )
        yield browser
        browser.close()


def added_bytes(prepare: Callable[..., Callable[[], Any]], *arguments: Any) -> int:
    """Return the bytes that a call adds at its peak to a fresh process, where `prepare(*arguments)` returns it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_added_here, (prepare, arguments, torch.get_num_threads()))


def _added_here(prepare: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...], threads: int) -> int:
    torch.set_num_threads(threads)
    with torch.inference_mode():
        call = prepare(*arguments)
        forget_peak()
        before = resident_bytes()
        result = call()  # held until the peak is read
        peak = peak_bytes()
    del result
    return peak - before


def forget_peak() -> None:
    """Let `peak_bytes` count from here (on Linux), and give what was freed back to the system.

    Otherwise a call would fill what was freed unseen.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def resident_bytes() -> int:
    return _status("VmRSS") if STATUS.exists() else _largest_resident()


def peak_bytes() -> int:
    return _status("VmHWM") if STATUS.exists() else _largest_resident()


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _largest_resident() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def report(name: str, rows: Sequence[dict[str, Any]], json_path: Path | None) -> None:
    """Print rows as a Markdown table, a column for what any of them has; with a path, add them to that file under the
    measurement's name."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print(" | ".join(columns))
    print(" | ".join("---" for _ in columns))
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        print(" | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    if json_path is not None:
        figures = json.loads(json_path.read_text()) if json_path.exists() else {}
        figures[name] = {"machine": machine(), "rows": list(rows)}
        json_path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


def machine() -> dict[str, Any]:
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def main_until(events: list[dict[str, Any]], mark: str) -> float:
    """Return milliseconds of a thread's tasks before it set a mark, from Chrome's trace."""
    marked = next(event for event in events if event["name"] == mark)
    thread = [event for event in events if (event["pid"], event["tid"]) == (marked["pid"], marked["tid"])]
    tasks = (event for event in thread if event["name"].endswith("RunTask") and event["ts"] < marked["ts"])
    return sum(float(event.get("tdur", 0)) for event in tasks) / 1000
