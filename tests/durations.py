"""How long tests take: stored seconds order the next run, and a test that takes long says so by a marker.

`make durations` writes `durations.json`: wall seconds of every file, and of its tests above half a second, on a machine
that does nothing else. A slower machine's are divided by how much slower it was, by the median of files that were
stored, so that what is stored stays comparable. Files are handed to the workers longest first (`--dist loadfile`), so
that none is left with a long one at the end; a file that is not stored yet counts as the median.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
ROOT = FILE.parents[1]
#: A test that takes longer has the marker `slow`, `long` or `browser`, or fails.
LIMIT_SECONDS = 5.0
#: Files of a run that must have been stored for its seconds to be brought to the scale of those.
_SCALED_FROM = 20
#: Tests from this on are stored one by one.
_STORED_SECONDS = 0.5


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by the stored seconds of their files; within a file they stay as they are."""
    seconds = {name: entry["seconds"] for name, entry in stored().items()}
    unknown = statistics.median(seconds.values()) if seconds else 0.0
    items.sort(key=lambda item: (-seconds.get(_file(item.nodeid), unknown), _file(item.nodeid)))


def stored() -> dict[str, dict]:
    """File → its seconds and those of its longer tests; empty where nothing was stored."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def estimates(nodeids: Sequence[str]) -> dict[str, float]:
    """Seconds of each test: its own, where stored, or an equal part of what its file's others took, or a tenth."""
    known, others = stored(), defaultdict[str, list[str]](list)
    seconds: dict[str, float] = {}
    for nodeid in nodeids:
        file, _, test = nodeid.partition("::")
        own = known.get(file, {"tests": {}})["tests"].get(test)
        if own is None:
            others[file].append(nodeid)
        else:
            seconds[nodeid] = own
    for file, tests in others.items():
        entry = known.get(file, {"seconds": 0.1 * len(tests), "tests": {}})
        rest = max(entry["seconds"] - sum(entry["tests"].values()), 0.0)
        seconds |= dict.fromkeys(tests, rest / len(tests))
    return seconds


def slowest(n: int) -> list[tuple[float, str]]:
    """The n longest stored tests: seconds and id."""
    tests = [
        (seconds, f"{name}::{test}") for name, entry in stored().items() for test, seconds in entry["tests"].items()
    ]
    return sorted(tests, reverse=True)[:n]


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Recorder:
    """Adds up what every test of a run took, and stores it; files that were not run keep what they had."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        run: dict[str, dict] = {}
        scale = self._scale()
        for nodeid, taken in self.seconds.items():
            seconds = scale * taken
            entry = run.setdefault(_file(nodeid), {"seconds": 0.0, "tests": {}})
            entry["seconds"] += seconds
            if seconds >= _STORED_SECONDS:
                entry["tests"][nodeid.partition("::")[2]] = round(seconds, 1)
        for entry in run.values():
            entry["seconds"] = round(entry["seconds"], 1)
        kept = {name: entry for name, entry in (stored() | run).items() if (ROOT / name).exists()}
        lines = [
            f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False, sort_keys=True)}"
            for name, entry in sorted(kept.items())
        ]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def _scale(self) -> float:
        """How much faster the machine of the stored seconds was; 1 where too few files say so."""
        taken: defaultdict[str, float] = defaultdict(float)
        for nodeid, seconds in self.seconds.items():
            taken[_file(nodeid)] += seconds
        ratios = [entry["seconds"] / taken[name] for name, entry in stored().items() if taken.get(name)]
        return statistics.median(ratios) if len(ratios) >= _SCALED_FROM else 1.0


class Limit:
    """Fails a test without a marker whose stored seconds are more than some.

    Nothing is measured while tests run: the same tests fail on every machine, however slow or busy it is. A test that
    is not stored yet passes, and is judged once `make durations` has stored it. Browser tests are not judged.
    """

    def __init__(self, seconds: float = LIMIT_SECONDS) -> None:
        self.seconds = seconds
        self.stored = {f"{file}::{test}": s for file, entry in stored().items() for test, s in entry["tests"].items()}

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        takes = self.stored.get(item.nodeid, 0.0)
        if takes > self.seconds and not any(item.get_closest_marker(name) for name in ("slow", "long", "browser")):
            pytest.fail(
                f"takes {takes:.1f} s, more than {self.seconds:g}: make it smaller, or mark it `long` for make "
                "test-long, or `slow` if make test cannot do without it (docs/testing.md). make durations stores it.",
                pytrace=False,
            )


def table(rows: Sequence[tuple[float, str]]) -> str:
    """A table of tests in Markdown, for docs/testing.md."""
    return "\n".join(["| seconds | test |", "|---|---|", *(f"| {seconds} | `{test}` |" for seconds, test in rows)])


if __name__ == "__main__":
    print(table(slowest(20)))
