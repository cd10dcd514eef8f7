"""Long work in the background, one piece at a time: its progress, its end when somebody asks for it, its result."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["waiting", "running", "done", "failed", "stopped"]
Report = Callable[[int, int, str], None]

log = logging.getLogger("aotlens.app")


class Stopped(Exception):
    """Raised inside the work when somebody has asked for its end."""


@dataclass(kw_only=True)
class Job:
    """A piece of work. Only its own thread writes it, but for `stop`."""

    key: str
    label: str
    """What it is, for people."""
    state: State = "waiting"
    done: int = 0
    total: int = 0
    """0: nobody knows how much there is."""
    phase: str = ""
    result: Any = None
    error: str = ""
    stop: bool = False

    @property
    def active(self) -> bool:
        return self.state in ("waiting", "running")

    def report(self, done: int, total: int, phase: str) -> None:
        """Called by the work, often. Raises Stopped where it shall end."""
        if self.stop:
            raise Stopped
        self.done, self.total, self.phase = done, total, phase


class Jobs:
    """Jobs by key. A key that is under way or done isn't started again; one that failed or was stopped is."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def get(self, key: str) -> Job | None:
        """The job of that key, if there is one."""
        with self._lock:
            if key in self._jobs:
                self._jobs.move_to_end(key)
            return self._jobs.get(key)

    def start(self, key: str, label: str, work: Callable[[Report], Any]) -> Job:
        """Start `work(report)` in a thread, unless it is under way or done."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and (job.state == "done" or (job.active and not job.stop)):
                return job
            job = self._jobs[key] = Job(key=key, label=label)
            self._jobs.move_to_end(key)
            idle = [one for one, other in self._jobs.items() if not other.active]
            for one in idle[: max(len(idle) - self._kept, 0)]:
                del self._jobs[one]
        # A daemon: Ctrl+C on the server does not wait for it.
        threading.Thread(target=self._run, args=(job, work), daemon=True).start()
        return job

    def stop(self) -> None:
        """Ask for the end of all that is under way."""
        with self._lock:
            for job in self._jobs.values():
                job.stop = job.stop or job.active

    def running(self) -> Job | None:
        """The one whose turn it is."""
        with self._lock:
            return next((job for job in self._jobs.values() if job.state == "running"), None)

    def _run(self, job: Job, work: Callable[[Report], Any]) -> None:
        with self._turn:
            try:
                job.report(0, 0, "")
                job.state = "running"
                job.result = work(job.report)
                job.state = "done"
            except Stopped:
                job.state = "stopped"
            except ValueError as error:
                job.error = str(error)
                job.state = "failed"
            except Exception as error:
                log.exception("%s failed", job.label)
                job.error = f"{type(error).__name__}: {error}. The terminal in which the app runs has the details."
                job.state = "failed"
