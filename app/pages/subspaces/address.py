"""The Subspace denoising page's address: a mixture, how it is denoised, and what of it is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from aotlens.views.subspaces import BASES, PARAMETERS, PHIS, PICTURES
from app.core import address, address_checks
from app.core.parameters import declared

Tab = Literal["mixture", "models"]


@dataclass(frozen=True, kw_only=True)
class SubspacesState:
    """Everything that the Subspace denoising page shows.

    The first values are those at which theory and computation part in the middle.
    """

    tab: Tab = address.choice(get_args(Tab), "mixture")
    checkpoint: str | None = address.checkpoint()
    """The model that is audited."""
    corpus: str | None = address.corpus()
    """The text of the audit that is shown; None: the stored audit."""
    draws: int | None = address.whole(least=5, most=100)
    """Random rotations of the audit that is shown; None: the stored audit's."""
    clusters: int = declared(PARAMETERS["clusters"])
    rank: int = declared(PARAMETERS["rank"])
    tokens: int = declared(PARAMETERS["tokens"])
    """The tokens of each cluster."""
    d_model: int = declared(PARAMETERS["d_model"])
    noise: float = declared(PARAMETERS["noise"])
    step: float = declared(PARAMETERS["step"])
    threshold: float = declared(PARAMETERS["threshold"])
    """The threshold, unused by the plain softmax."""
    layers: int = declared(PARAMETERS["layers"])
    seed: int = declared(PARAMETERS["seed"])
    phi: str = address.choice(tuple(PHIS), next(iter(PHIS)))
    bases: str = address.choice(tuple(BASES), next(iter(BASES)))
    layer: int = address.whole(0, check=address_checks.up_to("layers", "layers"))
    """The layer that is looked at; 0 is the tokens as drawn."""
    picture: str = address.choice(tuple(PICTURES), next(iter(PICTURES)))
    head: int = address.whole(1, least=1, check=address_checks.up_to("clusters", "clusters"))
    """The subspace whose memberships are shown, from 1 on."""


ADDRESS = address.Address("subspaces", SubspacesState)
