"""Opening a folder of GPT-2 small's shape: seconds, and anonymous memory above the start, beside `transformers`.

    python -m benchmarks.importing [--quick] [--pairs 3] [--json PATH]

The folder is written with random weights, as Hugging Face writes one (497.8 MB in float32): once with
model.safetensors, once with pytorch_model.bin. Each opening is in a process of its own, which has imported what it
needs before. Memory is the largest anonymous memory (RssAnon, looked at every 2 ms; Linux only) above that before the
call, over the weights' bytes: what is mapped from the file is not counted, since the system can drop it.
`transformers` opens the folder in turn with ours; it maps safetensors and copies nothing until a weight is used, so
its share is near 0.

Expected: memory ours ÷ weights about 1.0 (at most 1.2), about a second. Half a minute a pair on 2 cores; `--quick`
opens a small model.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import _common

STATUS = Path("/proc/self/status")
OPENERS = ("ours", "transformers")


def write_folder(folder: Path, kind: str, quick: bool) -> int:
    """Write a folder as Hugging Face does; return the bytes of its weights."""
    import transformers

    sizes: dict[str, Any] = {"n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 1000} if quick else {}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    if kind == "model.safetensors":
        model.save_pretrained(folder)
    else:
        model.config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / kind)
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def anonymous_bytes() -> int:
    """Return the memory of this process that no file stands behind."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def open_here(which: str, folder: Path) -> dict[str, float]:
    """Return seconds, and the largest anonymous memory above that before, of opening the folder in this process."""
    import transformers

    import aotlens

    opener = {
        "ours": lambda: aotlens.load(folder, "cpu"),
        "transformers": lambda: transformers.GPT2LMHeadModel.from_pretrained(folder, local_files_only=True),
    }[which]
    with tempfile.TemporaryDirectory() as other:  # everything is imported, and nothing is left to be set up
        write_folder(Path(other), "model.safetensors", quick=True)
        aotlens.load(other, "cpu")
        transformers.GPT2LMHeadModel.from_pretrained(other, local_files_only=True)
    before, largest, done = anonymous_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal largest
        while not done.wait(0.002):
            largest = max(largest, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    model = opener()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    largest = max(largest, anonymous_bytes())
    assert sum(parameter.numel() for parameter in model.parameters()) > 0
    return {"seconds": seconds, "bytes": float(largest - before)}


def measure(which: str, folder: Path) -> dict[str, float]:
    """Run `open_here` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.importing", "--open", which, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--open", choices=OPENERS, help="open --folder in this process, and stop")
    options.add_argument("--folder", type=Path)
    arguments = options.parse_args(argv)
    if arguments.open:
        print(json.dumps(open_here(arguments.open, arguments.folder)))
        return 0
    if not STATUS.exists():
        print("Anonymous memory is measured on Linux only.", file=sys.stderr)
        return 1
    rows = []
    for kind in ("model.safetensors", "pytorch_model.bin"):
        with tempfile.TemporaryDirectory() as name:
            n_bytes = write_folder(Path(name), kind, arguments.quick)
            runs = [{which: measure(which, Path(name)) for which in OPENERS} for _ in range(arguments.pairs or 3)]
        memory = {which: statistics.median(run[which]["bytes"] for run in runs) for which in OPENERS}
        rows.append(
            {
                "file": kind,
                "weights (MB)": n_bytes / 1e6,
                "ours (s)": statistics.median(run["ours"]["seconds"] for run in runs),
                "transformers (s)": statistics.median(run["transformers"]["seconds"] for run in runs),
                "time ours ÷ transformers": statistics.median(
                    run["ours"]["seconds"] / run["transformers"]["seconds"] for run in runs
                ),
                "memory ours ÷ weights": memory["ours"] / n_bytes,
                "memory transformers ÷ weights": memory["transformers"] / n_bytes,
            }
        )
    _common.report("importing", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
