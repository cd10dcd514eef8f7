"""The runner of the measurements, on measurements that measure nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.messages import says

RUNNER = Path(__file__).resolve().parents[2] / "benchmarks" / "__main__.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "benchmarks"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(RUNNER, package)
    for name, status in (("fast", 0), ("slow", 0), ("broken", 3), ("_common", 0)):
        (package / f"{name}.py").write_text(f"import sys\nprint({name!r}, *sys.argv[1:])\nsys.exit({status})\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_all_run_and_one_failure_is_named(folder: Path):
    done = run(folder)
    assert done.stdout.splitlines() == ["== broken", "broken", "== fast", "fast", "== slow", "slow"]
    assert done.returncode == 1
    assert done.stderr == "Failed: broken\n"


def test_names_choose_and_options_are_passed_on(folder: Path):
    done = run(folder, "fast", "slow", "--pairs", "2")
    assert done.stdout.splitlines() == ["== fast", "fast --pairs 2", "== slow", "slow --pairs 2"]
    assert done.returncode == 0


def test_an_unknown_name_lists_what_there_is(folder: Path):
    done = run(folder, "fats")
    assert done.returncode == 2
    says(done.stderr, "fats", "broken, fast, slow")
