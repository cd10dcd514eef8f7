"""Background work: turns, once each, progress, an end on request, errors, and what is kept."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from app.core.jobs import Job, Jobs, Stopped
from tests.app.conftest import wait


def test_jobs_take_turns_and_each_runs_once():
    jobs, half, release, order = Jobs(kept=4), threading.Event(), threading.Event(), []

    def slow(report: Any) -> int:
        report(1, 2, "half")
        half.set()
        release.wait(120)
        order.append("slow")
        return 7

    first = jobs.start("a", "first", slow)
    assert half.wait(120) and first.state == "running"
    second = jobs.start("b", "second", lambda report: order.append("second"))
    assert jobs.start("a", "again", slow) is first and jobs.running() is first
    assert second.state == "waiting" and (first.done, first.total, first.phase) == (1, 2, "half")
    release.set()
    assert wait(second).state == "done" and first.result == 7 and order == ["slow", "second"]
    assert jobs.start("a", "again", slow) is first


def test_a_job_that_is_stopped_or_fails_can_be_started_again(caplog: pytest.LogCaptureFixture):
    jobs, going = Jobs(kept=4), threading.Event()

    def endless(report: Any) -> None:
        while True:
            report(0, 0, "on and on")
            going.set()
            time.sleep(0.002)

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


def test_the_oldest_results_go():
    jobs = Jobs(kept=2)
    for number in range(6):
        wait(jobs.start(str(number), "", lambda report, n=number: n))
    assert jobs.get("0") is None and jobs.get("5") is not None
    with pytest.raises(Stopped):
        Job(key="", label="", stop=True).report(0, 0, "")
