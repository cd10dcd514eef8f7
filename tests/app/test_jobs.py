"""Background work: turns, once each, progress, an end on request, errors, and what is kept."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.core.cache import Memory
from app.core.errors import RequestError
from app.core.jobs import MOST_ACTIVE, Job, Jobs, Stopped
from tests.app.conftest import wait
from tests.messages import refused, says


def test_jobs_take_turns_and_each_runs_once():
    jobs, half, release, order = (
        Jobs(kept=4, memory=Memory(2**20), seconds=60),
        threading.Event(),
        threading.Event(),
        [],
    )

    def slow(report: Any) -> int:
        report(1, 2, "half")
        half.set()
        release.wait(120)
        order.append("slow")
        return 7

    first = jobs.start("a", "first", slow)
    assert half.wait(120) and first.state == "running"
    second = jobs.start("b", "second", lambda report: order.append("second"))
    assert jobs.start("a", "again", slow) is first and jobs.under_way() is first
    assert second.state == "waiting" and (first.done, first.total, first.phase) == (1, 2, "half")
    release.set()
    assert wait(second).state == "done" and first.result == 7 and order == ["slow", "second"]
    assert jobs.start("a", "again", slow) is first


def test_a_job_that_is_stopped_or_fails_can_be_started_again(caplog: pytest.LogCaptureFixture):
    jobs, going = Jobs(kept=4, memory=Memory(2**20), seconds=60), threading.Event()

    def endless(report: Any) -> None:
        while True:
            report(0, 0, "on and on")
            going.set()

    first = jobs.start("a", "first", endless)
    waiting = jobs.start("b", "second", endless)
    assert going.wait(120)
    jobs.stop()
    assert wait(first).state == "stopped" and wait(waiting).state == "stopped"
    again = jobs.start("a", "again", lambda report: 1)
    assert again is not first and wait(again).result == 1

    def refuse(report: Any) -> None:
        raise ValueError("no such thing")

    def break_down(report: Any) -> None:
        raise KeyError("x")

    assert wait(jobs.start("c", "third", refuse)).error == "no such thing"
    assert "KeyError" in wait(jobs.start("d", "fourth", break_down)).error and "fourth failed" in caplog.text

    class Panic(BaseException):
        """As native code raises them: no Exception."""

    def panic(report: Any) -> None:
        raise Panic("in Rust")

    failed = wait(jobs.start("e", "fifth", panic))
    assert failed.state == "failed" and "Panic: in Rust" in failed.error and "fifth failed" in caplog.text
    assert wait(jobs.start("f", "sixth", lambda report: 6)).result == 6  # its turn comes


def test_the_oldest_results_go():
    jobs = Jobs(kept=2, memory=Memory(2**20), seconds=60)
    for number in range(6):
        wait(jobs.start(str(number), "", lambda report, n=number: n))
    assert jobs.get("0") is None and jobs.get("5") is not None
    with pytest.raises(Stopped):
        Job(key="", label="", stop=True).report(0, 0, "")


def test_results_count_among_all_that_is_kept():
    memory = Memory(10_000)
    jobs, others = Jobs(kept=16, memory=memory, seconds=60), memory.cache(cost=len)
    for number in range(6):
        wait(jobs.start(str(number), "", lambda report: bytes(3000)))
    assert [str(number) for number in range(6) if jobs.get(str(number)) is not None] == ["3", "4", "5"]
    others.get("large", lambda: bytes(9000))
    assert all(jobs.get(str(number)) is None for number in range(6)) and memory.n_bytes == 9000


class Endless:
    """Work that goes on until it is stopped."""

    def __init__(self) -> None:
        self.going = threading.Event()

    def __call__(self, report: Any) -> None:
        while True:
            report(1, 3, "on and on")
            self.going.set()


def test_a_stop_ends_the_work_of_its_own_session_only():
    jobs, first, second = Jobs(kept=4, memory=Memory(2**20), seconds=60), Endless(), Endless()
    ann = jobs.start("a", "Ann's", first, session="ann")
    assert first.going.wait(120)
    bob = jobs.start("b", "Bob's", second, session="bob")
    assert (jobs.under_way("ann"), jobs.under_way("bob"), jobs.under_way("cleo")) == (ann, bob, ann)
    jobs.stop("cleo")
    jobs.stop("bob")
    assert bob.stop and not ann.stop and bob.state == "waiting"
    assert jobs.awaited("ann") and not jobs.awaited("cleo")
    jobs.stop("ann")
    assert wait(ann).state == "stopped" and wait(bob).state == "stopped"
    assert jobs.under_way("ann") is None and not second.going.is_set()


def test_work_that_is_shared_goes_on_until_nobody_waits():
    jobs, work = Jobs(kept=4, memory=Memory(2**20), seconds=60), Endless()
    job = jobs.start("a", "shared", work, session="ann")
    assert work.going.wait(120) and jobs.start("a", "shared", work, session="bob") is job
    jobs.stop("ann")
    assert not job.stop and not jobs.awaited("ann") and jobs.awaited("bob") and jobs.under_way("ann") is job
    assert jobs.start("a", "shared", work, session="ann") is job and jobs.awaited("ann")
    jobs.stop("ann")
    jobs.stop("bob")
    assert wait(job).state == "stopped" and job.sessions == {"bob"}


def test_work_that_takes_too_long_is_stopped_and_says_so():
    jobs, work = Jobs(kept=4, memory=Memory(2**20), seconds=0.05), Endless()
    job = wait(jobs.start("a", "endless", work))
    assert job.state == "failed" and work.going.is_set()
    says(job.error, "Stopped after 0 minutes", "nothing of it is kept", "command line")


def test_a_queue_has_an_end():
    """Each waits in a thread: a thousand starts of other settings were a thousand threads."""
    jobs = Jobs(kept=4, memory=Memory(2**20), seconds=60)
    begun, ends = threading.active_count(), threading.Event()
    started = [jobs.start(f"{number}", "work", lambda report: ends.wait(60)) for number in range(MOST_ACTIVE)]
    with refused(f"{MOST_ACTIVE} pieces", "Wait", error=RequestError):
        jobs.start("another", "work", lambda report: None)
    assert threading.active_count() - begun == MOST_ACTIVE and jobs.get("another") is None
    assert jobs.start("0", "work", lambda report: None) is started[0], "what is under way is shared all the same"
    jobs.stop()
    ends.set()
    for job in started:
        wait(job)
    assert wait(jobs.start("another", "work", lambda report: 1)).result == 1
