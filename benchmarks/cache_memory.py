"""`run_with_cache` of every attention pattern, against TransformerLens's native bridge: time and memory.

    python -m benchmarks.cache_memory [--quick] [--pairs 10] [--batch 1] [--json PATH]

Batch 1, 1,024 tokens, 12 layers, d_model 768: 604 MB of patterns. Time is measured in turn in one process.
Memory is the peak resident size of a fresh process minus its resident size before the call, for each model
in a process of its own. Patterns must be equal.

Expected: time ours ÷ bridge about 0.8 (at most 1.0), memory ours ÷ bridge about 0.9 (at most 1.05). About 2 minutes
on 2 cores and 4 GB; `--quick` takes half a minute, and its ratios mean little.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer
from benchmarks import _common

D_VOCAB = 1000
STATUS = Path("/proc/self/status")


def run(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """Run the model for every layer's pattern, and nothing else."""
    _, cache = model.run_with_cache(
        tokens, names_filter=lambda name: name.endswith("attn.hook_pattern"), return_cache_object=False
    )
    return cache


def prepare(n_pos: int, batch: int, quick: bool) -> tuple[AttentionOnlyTransformer, Tensor]:
    model = _common.build(_common.model_config(D_VOCAB, n_pos, quick=quick))
    return model, torch.randint(D_VOCAB, (batch, n_pos), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def measure_time(n_pos: int, batch: int, quick: bool, pairs: int) -> _common.Timing:
    model, tokens = prepare(n_pos, batch, quick)
    bridge = to_transformer_lens(model)
    ours, theirs = run(model, tokens), run(bridge, tokens)
    assert ours.keys() == theirs.keys() and len(ours) == model.cfg.n_layers
    for name, pattern in ours.items():
        torch.testing.assert_close(pattern, theirs[name], rtol=1e-5, atol=1e-5)
    del ours, theirs
    return _common.time_in_turn(lambda: run(model, tokens), lambda: run(bridge, tokens), pairs)


@torch.inference_mode()
def measure_memory_here(which: str, n_pos: int, batch: int, quick: bool) -> int:
    """Measure the bytes by which one call raises this process's peak above its resident size before."""
    model, tokens = prepare(n_pos, batch, quick)
    measured: Any = to_transformer_lens(model) if which == "bridge" else model
    del model
    forget_peak()
    before = resident_bytes()
    cache = run(measured, tokens)
    peak = peak_bytes()
    assert len(cache) == _common.model_config(D_VOCAB, n_pos, quick=quick).n_layers
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


def measure_memory(which: str, arguments: list[str]) -> int:
    """Run `measure_memory_here` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.cache_memory", "--memory-of", which, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1])["bytes"])


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--batch", type=int, default=1, help="sequences at once")
    options.add_argument("--memory-of", choices=["ours", "bridge"], help="measure one in this process, and stop")
    chosen = options.parse_args(argv)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    n_pos = 256 if chosen.quick else 1024
    if chosen.memory_of:
        print(json.dumps({"bytes": measure_memory_here(chosen.memory_of, n_pos, chosen.batch, chosen.quick)}))
        return 0
    passed_on = ["--batch", str(chosen.batch)] + ["--quick"] * chosen.quick
    passed_on += ["--threads", str(chosen.threads)] if chosen.threads else []
    ours, bridge = (measure_memory(which, passed_on) for which in ("ours", "bridge"))
    timing = measure_time(n_pos, chosen.batch, chosen.quick, chosen.pairs or (3 if chosen.quick else 10))
    row = {
        "batch": chosen.batch,
        "tokens": n_pos,
        "ours (s)": timing.first,
        "bridge (s)": timing.second,
        "time ours ÷ bridge": timing.ratio,
        "time ours ÷ bridge (processor time)": timing.cpu_ratio,
        "pairs": timing.pairs,
        "ours (MB)": ours / 1e6,
        "bridge (MB)": bridge / 1e6,
        "memory ours ÷ bridge": ours / bridge,
    }
    _common.report("cache_memory", [row], chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
