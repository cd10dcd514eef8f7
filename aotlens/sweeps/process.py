"""A cell in a process of its own, on this machine or on a worker of a cluster: killed, it is one failed cell.

A task that ends its own Dask worker would be sent to the next until joblib waits for ever, and one that ends a process
of joblib's own pool ends the run; so whatever runs a cell only waits for a process of the cell's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from aotlens.sweeps.child import OUTCOME
from aotlens.sweeps.job import Job, Outcome

_LOG_CHARACTERS = 4000
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Children:
    """The processes of a sweep's cells on this machine, so that a sweep that is stopped ends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, set[subprocess.Popen[bytes]]] = {}
        self._stopped: set[str] = set()

    def started(self, sweep: str, process: subprocess.Popen[bytes]) -> None:
        """Remember a process; end it at once where its sweep was stopped."""
        with self._lock:
            self._running.setdefault(sweep, set()).add(process)
            if sweep in self._stopped:
                process.kill()

    def ended(self, sweep: str, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running[sweep].discard(process)

    def stop(self, sweep: str) -> None:
        """End the processes of a sweep, and those that it would still start."""
        with self._lock:
            self._stopped.add(sweep)
            for process in self._running.get(sweep, ()):
                process.kill()


CHILDREN = Children()


def run_job(job: Job, sweep: str) -> Outcome:
    """Run a cell in a fresh process with its threads and its seed, and wait for it; what it raises is recorded."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="aotlens-sweep-") as temporary:
        folder = Path(temporary)
        (folder / "job.json").write_text(json.dumps(job.described()), encoding="utf-8")
        if job.tokens is not None:
            np.save(folder / "tokens.npy", job.tokens)
        if job.archive is not None:
            (folder / "checkpoint.tar").write_bytes(job.archive)
        returned = _wait(folder, job, sweep)
        outcome = _read(folder, returned)
        log = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        trained = folder / "trained.tar"
        return Outcome(
            key=job.key,
            label=job.label,
            identity=job.identity,
            error=outcome.get("error"),
            log=log[-_LOG_CHARACTERS:] if outcome.get("error") else "",
            seconds=time.perf_counter() - began,
            device=outcome.get("device", ""),
            columns=outcome.get("columns"),
            archive=trained.read_bytes() if trained.exists() and not outcome.get("error") else None,
        )


def _wait(folder: Path, job: Job, sweep: str) -> int:
    own = {name: str(job.threads) for name in _THREADS} | {"PYTHONHASHSEED": str((job.seed or 0) % 2**32)}
    command = [sys.executable, "-m", "aotlens.sweeps.child", str(folder)]
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **own}
        )  # its stdin ends with this process, and the cell with it
        CHILDREN.started(sweep, process)
        try:
            return process.wait()
        finally:
            CHILDREN.ended(sweep, process)
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def _read(folder: Path, returned: int) -> dict[str, Any]:
    path = folder / OUTCOME
    if path.exists():
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return outcome
    if returned < 0:
        name = signal.Signals(-returned).name
        hint = ", as the system does to a process when memory runs out" if name == "SIGKILL" else ""
        return {"error": f"its process was killed by {name}{hint}."}
    return {"error": f"its process ended with exit status {returned} and left no result."}
