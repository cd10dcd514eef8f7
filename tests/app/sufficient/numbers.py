"""What the page Sufficient heads shows, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.views import View
from aotlens.views.sufficient import SHAPLEY, SUFFICIENT
from app.pages.sufficient import PAGE
from app.shell.app import App
from tests.heads.hand_built import induction

STATE = PAGE.address.state({"checkpoint": "built", "how": "zero", "keep": 0.8, "seed": 3})


def save_built(folder: Path) -> None:
    """A checkpoint whose induction pair is built by hand."""
    save_checkpoint(folder / "built", induction(8, 12.0), CheckpointInfo(name="built"))


def _table(view: View) -> Any:
    def table(app: App, at: Any) -> Any:
        service = app.services["sufficient"]
        chosen = service.values(PAGE.address.json(at))
        return service.workshop.told(lambda done, total: None).result(view, chosen).to_frame()

    return table


EXPECTED = {"sufficient-heads": _table(SUFFICIENT), "sufficient-shapley": _table(SHAPLEY)}
