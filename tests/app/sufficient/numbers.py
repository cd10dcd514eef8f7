"""What the page Sufficient heads shows, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.views.sufficient import SUFFICIENT
from app.pages.sufficient import PAGE
from app.shell.app import App
from tests.heads.hand_built import induction

STATE = PAGE.address.state({"checkpoint": "built", "how": "zero", "keep": 0.8, "seed": 3})


def save_built(folder: Path) -> None:
    """A checkpoint whose induction pair is built by hand."""
    save_checkpoint(folder / "built", induction(8, 12.0), CheckpointInfo(name="built"))


def _table(app: App, at: Any) -> Any:
    service = app.services["sufficient"]
    chosen = service.values(PAGE.address.json(at))
    return service.workshop.told(lambda done, total: None).result(SUFFICIENT, chosen).to_frame()


EXPECTED = {"sufficient-heads": _table}
