"""Prompts in the plane as the page's controls say them, and trained layers: what its views are of. No Dash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotlens.views.denoising import PARAMETERS, InPlane, best_scales
from app.core import Core
from app.core.parameters import within
from app.core.workshop import AppWorkshop
from app.pages.denoising.address import ADDRESS, DenoisingState
from app.pages.denoising.ids import FORM
from app.pages.denoising.service_training import Trainings


class Denoising:
    """The questions that the page asks, and the place where their answers are made."""

    def __init__(self, core: Core) -> None:
        self.workshop = AppWorkshop(core, core.settings.n_planes)
        self.trainings = Trainings(core)

    def values(self, shown: Mapping[str, Any], query: Any = None) -> InPlane:
        """Return what the page says its plane shows, by fields of its address, with the query where it has been put."""
        return in_plane(ADDRESS.state({**shown, "query": query}))

    def asked(self, **form: Any) -> InPlane:
        """Return the request that stands in the page's controls; numbers within their bounds."""
        return self.values(within(PARAMETERS, form))

    def best(self, asked: InPlane) -> Mapping[str, float]:
        """Find the α and β that lose least on this task."""
        return best_scales(asked)


def in_plane(state: DenoisingState) -> InPlane:
    """Return what an address says of the plane; a number of components is a mixture's."""
    fields = {name: getattr(state, name) for name in FORM}
    if state.task != "mixtures":
        fields["components"] = DenoisingState().components
    return InPlane(**fields, query=state.query)
