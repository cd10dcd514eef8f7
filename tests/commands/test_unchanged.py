"""The numbers of commands on a small checkpoint, compared with those that are stored in `numbers.json`.

Names and options of commands are what users' scripts hold: each line of the file is a command as it was called when its
numbers were stored, with the sum of each numeric column of its table. That documented commands run is tested in
`tests/test_docs.py`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from tests.commands.conftest import Run

NUMBERS: dict[str, dict[str, float]] = json.loads(Path(__file__).with_name("numbers.json").read_text("utf-8"))
TEXT = "the cat sat on the mat, the rat sat on the cat, and that was that. "


@pytest.mark.parametrize("command", NUMBERS)
def test_a_command_gives_its_stored_numbers(run: Run, tmp_path: Path, command: str) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.txt").write_text(f"{name} {TEXT}" * 20)
    csv = tmp_path / "table.csv"
    words = [word.replace("TEXTS", f"dir:{tmp_path}") for word in shlex.split(command)]
    code, _, error = run(*words, "--csv", str(csv))
    assert (code, error) == (0, "")
    sums = pd.read_csv(csv).select_dtypes("number").sum()
    assert dict(sums) == pytest.approx(NUMBERS[command], rel=1e-4, abs=1e-6)
