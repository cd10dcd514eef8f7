"""Thousands of requests that no page sends, over every callback: each is refused as the caller's, or answered.

    python -m pytest -m long tests/app/test_fuzz.py       3,000 requests

The seed is AOTLENS_SEED; a failure names the request.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from app.core import Core
from app.core.jobs import Jobs
from app.core.settings import Settings
from app.factory import create_app
from app.shell import requests as forms
from app.shell.app import App
from app.shell.props import components
from tests.app.conftest import eventually

from .session_by_hand import SessionByHand

#: Wrong in some way everywhere: by type, size, range, or what the text holds.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**53, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "-1", "9.9",
    "nothing", "tiny-mhsa", "../../etc/passwd", "text-0123456789abcdef", "\ud800", "a\x00b", "<script>x</script>",
    "٣", "²", "x" * 2000, "🙂 · 東京", [], [0], [0, 1], [99, 99], [-1, 0], [0.5, "1"], [None, None], ["0", "1"],
    [[0, 1]], [[]], [{}], {}, {"layer": "one"}, {"checkpoint": "tiny-mhsa"}, {"checkpoint": 7, "text": ["a"]}, "1.0",
    {"checkpoint": "tiny-mhsa", "text": "a", "layer": 0, "head": 99}, {"of": "x", "layer": 1}, {"text": None},
    {"key": "x", "layer": 0, "head": 0, "position": 10**9}, {"bytes": "many"}, {"name": 3, "contents": 4},
    {"a": {"b": {"c": [[[[1]]]]}}},
)  # fmt: skip


@pytest.fixture(scope="module")
def fuzzed(settings: Settings, services: Core) -> Iterator[App]:
    """Jobs that requests have started are ended with it: a thread inside PyTorch at Python's end aborts the process."""
    app = create_app(settings, services)
    started = every_job()
    yield app
    for jobs in started:
        jobs.stop()
        eventually(lambda jobs=jobs: not jobs.under_way())


def every_job() -> list[Jobs]:
    """All jobs of all apps. No thread may run: `tuple(…)` fails in one while another one lists all objects."""
    return [one for one in gc.get_objects() if type(one) is Jobs]


def server_callbacks(app: App) -> dict[str, Any]:
    app.server.test_client().get(
        "/", headers={"Host": "localhost"}
    )  # Dash completes its callbacks at the first request
    return {output: one for output, one in app.callback_map.items() if "callback" in one}


def first_values(app: App) -> dict[tuple[str, str], Any]:
    """What every page lays out at first."""
    layouts = [page.content(app.core, app.services[page.name], page.address.parse(None)) for page in app.pages]
    there = {one.id: one for one in components([app.layout, *layouts])}
    places = {
        (entry["id"], entry["property"])
        for callback in server_callbacks(app).values()
        for entry in (*callback["inputs"], *callback["state"])
    }
    return {(id, prop): getattr(there[id], prop, None) for id, prop in places}


def requests(app: App, seed: int, count: int) -> Any:
    """Each callback in turn, with one value or a few of another kind than its pages send; some misshapen altogether."""
    drawn, callbacks, first = random.Random(seed), server_callbacks(app), first_values(app)
    for number in range(count):
        output = list(callbacks)[number % len(callbacks)]
        callback = callbacks[output]
        values: dict[Any, Any] = {}  # one of a place that is named twice, since two are refused
        for one in (*callback["inputs"], *callback["state"]):
            place = (one["id"], one["property"])
            values.setdefault(place, drawn.choice(VALUES) if drawn.random() < 0.5 else first[place])
        entries = {
            kind: [{**one, "value": values[one["id"], one["property"]]} for one in callback[kind]]
            for kind in ("inputs", "state")
        }
        places = [{"id": id, "property": prop} for id, prop in forms._places(output)]
        changed = drawn.choice(entries["inputs"])
        body: dict[str, Any] = {
            "output": output, "outputs": places if output.startswith("..") else places[0], **entries,
            "changedPropIds": [f"{changed['id']}.{changed['property']}"],
        }  # fmt: skip
        if drawn.random() < 0.1:
            body[drawn.choice(list(body))] = drawn.choice(VALUES)
        yield body if drawn.random() < 0.99 else drawn.choice(VALUES)


