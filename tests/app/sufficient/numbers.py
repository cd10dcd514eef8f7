"""What the page Sufficient heads shows in tests/app/test_python.py."""

from __future__ import annotations

from pathlib import Path

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from app.pages.sufficient import PAGE
from tests.heads.hand_built import induction

STATE = PAGE.address.state({"checkpoint": "built", "how": "zero", "keep": 0.8, "seed": 3})


def save_built(folder: Path) -> None:
    """A checkpoint whose induction pair is built by hand."""
    save_checkpoint(folder / "built", induction(8, 12.0), CheckpointInfo(name="built"))
