"""Mixtures of noisy subspaces, unrolled and remembered: what the page's views are of. No Dash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotlens.views.subspaces import PARAMETERS, SNR, Chosen
from app.core import Core
from app.core.workshop import AppWorkshop
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.service_audit import Audits

if TYPE_CHECKING:
    from aotlens.denoise import Unrolling

#: The fields that say how a mixture is looked at, and nothing of the mixture.
LOOKS = ("tab", "checkpoint", "layer", "picture", "head")
#: The fields that say which mixture it is.
MIXTURE = (*PARAMETERS, "phi", "bases")


class Subspaces:
    """Unrolled mixtures by what was asked for."""

    def __init__(self, core: Core) -> None:
        self.audits = Audits(core)
        self.workshop = AppWorkshop(core, core.settings.n_views)

    def unroll(self, chosen: Chosen) -> Unrolling:
        """Unroll the mixture layer by layer. Raises RequestError for what cannot be drawn, with the reason."""
        unrolling: Unrolling = self.workshop.result(SNR, chosen)
        return unrolling

    def within(self, chosen: Chosen) -> Chosen:
        """Return the choices at a layer that there is: numbers may leave float64's range before the last one asked
        for."""
        return replace(chosen, layer=min(chosen.layer, len(self.unroll(chosen).tokens) - 1))

    def values(self, shown: Mapping[str, Any], **looks: Any) -> Chosen:
        """Return what the page says that it shows, and how it is looked at."""
        whole = {name: int(looks[name] or 0) for name in ("layer", "head") if name in looks}
        mixture = {name: shown[name] for name in MIXTURE}
        return self.within(Chosen(**mixture, **{**looks, **whole}))


def chosen_of(state: SubspacesState) -> Chosen:
    """Return the choices that an address says."""
    return Chosen(**{name: getattr(state, name) for name in (*MIXTURE, "picture", "head", "layer")})


def from_form(**form: Any) -> dict[str, Any]:
    """Read the page's controls; numbers within their bounds."""
    return {**form, **{name: parameter.within(form[name]) for name, parameter in PARAMETERS.items()}}
