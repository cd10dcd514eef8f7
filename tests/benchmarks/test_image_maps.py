"""The measurement of maps compares equal patterns, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import image_maps


def test_it_runs_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    assert image_maps.main(["--quick", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())["image_maps"]["rows"]
    assert row["patches"] == 9 and row["heads"] == 8 and row["ours ÷ forward with patterns"] > 0
