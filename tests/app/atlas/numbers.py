"""What the Atlas page's service gives, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.pages.atlas import files as atlas_files
from app.pages.atlas.address import AtlasState
from app.pages.atlas.ids import ids
from app.pages.atlas.service_dossier import losses
from app.pages.atlas.service_path import guided
from app.shell.app import App

STATE = AtlasState(checkpoint="tiny-mhsa", where="layer = 1", head=(1, 0), y="entropy")


def _atlas(app: App, state: AtlasState) -> tuple[Any, Any]:
    service = app.services["atlas"]
    return service, service.of(state.checkpoint, state.corpus)


def _in_dossier(panel: str) -> Callable[[App, AtlasState], Any]:
    return lambda app, at: atlas_files.dossier_frame(*_atlas(app, at), at.head, at.bin, panel)


EXPECTED: dict[str, Any] = {
    ids.TABLE: lambda app, at: (a := _atlas(app, at))[1].atlas.to_frame()[a[0].found(a[1], at.where)],
    ids.SCATTER: lambda app, at: _atlas(app, at)[1].atlas.to_frame()[["layer", "head", at.x, at.y]],
    ids.EXAMPLES: _in_dossier(ids.EXAMPLES),
    ids.MOTIFS: _in_dossier(ids.MOTIFS),
    ids.WEIGHTS: lambda app, at: [
        _atlas(app, at)[0].strongest(at.checkpoint, at.head, kind, None, "").relative for kind in ("qk", "ov")
    ],
    ids.PARTNERS: lambda app, at: ((made := _atlas(app, at)[1].atlas).reads(at.head, 4), made.feeds(at.head, 4)),
    ids.LOSSES: lambda app, at: {
        one["how"]: (one["change"], one["low"], one["high"]) for one in losses(_atlas(app, at)[1], at.head)
    },
    ids.VERDICT: lambda app, at: guided(app.services["atlas"])[1].to_frame(),
}
