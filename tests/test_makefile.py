"""Set-up as `make` does it, with an interpreter that only pretends: what it decides, and what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.messages import says

ROOT = Path(__file__).resolve().parents[1]

#: Stands in for Python, and for the .venv/bin/python that it "makes". Notes in `calls` what it is asked for.
INTERPRETER = """#!/bin/sh
case "$*" in
    *"version_info < (3, 11)"*) exit ${TOO_OLD:-0} ;;
    *"import ensurepip, venv"*) exit ${NO_VENV:-0} ;;
    *base_prefix*) echo "(3, 11, 2) /prefix" ;;
    *"version_info[:2]"*) echo 3.11 ;;
    --version) echo Python 3.9.2 ;;
    "-m venv .venv") echo venv >> calls; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip install"*)
        echo pip >> calls
        while [ -n "$PIP_WAITS_FOR" ] && [ ! -e "$PIP_WAITS_FOR" ]; do sleep 0.05; done
        exit ${PIP_FAILS:-0} ;;
    *) echo "ran: $*" ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make; apt-get install make")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    (folder / "fake" / "bin").mkdir(parents=True)
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name in ("docs", "tests/mutants"):
        (folder / name).mkdir(parents=True)
        shutil.copy(ROOT / name / "requirements.txt", folder / name)
    interpreter = folder / "fake" / "bin" / "python3"
    interpreter.write_text(INTERPRETER)
    interpreter.chmod(0o755)
    return folder


