"""Twenty users at once, each with texts of their own: no error, and memory that stays where it is.

    python -m pytest -m long tests/app/test_load.py -s     1,000 and 10,000 requests, some ten minutes on two cores

It prints seconds to an answer (median and 95th percentile) and the server's resident memory.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from app.core.settings import Settings
from app.factory import create_app
from app.pages.heads.ids import ids
from app.shell import ids as shell
from app.shell.app import App
from tests.app.test_start import free_port

ROOT = Path(__file__).resolve().parents[2]
N_USERS = 20
TEXT = "the captain of a ship bowed and Mrs. Pendlebury smiled at her dear friend who had danced all evening"
CHECKPOINTS = ("novels-2l-mhsa", "novels-6l-mhsa", "novels-1l-mhsa")
#: What a user asks, in turn, a callback by one of its outputs: a text, all heads, lines of eight of them, and a logit's
#: largest paths.
PARTS = (f"{ids.ANALYSIS}.data", "/maps", *8 * ("/maps/line",), "paths-keys.data")


@dataclass
class Load:
    """What was measured: seconds of every answer, statuses, and resident megabytes by the number of answers."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    resident: list[tuple[int, float]] = field(default_factory=list)

    def __str__(self) -> str:
        median, late = np.percentile(self.seconds, [50, 95])
        memory = ", ".join(f"{number:,}: {megabytes:.0f} MB" for number, megabytes in self.resident)
        return f"p50 {median:.2f} s, p95 {late:.2f} s, statuses {dict(self.statuses)}, resident after {memory}"


@contextmanager
def started(home: Path, memory_bytes: int) -> Iterator[tuple[int, int]]:
    """The app as a process of its own, with the bundled checkpoints: its port and its process's number."""
    port = free_port()
    settings = f"Settings(port={port}, device='cpu', memory_bytes={memory_bytes})"
    process = subprocess.Popen(
        [sys.executable, "-c", f"from app.__main__ import _serve, Settings; _serve({settings})"],
        cwd=ROOT, env={**os.environ, "AOTLENS_HOME": str(home)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and "aotlens is at" in process.stdout.readline()
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)


def request(app: App, part: str, values: dict[str, Any]) -> bytes:
    """The body of a request to the callback that has an output `part`, its other values as the page lays them out."""
    callback = next(one for one in app._callback_list if part in one["output"] and not one["clientside_function"])
    outputs = [one.rpartition(".") for one in callback["output"].strip(".").split("...")]
    places = [{"id": id, "property": prop.partition("@")[0]} for id, _, prop in outputs]
    entries = {
        kind: [{**one, "value": values.get(one["id"])} for one in callback[kind]] for kind in ("inputs", "state")
    }
    first = callback["inputs"][0]
    body = {"output": callback["output"], "outputs": places, **entries}
    return json.dumps({**body, "changedPropIds": [f"{first['id']}.{first['property']}"]}).encode()


def load(port: int, pid: int, app: App, count: int, words: range) -> Load:
    """Users who run a text, look at heads of it, then at its largest paths, and again."""
    measured, lock = Load(), threading.Lock()

    def user(number: int) -> None:
        drawn = random.Random(number)
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        while len(measured.seconds) < count:
            text = " ".join(drawn.choices(TEXT.split(), k=drawn.choice(words)))
            prompt = {"checkpoint": drawn.choice(CHECKPOINTS), "text": text}
            values = {
                ids.PROMPT: prompt, ids.VIEW: "attention", ids.HIDE_FIRST: False,
                shell.THEME: "light", ids.OFF: [], shell.seen("paths-sources"): prompt, shell.seen("paths-top"): prompt,
            }  # fmt: skip
            for part in PARTS:
                values[ids.HEAD] = [0, drawn.randrange(4)]
                begun = time.perf_counter()
                if part.startswith("/maps"):
                    layer, head = values[ids.HEAD]
                    client.request("GET", f"{part}?{urlencode({**prompt, 'head': f'{layer}.{head}', 'position': 1})}")
                else:
                    kind = {"Content-Type": "application/json"}
                    client.request("POST", "/_dash-update-component", request(app, part, values), kind)
                answer = client.getresponse()
                content = answer.read()
                if answer.status == 200 and part == PARTS[0]:
                    values[ids.ANALYSIS] = shown = json.loads(content)["response"][ids.ANALYSIS]["data"]
                    values[ids.RUN_OF] = {"key": shown["key"], "off": [], "how": "zero", "corpus": None}
                with lock:
                    measured.seconds.append(time.perf_counter() - begun)
                    measured.statuses[answer.status] += 1
                    if len(measured.seconds) % (count // 10) == 0:
                        measured.resident.append((len(measured.seconds), resident(pid)))
        client.close()

    users = [threading.Thread(target=user, args=(number,)) for number in range(N_USERS)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    return measured


def resident(pid: int) -> float:
    """Megabytes of a process that are in memory."""
    told = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert told is not None
    return int(told.group(1)) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads resident memory where Linux tells it")
@pytest.mark.parametrize(
    ("count", "memory_bytes", "words"),
    [
        (1000, 24 * 2**20, range(5, 30)),  # as many values go as in the large one: the bound is full after the warm-up
        (10_000, Settings().memory_bytes, range(20, 120)),
    ],
)
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_memory_stays_where_it_is_under_twenty_users(
    real_bundled_folder: None, tmp_path: Path, count: int, memory_bytes: int, words: range
):
    app = create_app(Settings(device="cpu"))
    with started(tmp_path, memory_bytes) as (port, pid):
        measured = load(port, pid, app, count, words)
    print(measured)
    assert set(measured.statuses) == {200}
    # The bound is full, and every thread has answered something large, after a third of the requests.
    warm = [megabytes for number, megabytes in measured.resident if number > count // 3]
    assert max(warm) <= 1.10 * warm[0], measured
