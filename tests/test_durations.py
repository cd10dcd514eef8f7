"""Units of tests are whole, in order and balanced, and what changed asks for its own tests."""

from __future__ import annotations

from pathlib import Path

from tests import changed, durations


def test_stored_seconds_come_back_as_totals_and_long_tests(tmp_path: Path) -> None:
    durations.write({"a.py::x": 3.0, "a.py::y[1]": 0.25, "a.py::y[2]": 0.75, "b.py::z": 0.5}, tmp_path / "d.json")
    stored = durations.read(tmp_path / "d.json")
    assert stored == {"a.py": 4.0, "a.py::x": 3.0, "b.py": 0.5}
    # c.py is unknown, and counts as the median of the other short tests.
    seconds = durations.estimate(["a.py::x", "a.py::y[1]", "a.py::y[2]", "c.py::new", "b.py::z"], stored)
    assert seconds == {"a.py::x": 3.0, "a.py::y[1]": 0.5, "a.py::y[2]": 0.5, "b.py::z": 0.5, "c.py::new": 0.5}


def test_the_longest_unit_comes_first_and_a_file_above_its_share_is_split_in_order() -> None:
    tests = ["quick.py::a", *(f"slow.py::t{i}" for i in range(6)), "middle.py::b"]
    stored = {"quick.py": 1.0, "middle.py": 2.0, "slow.py": 12.0}
    units = durations.groups(tests, stored, workers=2)
    assert list(units.values()) == [tests[1:4], tests[4:7], ["middle.py::b"], ["quick.py::a"]]
    assert durations.groups([], stored, workers=2) == {}


def test_without_stored_seconds_every_test_is_in_one_unit() -> None:
    tests = [f"{file}.py::t{i}" for file in "abc" for i in range(4)]
    units = durations.groups(tests, {}, workers=3)
    assert sorted(test for unit in units.values() for test in unit) == tests


def test_a_change_asks_for_the_tests_of_its_package() -> None:
    assert changed.folders(["aotlens/paths/search.py", "tests/circuits/test_topk.py", "docs/paths.md"]) == [
        "tests/circuits", "tests/paths"
    ]  # fmt: skip
    assert changed.folders(["app/core/jobs.py", "tests/app/conftest.py", "README.md"]) == []
    assert changed.folders(["aotlens/results.py"]) == [f"tests/{name}" for name in changed.PACKAGES]
