"""Python for the Checkpoints page's views."""

from __future__ import annotations

from app.core import Core
from app.pages.checkpoints.address import CheckpointsState
from app.pages.checkpoints.ids import ids
from app.pages.checkpoints.service import Checkpoints
from app.shell.page import python_of


@python_of(ids.CATALOG, ids.CARD, ids.CURVE, ids.PARAMETERS)
def python(core: Core, service: Checkpoints, state: CheckpointsState, panel: str) -> list[str] | None:
    """Return the lines that give a panel's numbers; None without a checkpoint."""
    chosen = state.checkpoint or next((row["name"] for row in service.rows()), None)
    if chosen is None:
        return None
    info = ["from aotlens.checkpoints import find_checkpoint", "", f"info = find_checkpoint({chosen!r})"]
    return {
        ids.CATALOG: [
            "import aotlens",
            "",
            "# The loss on held-out data and the simple model's on the same; info.words.unit is its unit.",
            "result = {info.name: info.losses for info in aotlens.list_checkpoints() if info.problem is None}",
        ],
        ids.CARD: [*info, "result = info.card"],
        ids.CURVE: [*info, "result = info.history()  # a row a measurement"],
        ids.PARAMETERS: [
            *info,
            "from aotlens.checkpoints.header import read_header",
            "from aotlens.checkpoints.layout import WEIGHTS, locate",
            "",
            "result = {name: entry.shape for name, entry in read_header(locate(info.path, WEIGHTS)).tensors.items()}",
        ],
    }[panel]
