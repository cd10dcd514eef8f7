"""What may be asked for next: computed when nobody asks, in the latest offer's order, and given up without a word."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from flask import Flask

from aotlens.views import View
from aotlens.views.circuits import MAP, ROW
from app.core import Core
from app.core.ahead import Ahead
from app.core.settings import Settings
from app.factory import create_app
from app.shell import ids as shell
from tests.app.conftest import eventually
from tests.app.session_by_hand import SessionByHand


def test_it_waits_until_no_request_is_under_way():
    ahead, done = Ahead(0.02), threading.Event()
    ahead.request(1)
    ahead.offer([done.set])
    assert not done.wait(0.3)
    ahead.request(-1)
    assert done.wait(60)


def test_it_waits_for_as_long_as_it_was_told_after_a_request(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr("app.core.ahead.time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    ahead, done = Ahead(5.0), threading.Event()
    clock[0] = 8.0
    ahead.request(1)
    ahead.request(-1)
    ahead.offer([done.set])
    assert not done.wait(0.3)
    clock[0] = 13.1
    assert done.wait(60)


def test_a_servers_requests_are_seen():
    ahead, done, server = Ahead(0.0), threading.Event(), Flask(__name__)
    ahead.watch(server)

    @server.get("/")
    def answer() -> str:
        ahead.offer([done.set])
        return str(done.wait(0.3))

    assert server.test_client().get("/").text == "False"
    assert done.wait(60)


def test_each_piece_waits_for_what_was_asked_meanwhile():
    ahead, done = Ahead(0.02), threading.Event()
    ahead.offer([lambda: ahead.request(1), done.set])
    assert not done.wait(0.3)
    ahead.request(-1)
    assert done.wait(60)


def test_the_latest_offer_takes_the_place_of_the_rest():
    ahead, begun, go, done = Ahead(0.0), threading.Event(), threading.Event(), list[str]()
    ahead.offer([lambda: begun.set() or go.wait(60), lambda: done.append("old")])
    assert begun.wait(60)
    ahead.offer(done.append(name) or (lambda: done.append("new")) for name in ["asked for late"])
    assert done == []
    go.set()
    eventually(lambda: "new" in done)
    assert done == ["asked for late", "new"]


def test_what_fails_ends_nothing():
    ahead, done = Ahead(0.0), list[int]()
    ahead.offer([lambda: 1 / 0, lambda: done.append(1)])
    eventually(lambda: done)
    ahead.offer(1 / 0 for _ in range(1))
    ahead.offer([lambda: done.append(2)])
    eventually(lambda: len(done) == 2)


def test_a_piece_is_finished_before_python_exits():
    ahead, daemons, done = Ahead(0.0), list[bool](), threading.Event()
    work = [lambda: daemons.append(threading.current_thread().daemon), done.set]
    threading.Thread(target=ahead.offer, args=(work,), daemon=True).start()  # as a thread of the server offers it
    assert done.wait(60)
    assert daemons == [False]


@pytest.fixture
def session(settings: Settings, services: Core) -> SessionByHand:
    quick = replace(settings, quiet_seconds=0.0)
    return SessionByHand(create_app(quick, replace(services, settings=quick)))


FORM = {"checkpoint": "tiny-mhsa", "head": [0, 1], "kind": "qk"}


def ask(session: SessionByHand) -> None:
    """Ask for head 0.1, with a tab that was open at head 1.0."""
    seen = shell.seen("circuits-map"), "data"
    session.values["circuits-shown", "data"] = session.values[seen] = FORM
    (output,) = (
        output for output, each in session.callbacks.items()
        if seen in [(one["id"], one["property"]) for one in each["inputs"]]
    )  # fmt: skip
    body = session.body(output)
    (row,) = (one for one in body["inputs"] if one["id"] == shell.seen("circuits-row"))
    row["value"] = {**FORM, "head": [1, 0]}
    assert session.post(body).status_code == 200


def known(session: SessionByHand, layer: int, head: int, view: View = MAP) -> bool:
    circuits = session.app.services["circuits"]
    return circuits.workshop.known(view, circuits.values({**FORM, "head": [layer, head]}))


def test_circuits_of_the_heads_around_are_there_before_somebody_goes_to_them(session: SessionByHand):
    assert not any(known(session, layer, head) for layer in range(2) for head in range(3))
    ask(session)
    eventually(lambda: known(session, 0, 0) and known(session, 0, 2) and known(session, 1, 1))
    assert known(session, 0, 1) and not known(session, 1, 0) and not known(session, 1, 2)
    assert known(session, 1, 0, ROW) and not known(session, 0, 2, ROW)


def test_what_costs_much_is_not_computed_ahead(session: SessionByHand, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("app.shell.views._AHEAD", 0.0)
    ask(session)
    eventually(lambda: session.app.ahead._work is None)
    assert known(session, 0, 1) and not known(session, 0, 2)
