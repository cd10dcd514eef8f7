"""What the page Training shows in tests/app/test_python.py."""

from __future__ import annotations

from pathlib import Path

from aotlens.checkpoints import load
from aotlens.checkpoints.snapshots import SnapshotWriter
from aotlens.results import save_stored
from app.pages.training import PAGE
from tests.app.conftest import save_tiny
from tests.dynamics.small_runs import made_check, made_influence

STEPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
TEXT = "The cat sat on the mat."
STATE = PAGE.address.state({"checkpoint": "tiny-run", "text": TEXT, "measure": "copying"})


def save_run(folder: Path) -> None:
    """A checkpoint with 12 snapshots, whose weights grow to those of its end."""
    save_tiny(folder, "tiny-run")
    end = load(folder / "tiny-run", "cpu").state_dict()
    writer = SnapshotWriter(folder / "tiny-run", 0)
    for number, step in enumerate(STEPS, start=1):
        writer.add(step, 100 * step, {name: weight * (number / len(STEPS)) for name, weight in end.items()})
    save_stored("influence", folder / "tiny-run", made_influence())
    save_stored("influence-check", folder / "tiny-run", made_check())
