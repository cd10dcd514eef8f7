"""Files run longest first, what tests took is stored, and a test that takes long says so or fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import changed, durations

pytest_plugins = ["pytester"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.json")
    monkeypatch.setattr(durations, "ROOT", tmp_path)
    return tmp_path / "durations.json"


def record(**seconds: float) -> None:
    recorder = durations.Recorder()
    for name, took in seconds.items():
        for part in (0.25 * took, 0.75 * took):  # set-up and call
            report: Any = SimpleNamespace(nodeid=f"{name[0]}.py::test_{name}", duration=part)
            recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()


def test_what_is_stored_orders_files_and_keeps_what_was_not_run(file: Path) -> None:
    for name in "abc":
        (file.parent / f"{name}.py").touch()
    record(a1=0.2, a2=1.0, b1=4.0, gone=9.0)
    assert durations.stored() == {
        "a.py": {"seconds": 1.2, "tests": {"test_a2": 1.0}},
        "b.py": {"seconds": 4.0, "tests": {"test_b1": 4.0}},
    }
    record(c1=0.1)
    assert list(durations.stored()) == ["a.py", "b.py", "c.py"]
    assert durations.slowest(1) == [(4.0, "b.py::test_b1")]
    items: list[Any] = [SimpleNamespace(nodeid=f"{name}.py::test_{i}") for name in "acbz" for i in range(2)]
    durations.longest_first(items)
    # z.py is not stored: the median.
    assert [item.nodeid[0] for item in items] == list("bbaazzcc")
    assert items[0].nodeid.endswith("0")


def test_a_slower_machines_seconds_are_brought_to_the_stored_scale(file: Path) -> None:
    names = [f"{letter}1" for letter in "abcdefghijklmnopqrstuvw"]
    for name in names:
        (file.parent / f"{name[0]}.py").touch()
    record(**dict.fromkeys(names, 4.0))
    record(**dict.fromkeys(names, 8.0) | {"a1": 40.0})  # twice as slow, and one test five times
    assert durations.stored()["b.py"]["seconds"] == 4.0
    assert durations.stored()["a.py"] == {"seconds": 20.0, "tests": {"test_a1": 20.0}}


def test_a_test_stored_as_long_fails_unless_it_says_so(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = slow: said")
    pytester.makepyfile(
        test_it="""
        import pytest

        def test_quick(): pass
        def test_not_stored(): pass
        def test_long(): pass
        @pytest.mark.slow
        def test_said(): pass
        """
    )
    limit = durations.Limit(2.0)
    limit.stored = {"test_it.py::test_quick": 1.0, "test_it.py::test_long": 3.0, "test_it.py::test_said": 3.0}
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", plugins=[limit])
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*takes 3.0 s*long*slow*"])


def test_folders_follow_from_changed_files() -> None:
    assert changed.folders(["aotlens/circuits/topk.py", "docs/circuits.md", "tests/paths/test_search.py"]) == [
        "tests/circuits",
        "tests/paths",
    ]
    assert changed.folders(["aotlens/statistics.py"]) == [f"tests/{name}" for name in changed.PACKAGES]
    assert changed.folders(["app/core/jobs.py", "README.md"]) == []


def test_pages_follow_from_changed_files() -> None:
    kinds = "tests/app/declared"
    everything = [*(f"tests/app/{name}" for name in changed.PAGES), kinds]
    assert {"tests/app/heads", "tests/app/circuits"} < set(everything)
    assert changed.pages(["app/pages/heads/heads.js", "tests/app/circuits/test_page.py", "docs/app.md"]) == [
        "tests/app/circuits",
        "tests/app/heads",
        kinds,
    ]
    assert changed.pages(["app/pages/patching.py"]) == ["tests/app/patching", kinds]  # a page that is one module
    assert changed.pages(["aotlens/views/patching_measures.py", "docs/app.md"]) == ["tests/app/patching", kinds]
    assert changed.pages(["app/pages/compare.py"]) == [kinds]  # its tests are those of its kinds of panels
    for shared in ("app/shell/static/shell.js", "app/core/jobs.py", "aotlens/widget/tiles.js"):
        assert changed.pages([shared]) == everything


def test_the_site_is_built_for_words_and_not_for_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"aotlens/cli.py": '"""Say."""\ndef run(): return 1', "aotlens/door.py": '"""Open."""'}
    monkeypatch.setattr(changed, "_git", lambda _, place: before.get(place.partition(":")[2], ""))
    now = (changed.ROOT / "aotlens/cli.py").read_text("utf-8")
    assert changed.site(["aotlens/cli.py"], "some-commit")
    before["aotlens/cli.py"] = now + "\nADDED = 1\n"
    assert not changed.site(["aotlens/cli.py", "app/start.py", "CHANGELOG.md"], "some-commit")
    assert changed.site(["docs/app.md"], "some-commit")
    assert changed.site(["aotlens/door.py"], "some-commit"), "a module that went"
