"""The list of analyses: its README has a row for each, and all can be run at once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analyses import __main__ as runner

README = (Path(runner.__file__).parent / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_a_row_for_each_and_its_command() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| `(python -m [^`]+)` \|", README, re.MULTILINE))
    assert sorted(rows) == sorted(runner.analyses()) and len(rows) >= 9
    for name, command in rows.items():
        assert command.startswith(f"python -m analyses {name}")
        assert ("--corpus" in command) == ("--corpus" in runner.analyses()[name])


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main([]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^{name} +\*", out, re.MULTILINE) for name in runner.analyses())
    assert runner.main(["nonsense"]) == 2 and "There are: " in capsys.readouterr().err


@pytest.mark.parametrize("corpus", [[], ["--corpus", "dir:PATH"], ["--corpus=dir:PATH"]])
def test_all_run_with_the_options_that_they_take(
    corpus: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: dict[str, list[str]] = {}

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        ran[command[2].removeprefix("analyses.")] = command[3:]
        return subprocess.CompletedProcess(command, 3 if command[2].endswith("superposition") else 0)

    monkeypatch.setattr("analyses.__main__.subprocess.run", run)
    assert runner.main(["--quick", *corpus]) == 1
    captured = capsys.readouterr()
    assert captured.err == "Failed: superposition\n"
    for name, text in runner.analyses().items():
        reads = "--corpus" in text
        assert ran.get(name) == (["--quick", *corpus] if reads and corpus else None if reads else ["--quick"])
    assert ("left out" in captured.out) == (not corpus)
