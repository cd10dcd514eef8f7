"""Long work in the background, one piece at a time: its progress, its end when those who wait ask for it, its result.

Work belongs to the browser sessions (sessions.py) that asked for it. Who asks for what another session has asked for
shares it; who stops it stops waiting, and it ends when nobody waits any more.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from aotlens.files import WriteError
from app.core.cache import Memory
from app.core.errors import RequestError, logged, not_kept, out_of_memory
from app.core.sizes import held_by

State = Literal["waiting", "running", "done", "failed", "stopped"]
Report = Callable[[int, int, str], None]

log = logging.getLogger("aotlens.app")

#: Jobs of a page that run or wait for their turn, each in a thread.
MOST_ACTIVE = 32


class Stopped(Exception):
    """The error raised inside the work when somebody has asked for its end."""


class TookTooLong(Exception):
    """The error raised inside the work when it has had the longest time that there is for any."""


@dataclass(kw_only=True)
class Job:
    """A piece of work. Only its own thread writes it, but for `sessions` and `stop`."""

    key: str
    label: str
    """The name of the work, for people."""
    sessions: set[str] = field(default_factory=set)
    """The sessions that wait for it, or did when it ended."""
    state: State = "waiting"
    done: int = 0
    total: int = 0
    """The amount of work; 0: nobody knows how much there is."""
    phase: str = ""
    result: Any = None
    error: str = ""
    stop: bool = False
    ends: float = math.inf
    """The latest time of its end, by `time.monotonic()`."""

    @property
    def active(self) -> bool:
        return self.state in ("waiting", "running")

    def report(self, done: int, total: int, phase: str) -> None:
        """Report the work's progress; it calls this often. Raises Stopped or TookTooLong where it shall end."""
        if self.stop:
            raise Stopped
        if time.monotonic() > self.ends:
            raise TookTooLong
        self.done, self.total, self.phase = done, total, phase


class Jobs:
    """Jobs by key. A key that is under way or done isn't started again; one that failed or was stopped is."""

    def __init__(self, kept: int, memory: Memory, seconds: float) -> None:
        self._kept, self._memory, self._seconds = kept, memory, seconds
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def get(self, key: str) -> Job | None:
        """Return the job of that key, if there is one."""
        with self._lock:
            if key in self._jobs:
                self._jobs.move_to_end(key)
            job = self._jobs.get(key)
        self._memory.used(self, key)
        return job

    def forget(self, key: str) -> None:
        """Drop a job that has ended, whose result no longer fits into memory."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and not job.active:
                del self._jobs[key]

    def start(self, key: str, label: str, work: Callable[[Report], Any], *, session: str = "") -> Job:
        """Start `work(report)` in a thread, unless it is under way or done: then `session` shares it.

        Raises RequestError where `MOST_ACTIVE` are under way.
        """
        with self._memory.lock, self._lock:  # in this order, which is that of `forget`
            job = self._jobs.get(key)
            if job is not None and (job.state == "done" or (job.active and not job.stop)):
                job.sessions.add(session)
                return job
            if sum(other.active for other in self._jobs.values()) >= MOST_ACTIVE:
                raise RequestError(
                    f"{MOST_ACTIVE} pieces of such work wait for their turn, the most that may. Wait for one to end, "
                    "or stop one."
                )
            job = self._jobs[key] = Job(key=key, label=label, sessions={session})
            self._jobs.move_to_end(key)
            idle = [each for each, other in self._jobs.items() if not other.active]
            for old in idle[: max(len(idle) - self._kept, 0)]:
                del self._jobs[old]
                self._memory.release(self, old)
        # A daemon: Ctrl+C on the server does not wait for it.
        threading.Thread(target=self._run, args=(job, work), daemon=True).start()
        return job

    def stop(self, session: str | None = None) -> None:
        """Ask for the end of what only `session` waits for, and let it wait no more for what others wait for too.

        Without a session: the end of all that is under way.
        """
        with self._lock:
            for job in self._jobs.values():
                if not job.active or not (session is None or session in job.sessions):
                    continue
                if session is None or job.sessions == {session}:
                    job.stop = True
                else:
                    job.sessions.discard(session)

    def under_way(self, session: str = "") -> Job | None:
        """Find what a session waits for, what runs before what waits its turn; if nothing, what others wait for."""
        with self._lock:
            active = [job for job in self._jobs.values() if job.active]
        return min(active, key=lambda job: (session not in job.sessions, job.state != "running"), default=None)

    def watched(self, key: str | None, session: str) -> Job | None:
        """Return the job of a key, unless it goes on without the session; else what is under way, the session's own
        first."""
        job = self.get(key) if key else None
        if job is None or (job.active and session not in job.sessions):
            return self.under_way(session)
        return job

    def awaited(self, session: str) -> bool:
        """Return whether a session waits for any."""
        job = self.under_way(session)
        return job is not None and session in job.sessions

    def _run(self, job: Job, work: Callable[[Report], Any]) -> None:
        with self._turn:
            try:
                job.report(0, 0, "")
                job.state, job.ends = "running", time.monotonic() + self._seconds
                job.result = work(job.report)
                held = held_by(job.result)
                with self._memory.lock:  # what counts is kept, and what is done counts, whoever asks in between
                    self._memory.count(self, job.key, held)
                    job.state = "done"
            except Stopped:
                job.state = "stopped"
            except TookTooLong:
                job.error = (
                    f"Stopped after {self._seconds / 60:,.0f} minutes, the longest that work of the app may take; "
                    "nothing of it is kept. Ask for less, or let the command line do it (aotlens --help)."
                )
                job.state = "failed"
            except ValueError as error:
                job.error = str(error)
                job.state = "failed"
            except WriteError as error:
                logged(log, f"{job.label} could not write")
                job.error, job.state = not_kept(error), "failed"
            except BaseException as error:  # a panic of native code is no Exception, and would leave the job running
                id = logged(log, f"{job.label} failed")
                why = "There was not enough memory" if out_of_memory(error) else f"{type(error).__name__}: {error}"
                job.error = f"{why} (error {id}). The terminal in which the app runs has the details."
                job.state = "failed"