def start(project: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Make, with the pretended python3 first on PATH."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHON", "ARGS", "RECIPE")  # of a make that runs these tests
    inherited = {name: value for name, value in os.environ.items() if name not in outer}
    path = f"{project / 'fake' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        ["make", *arguments],
        cwd=project,
        env=inherited | {"PATH": path} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    with process:
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def make(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return finish(start(project, *arguments, **environment))


def calls(project: Path) -> list[str]:
    """What the interpreter was asked for since the last time this was called."""
    log = project / "calls"
    lines = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_setup_happens_once_and_then_the_command_runs(project: Path):
    first = make(project, "test", "ARGS=-x")
    assert first.returncode == 0 and first.stderr == ""
    assert "ran: -m pytest -n auto --dist loadfile --no-loadscope-reorder -x" in first.stdout
    assert calls(project) == ["venv", "pip", "pip"]

    again = make(project, "test")
    assert again.stdout == "ran: -m pytest -n auto --dist loadfile --no-loadscope-reorder\n"
    assert calls(project) == []


def test_folders_named_like_targets_hide_nothing(project: Path):
    for name in ("setup", "app", "test", "bench", "train", "lint", "docs"):
        (project / name).mkdir(exist_ok=True)
    assert "ran: -m app --port 9000" in make(project, "app", "ARGS=--port 9000").stdout


@pytest.mark.parametrize(
    ("target", "folder", "command"),
    [("docs", "docs", "sphinx -W --keep-going -q -b html"), ("mutants", "tests/mutants", "tests.mutants")],
)
def test_packages_of_one_command_are_installed_over_the_others_once(
    project: Path, target: str, folder: str, command: str
):
    first = make(project, target)
    assert f"ran: -m {command}" in first.stdout
    assert calls(project) == ["venv", "pip", "pip", "pip"]
    assert make(project, target).returncode == 0 and calls(project) == []

    requirements = project / folder / "requirements.txt"
    requirements.write_text(requirements.read_text() + "another==1.0\n")
    assert make(project, target, PIP_FAILS="1").returncode != 0
    assert make(project, target).returncode == 0
    assert calls(project) == ["pip", "pip"]  # the first of which failed


def test_dates_do_not_matter_and_contents_do(project: Path):
    make(project, "setup")
    calls(project)
    requirements = project / "requirements.txt"
    requirements.touch()
    make(project, "setup")
    assert calls(project) == []

    requirements.write_text(requirements.read_text() + "another==1.0\n")
    make(project, "setup")
    assert calls(project) == ["pip", "pip"]  # over the environment that there is


def test_a_half_made_environment_is_rebuilt(project: Path):
    failed = make(project, "setup", PIP_FAILS="1")
    assert failed.returncode != 0
    assert "The installation failed" in failed.stderr
    assert not (project / ".venv" / ".installed").exists()
    calls(project)

    (project / ".venv" / "leftover").touch()
    assert make(project, "setup").returncode == 0
    assert calls(project) == ["venv", "pip", "pip"]
    assert not (project / ".venv" / "leftover").exists()


def test_two_at_once_set_up_once(project: Path):
    first = start(project, "setup", PIP_WAITS_FOR=str(project / "go on"))
    while not (project / "calls").exists() or "pip" not in (project / "calls").read_text():
        assert first.poll() is None
        time.sleep(0.01)
    second = start(project, "test")
    assert second.stdout is not None and "Waiting for process" in second.stdout.readline()
    (project / "go on").touch()
    assert finish(first).returncode == 0
    done = finish(second)
    assert done.returncode == 0 and "ran: -m pytest -n auto" in done.stdout
    assert calls(project) == ["venv", "pip", "pip"]


def test_a_killed_set_up_keeps_nobody_waiting(project: Path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    (project / ".venv").mkdir()
    (project / ".venv" / ".installing").write_text(f"{dead.pid}\n")
    assert make(project, "setup").returncode == 0
    assert calls(project) == ["venv", "pip", "pip"]
    assert not (project / ".venv" / ".installing").exists()


def test_an_environment_without_its_interpreter_is_rebuilt(project: Path):
    make(project, "setup")
    (project / ".venv" / "bin" / "python").unlink()
    calls(project)
    assert make(project, "setup").returncode == 0
    assert calls(project) == ["venv", "pip", "pip"]


def test_a_moved_folder_is_set_up_anew(project: Path):
    make(project, "setup")
    calls(project)
    moved = project.rename(project.with_name("moved"))
    assert make(moved, "setup").returncode == 0
    assert calls(moved) == ["venv", "pip", "pip"]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_python_is_honoured(project: Path, by: str):
    make(project, "setup")
    calls(project)
    other = project / "other" / "bin" / "python3"
    other.parent.mkdir(parents=True)
    other.write_text(INTERPRETER.replace("(3, 11, 2)", "(3, 12, 1)"))
    other.chmod(0o755)
    chosen = "other/bin/python3"

    def run() -> subprocess.CompletedProcess[str]:
        if by == "argument":
            return make(project, "setup", f"PYTHON={chosen}")
        return make(project, "setup", PYTHON=chosen)

    assert run().returncode == 0
    assert calls(project) == ["venv", "pip", "pip"]
    assert "(3, 12, 1)" in (project / ".venv" / "bin" / "python").read_text()
    run()
    make(project, "setup")  # and without a word of it, what there is stays
    assert calls(project) == []


def test_an_old_python_gets_the_remedy(project: Path):
    done = make(project, "app", TOO_OLD="1")
    assert done.returncode != 0
    says(done.stderr, "Python 3.11 or newer", "'python3'", "Python 3.9.2")
    assert "make PYTHON=" in done.stderr
    assert calls(project) == []


def test_a_missing_python_gets_the_remedy(project: Path):
    done = make(project, "app", "PYTHON=no-such-python")
    says(done.stderr, "'no-such-python'", "not here")


def test_a_missing_venv_module_gets_the_remedy(project: Path):
    done = make(project, "app", NO_VENV="1")
    assert done.returncode != 0
    assert "apt-get install python3.11-venv" in done.stderr
    assert calls(project) == []


def test_train_asks_for_its_recipe(project: Path):
    recipes = project / "aotlens" / "train" / "recipes"
    recipes.mkdir(parents=True)
    (recipes / "tiny.toml").touch()
    done = make(project, "train")
    assert done.returncode != 0
    assert "make train RECIPE=" in done.stderr and "tiny" in done.stderr
    assert "ran: -m aotlens train tiny" in make(project, "train", "RECIPE=tiny").stdout