def fuzz(app: App, seed: int, count: int, caplog: pytest.LogCaptureFixture) -> Counter[int]:
    """How many requests got which status; asserts that none found a fault of ours."""
    client, statuses = app.server.test_client(), Counter[int]()
    for body in requests(app, seed, count):
        caplog.clear()
        try:
            data = json.dumps(body)
        except TypeError:  # components, which are laid out but not sent
            continue
        answer = client.post(
            "/_dash-update-component", data=data, content_type="application/json", headers={"Host": "localhost"}
        )
        statuses[answer.status_code] += 1
        blamed = answer.status_code >= 500 or "defect of aotlens" in answer.text
        assert not blamed, f"seed {seed}: {data[:1500]}\n{answer.text[:300]}\n{caplog.text[-3000:]}"
    return statuses


def test_three_hundred_requests_find_no_fault_of_ours(fuzzed: App, seed: int, caplog: pytest.LogCaptureFixture):
    statuses = fuzz(fuzzed, seed, 300, caplog)
    assert statuses[400] > 50 and statuses[200] > 20, statuses  # both refused and answered


@pytest.mark.long
def test_three_thousand_requests_find_no_fault_of_ours(fuzzed: App, seed: int, caplog: pytest.LogCaptureFixture):
    print(fuzz(fuzzed, seed + 1, 3000, caplog))


# ── values inside of what pages send ─────────────────────────────────────────────────────────────────────────

_NUMBERS = (-1, 0, 2**31, 2**53, 10**9, 10**400, 0.5, 1e308, -1e308, float("nan"), True, "1", None)
_NAMES = ("", "nothing", "../../etc/passwd", "x" * 5000, "\ud800", "a\x00b", "text-0123456789abcdef", 3, None)
#: The most bytes that a request may use, and that the second half of all may leave; the mean size of a small object.
_MEMORY, _GROWTH, _BLOCK = 200 * 2**20, 16 * 2**20, 64


def mutated(drawn: random.Random, value: Any) -> Any:
    """The value with one thing changed somewhere inside: a number, a name, a type, what is nested and how deeply."""
    kept = drawn.random()
    if isinstance(value, dict) and value and kept < 0.9:
        name = drawn.choice(list(value))
        if kept < 0.1:
            return {key: one for key, one in value.items() if key != name}
        return {**value, drawn.choice((name, name, name, "nothing")): mutated(drawn, value[name])}
    if isinstance(value, list) and value and kept < 0.9:
        at = drawn.randrange(len(value))
        if kept < 0.1:
            return value[:at] + value[at + 1 :]
        return value * 500 if kept < 0.15 else [*value[:at], mutated(drawn, value[at]), *value[at + 1 :]]
    if kept > 0.97:
        return [[[[{"a": value}]]]]
    if isinstance(value, str):
        return drawn.choice(_NAMES)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return drawn.choice((*_NUMBERS, value + 1, -value, value * 1000))
    return drawn.choice((*_NUMBERS, *_NAMES, [], {}))


