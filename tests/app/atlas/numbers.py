"""What the Atlas page's views give, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from app.pages.atlas.address import AtlasState
from app.pages.atlas.ids import GUIDED, VIEWS, ids
from app.shell.app import App

#: Of the circuit that was built by hand (conftest.py), under the name of a bundled checkpoint.
CHECKPOINT = "novels-2l-mhsa"
OF_PATH = AtlasState(checkpoint=CHECKPOINT)
STATE = AtlasState(checkpoint="tiny-mhsa", where="layer = 1", head=(1, 0), y="entropy")


def _shown(view: View) -> Callable[[App, AtlasState], Any]:
    def expected(app: App, at: AtlasState) -> Any:
        service = app.services["atlas"]
        workshop = service.workshop.told(lambda done, total: None) if view.slow else service.workshop
        return view.frame(workshop.result(view, service.of_address(at)))

    return expected


EXPECTED: dict[str, Any] = {panel: _shown(view) for panel, view in {**VIEWS, **GUIDED}.items() if panel != ids.SUMMARY}
