"""A cell in a process of its own, on this machine or on a worker of a cluster: killed, it is one failed cell.

A task that ends its own Dask worker would be sent to the next until joblib waits for ever, and one that ends a process
of joblib's own pool ends the run; so whatever runs a cell only waits for a process of the cell's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from aotlens.sweeps.child import INPUTS, OUTCOME
from aotlens.sweeps.store import Job, Outcome
from aotlens.untrusted import read_regular, strict_json

_LOG_CHARACTERS = 4000
#: Seconds between looks at whether the sweep that a cell belongs to still runs.
_LOOK = 1.0
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
                end(process)

    def ended(self, sweep: str, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running[sweep].discard(process)

    def stop(self, sweep: str) -> None:
        """End the processes of a sweep, and those that it would still start."""
        with self._lock:
            self._stopped.add(sweep)
            for process in self._running.get(sweep, ()):
                end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a cell's process and those that it has started, which would go on without it."""
    if os.name == "nt":
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


CHILDREN = Children()


def run_job(job: Job, sweep: str) -> Outcome:
    """Run a cell in a fresh process with its threads and its seed, and wait for it; what it raises is recorded.

    So is a full disk here, on which the cell's files find no room.
    """
    began = time.perf_counter()
    try:
        return _run(job, sweep, began)
    except OSError as error:
        why = f"its process could not be run, or its result not be read ({error})."
        seconds = time.perf_counter() - began
        return Outcome(key=job.key, label=job.label, identity=job.identity, error=why, seconds=seconds)


def _run(job: Job, sweep: str, began: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="aotlens-sweep-") as temporary:
        folder = Path(temporary)
        (folder / "job.json").write_text(json.dumps(job.described()), encoding="utf-8")
        if job.inputs is not None:
            job.inputs.save(folder / INPUTS)
        if job.archive is not None:
            (folder / "checkpoint.tar").write_bytes(job.archive)
        outcome = _read(folder, _wait(folder, job, sweep), job.time_limit)
        trained = folder / "trained.tar"
        return Outcome(
            key=job.key,
            label=job.label,
            identity=job.identity,
            error=outcome.get("error"),
            log=_end_of(folder / "log.txt") if outcome.get("error") else "",
            seconds=time.perf_counter() - began,
            device=outcome.get("device", ""),
            columns=outcome.get("columns"),
            archive=trained.read_bytes() if trained.exists() and not outcome.get("error") else None,
        )


def _end_of(log: Path) -> str:
    """The last of what a cell printed, which may be more than memory holds."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4 * _LOG_CHARACTERS))
        return file.read().decode("utf-8", errors="replace")[-_LOG_CHARACTERS:]


def _wait(folder: Path, job: Job, sweep: str) -> int | None:
    """The exit status of the cell's process; None where its time was over."""
    own = {name: str(job.threads) for name in _THREADS} | {"PYTHONHASHSEED": str((job.seed or 0) % 2**32)}
    command = [sys.executable, "-m", "aotlens.sweeps.child", str(folder)]
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **own}, start_new_session=True
        )  # its stdin ends with this process, and the cell with it; what it starts ends with the cell's session
        CHILDREN.started(sweep, process)
        try:
            return _ended(process, job.time_limit, sweep)
        finally:
            end(process)
            process.wait()
            CHILDREN.ended(sweep, process)
            assert process.stdin is not None
            process.stdin.close()


def _ended(process: subprocess.Popen[bytes], time_limit: float | None, sweep: str) -> int | None:
    """The exit status of a process; None if its time is over, or if the sweep's own process was killed.

    A worker of a process pool outlives the sweep that is killed, and would keep the cell's stdin open.
    """
    began = time.perf_counter()
    watches = _is_from_here(sweep)
    while not (watches and not _is_alive(sweep)):
        left = _LOOK if time_limit is None else time_limit - (time.perf_counter() - began)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(max(0.0, min(left, _LOOK)))
        if left <= 0:
            return None
    return None


def sweep_name() -> str:
    """Return a name for a sweep that this process runs: it tells where it runs, and is like no other."""
    return f"{_place()}/{os.getpid()}/{uuid.uuid4().hex}"


def _place() -> str:
    """The machine, and on Linux the container, whose process numbers are those that are seen from here."""
    with suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _is_from_here(sweep: str) -> bool:
    """Whether a sweep's process can be watched: it runs on this machine, in the same container."""
    return os.name != "nt" and sweep.partition("/")[0] == _place()


def _is_alive(sweep: str) -> bool:
    """Whether the process of a sweep from here runs."""
    try:
        os.kill(int(sweep.split("/")[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(folder: Path, returned: int | None, time_limit: float | None) -> dict[str, Any]:
    path = folder / OUTCOME
    if returned is None:
        return {"error": f"it took longer than time_limit = {time_limit:g} seconds, and was ended."}
    if path.exists():
        outcome = strict_json(read_regular(path, kind="record"))
        return outcome if isinstance(outcome, dict) else {"error": f"its process left no result in {path.name}."}
    if returned < 0:
        known = {each.value: each.name for each in signal.Signals}
        name = known.get(-returned, f"signal {-returned}")
        hint = ", as the system does to a process when memory runs out" if name == "SIGKILL" else ""
        return {"error": f"its process was killed by {name}{hint}."}
    return {"error": f"its process ended with exit status {returned} and left no result."}