def fuzz_inside(app: App, seed: int, count: int, caplog: pytest.LogCaptureFixture) -> Counter[int]:
    """How many requests got which status; asserts that none found a fault of ours or filled memory, that the second
    half of them left nothing in it, and that the app said all along that it is well."""
    session, drawn, statuses, jobs = SessionByHand(app), random.Random(seed), Counter[int](), every_job()
    session.open()
    callbacks, before, halfway, defects = list(session.callbacks), live_bytes(), 0, list[str]()
    for number in range(count):
        if number == count // 2:
            halfway = bytes_at_rest(app, jobs)
        body = session.body(callbacks[number % len(callbacks)])
        for _ in range(drawn.randint(1, 2)):
            entries = [*body["inputs"], *body["state"]]
            entry = drawn.choice(entries)
            value = mutated(drawn, entry["value"])
            for each in entries if drawn.random() < 0.95 else [entry]:  # two values of one place are refused
                if (each["id"], each["property"]) == (entry["id"], entry["property"]):
                    each["value"] = value
        defects += [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        caplog.clear()
        try:
            answer = session.post(body)
        except TypeError:  # components, which are laid out and not sent
            continue
        statuses[answer.status_code] += 1
        blamed = answer.status_code >= 500 or "defect of aotlens" in answer.text
        assert not blamed, f"seed {seed}: {json.dumps(body)[:1500]}\n{answer.text[:300]}\n{caplog.text[-3000:]}"
        if number % 25 == 0:
            assert session.client.get("/healthz", headers={"Host": "localhost"}).status_code == 200
            assert live_bytes() - before < _MEMORY, f"seed {seed}: {json.dumps(body)[:1500]}"
    grown = bytes_at_rest(app, jobs) - halfway
    assert not defects, f"seed {seed}: {len(defects)} jobs failed\n" + "\n".join(defects)[:9000]
    assert grown < _GROWTH, f"seed {seed}: {grown:,} bytes stay of {count // 2} requests"
    return statuses


class _MallInfo(ctypes.Structure):
    """What glibc says of its heaps (`struct mallinfo2` of malloc.h)."""

    _fields_ = [("sizes", ctypes.c_size_t * 10)]


def live_bytes() -> int:
    """What is allocated and not freed, by C and by Python; 0 without glibc. Resident memory is some 400 MB more: what
    the threads of jobs have freed stays in heaps of their own, unless the app has set them (`app.core.allocator`)."""
    info = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if info is None:
        return 0
    info.restype = _MallInfo
    _, _, _, _, mapped, _, _, in_heaps, _, _ = info().sizes
    return mapped + in_heaps + _BLOCK * sys.getallocatedblocks()


def bytes_at_rest(app: App, jobs: list[Jobs]) -> int:
    """What is live, less what caches hold, when no job runs."""
    eventually(lambda: not any(each.under_way() for each in jobs))
    gc.collect()
    return live_bytes() - app.core.memory.n_bytes


@pytest.mark.parametrize("leak", [lambda: bytes(12_000), lambda: torch.zeros(3_000), lambda: [[] for _ in range(250)]])
def test_memory_that_requests_leave_is_seen_and_memory_that_they_free_is_not(leak: Callable[[], object]) -> None:
    """Of 12 kB of each of 1,500, in three allocators."""
    gc.collect()  # else these objects bring about that what tests before them left is collected
    before = live_bytes()
    leaked = [leak() for _ in range(1500)]
    grown, leaked = live_bytes() - before, []
    assert (grown > _GROWTH and abs(live_bytes() - before) < _GROWTH / 4) or not before, (grown, leaked)


@pytest.mark.slow
def test_three_hundred_values_inside_stores_find_no_fault_of_ours(fuzzed: App, seed: int, caplog):
    statuses = fuzz_inside(fuzzed, seed, 300, caplog)
    assert statuses[400] > 50 and statuses[200] > 20, statuses


@pytest.mark.long
def test_three_thousand_values_inside_stores_find_no_fault_of_ours(fuzzed: App, seed: int, caplog):
    print(fuzz_inside(fuzzed, seed + 1, 3000, caplog))


@pytest.fixture(scope="module")
def opened(fuzzed: App) -> SessionByHand:
    session = SessionByHand(fuzzed)
    session.open()
    return session


@pytest.mark.slow
def test_two_values_of_one_place_are_refused(opened: SessionByHand, fuzzed: App, monkeypatch) -> None:
    """Else one of them would be held to what pages send, and a callback would read the other."""
    output, body = next((each, body) for each in opened.callbacks for body in [opened.body(each)] if body["state"])
    callback, (first, *_) = fuzzed.callback_map[output], body["state"]
    monkeypatch.setitem(callback, "state", [*callback["state"], callback["state"][0]])
    body["state"].append({**first, "value": 3})
    answer = opened.post(body)
    assert answer.status_code == 400 and f"{first['id']}.{first['property']}, which it names twice" in answer.text


@pytest.mark.parametrize(
    ("page", "name", "value"),
    [("denoising", "steps", 2**31), ("denoising", "steps", 2.5), ("denoising", "noise", "3.1"),
     ("subspaces", "tokens", 10**9), ("subspaces", "seed", True)],
)  # fmt: skip
def test_what_a_store_says_of_settings_is_held_to_the_bounds_of_the_address(opened, page, name, value):
    """Before anything is made of it, and with the other values as they were, which are answered."""
    store = f"{page}-shown"
    reads = {store, *opened.app.asked._same}
    output = next(
        output for output, one in opened.callbacks.items()
        if any(entry["id"] in reads and entry["id"].startswith(page) for entry in one["inputs"])
        and opened.post(opened.body(output)).status_code == 200
    )  # fmt: skip
    body = opened.body(output)
    entry = next(entry for entry in body["inputs"] if entry["id"] in reads)
    entry["value"] = {**entry["value"], name: value}
    answer = opened.post(body)
    assert answer.status_code == 400 and name in answer.text


@pytest.mark.parametrize("asked", [None, 7, {"field": None, "typed": ""}, {"field": "column", "typed": None}, {}])
@pytest.mark.parametrize("shown", [True, False])
def test_a_search_without_a_choice_or_a_field_is_no_defect(fuzzed: App, caplog, asked: Any, shown: bool) -> None:
    session = SessionByHand(fuzzed)
    body = session.body("circuits-found.data")
    body["inputs"][0]["value"], state = asked, body["state"][0]
    state["value"] = state["value"] if shown else None
    assert session.post(body).status_code in (200, 204, 400)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text


# ── requests that are no callback's ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    ["", "[", "null", "[]", "7", '"x"', "{}", '{"output": 3}', '{"output": "nothing.children"}', "[" * 100_000, "\x00",
     '{"output": "page.children", "inputs": 3}', '{"output": "page.children", "inputs": [], "changedPropIds": [[]]}'],
)  # fmt: skip
def test_what_is_no_request_is_refused(app: App, data: str):
    answer = app.server.test_client().post(
        "/_dash-update-component", data=data, content_type="application/json", headers={"Host": "localhost"}
    )
    assert answer.status_code == 400


