"""The measurement of scoring compares equal numbers, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import scoring

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def test_scoring_runs_from_the_command_line(tmp_path: Path):
    path = tmp_path / "figures.json"
    assert scoring.main(["--quick", "--pairs", "1", "--json", str(path)]) == 0
    row = json.loads(path.read_text())["scoring"]["rows"][0]
    assert row["passages"] == 40 and row["one at a time ÷ ours"] > 0 and row["largest difference (nats)"] < 1e-3
