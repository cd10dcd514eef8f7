"""Python for the Distillation page's views."""

from __future__ import annotations

from aotlens.views.distillation import HEADS
from app.core import Core
from app.core.examples import FIRST
from app.pages.distillation.address import DistillationState
from app.pages.distillation.ids import PANELS, VIEWS, ids
from app.pages.distillation.service import Distillations
from app.shell.page import python_of
from app.shell.views import python_lines


@python_of(*VIEWS, *PANELS)
def python(core: Core, service: Distillations, state: DistillationState, panel: str) -> list[str] | None:
    """Return the lines that give a panel's numbers."""
    chosen, _ = service.describe(state)
    if chosen is None:
        return None
    if panel != ids.ON_TEXT:
        return python_lines(VIEWS.get(panel, HEADS), chosen)
    text = FIRST if state.text is None else state.text
    width = service.on_text(chosen, text)[1]
    return chosen.errors_on(service.record(chosen.of).checkpoint, text, width).part("relative").python().splitlines()