def test_forms():
    assert forms.like({"layer": 1, "head": 2}, {"layer": 0, "head": 0})
    assert not forms.like({"layer": "1", "head": 2}, {"layer": 0, "head": 0}) and not forms.like(
        {"layer": 1}, {"layer": 0, "head": 0}
    )
    assert forms.like([1, 2], (0, 0)) and not forms.like([1], (0, 0)) and not forms.like("10", (0, 0))
    assert forms.like([], [(0, 1)]) and forms.like([[1, 2], [3, 4]], [(0, 1)]) and not forms.like([[1]], [(0, 1)])
    assert forms.like(1, 0.5) and forms.like(2.0, 1) and not forms.like(0.5, 1) and not forms.like(True, 1)
    assert forms.like(None, "x") and not forms.like(3, "x")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "name", "value"),
    [("universality", "models", True), ("universality", "models", 7), ("universality", "models", [["a"]])],
)
def test_what_no_page_sends_is_no_defect_of_ours(opened: SessionByHand, page: str, name: str, value: Any) -> None:
    """A value of another kind under one name of a page's stores, in each callback that reads it."""
    n = 0
    for output in opened.callbacks:
        body = opened.body(output)
        for entry in [*body["inputs"], *body["state"]]:
            if isinstance(entry["value"], dict) and entry["id"].startswith(page) and name in entry["value"]:
                entry["value"] = {**entry["value"], name: value}
                n += 1
        if any(entry["id"].startswith(page) for entry in body["inputs"]) and n:
            answer = opened.post(body)
            assert answer.status_code < 500 and "defect of aotlens" not in answer.text, f"{output}: {answer.text[:300]}"
    assert n
