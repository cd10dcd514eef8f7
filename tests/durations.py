"""How long each test file, and each test above a second, took: `make durations` writes it, and `make test` reads it.

`tests/durations.json` has one line a file (all its tests) and one line a test above `LONG`, in seconds of wall time.
`groups` makes the units that a worker runs as a whole: a file, whose fixtures are then set up once; or, of a file that
would take a large share of a worker's time, as many runs of neighbouring tests as there are workers.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

STORED = Path(__file__).with_name("durations.json")

#: A test above this many seconds has a line of its own.
LONG = 1.0

#: A file is split when it would take more than this share of what one worker has to do.
SHARE = 0.25


def read(path: Path = STORED) -> dict[str, float]:
    """Seconds by file and, for long tests, by node id; nothing is known where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(seconds: Mapping[str, float], path: Path = STORED) -> None:
    """Stores the seconds of every test, given by node id, as totals of files and as long tests."""
    lines: defaultdict[str, float] = defaultdict(float)
    for nodeid, duration in seconds.items():
        lines[file_of(nodeid)] += duration
        if duration > LONG:
            lines[nodeid] = duration
    rounded = {name: round(lines[name], 1) for name in sorted(lines)}
    path.write_text(json.dumps(rounded, indent=0, ensure_ascii=False) + "\n")


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def estimate(nodeids: Iterable[str], stored: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each test: its own, else an equal part of what its file's other tests took, else the median test's."""
    short: defaultdict[str, list[str]] = defaultdict(list)
    seconds = {}
    for nodeid in nodeids:
        if nodeid in stored:
            seconds[nodeid] = stored[nodeid]
        else:
            short[file_of(nodeid)].append(nodeid)
    long: defaultdict[str, float] = defaultdict(float)
    for name, duration in stored.items():
        if "::" in name:
            long[file_of(name)] += duration
    known = {file: max(stored[file] - long[file], 0.0) / len(tests) for file, tests in short.items() if file in stored}
    median = statistics.median(known.values()) if known else 0.1
    for file, tests in short.items():
        seconds |= dict.fromkeys(tests, known.get(file, median))
    return seconds


def groups(nodeids: Iterable[str], stored: Mapping[str, float], workers: int) -> dict[str, list[str]]:
    """Units of tests by name, the longest first; tests of a unit keep their order, and no test is in two."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        files[file_of(nodeid)].append(nodeid)
    seconds = estimate((nodeid for tests in files.values() for nodeid in tests), stored)
    limit = SHARE * sum(seconds.values()) / workers
    units: dict[str, list[str]] = {}
    for file, tests in files.items():
        total = sum(seconds[test] for test in tests)
        parts = min(workers, len(tests)) if total > limit else 1
        before = 0.0
        for test in tests:
            part = min(int(parts * (before + seconds[test] / 2) / total), parts - 1) if parts > 1 else 0
            units.setdefault(f"{file} {part}", []).append(test)
            before += seconds[test]
    return dict(sorted(units.items(), key=lambda unit: -sum(seconds[test] for test in unit[1])))
