"""The Subspace denoising page's address: a mixture, how it is denoised, and what of it is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address, address_checks
from app.core.parameters import parameter, parameters

Tab = Literal["mixture", "models"]
Phi = Literal["thresholded_softmax", "softmax"]
Bases = Literal["orthogonal", "random"]
Picture = Literal["lengths", "directions", "angles"]

_MOST_CLUSTERS, _MOST_LAYERS = 6, 24


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
    clusters: int = parameter("Clusters K", 3, least=2, most=_MOST_CLUSTERS)
    rank: int = parameter("Rank p of a subspace", 24, least=1, most=128)
    tokens: int = parameter("Tokens of a cluster", 24, least=1, most=100)
    """Of each cluster."""
    d_model: int = parameter("d_model", 72, least=2, most=512)
    noise: float = parameter("Noise δ", 0.1, least=0.0, most=1.0, step=0.01)
    step: float = parameter("Step size η", 0.5, least=0.05, most=2.0, step=0.05)
    threshold: float = parameter("Threshold τ", 0.6, least=0.01, most=0.99, step=0.01)
    """Unused by the plain softmax."""
    layers: int = parameter("Layers", 10, least=1, most=_MOST_LAYERS)
    seed: int = parameter("Seed", 0, least=0, most=99)
    phi: Phi = address.choice(get_args(Phi), "thresholded_softmax")
    bases: Bases = address.choice(get_args(Bases), "orthogonal")
    layer: int = address.whole(0, check=address_checks.up_to("layers", "layers"))
    """The layer that is looked at; 0 is the tokens as drawn."""
    picture: Picture = address.choice(get_args(Picture), "lengths")
    head: int = address.whole(1, least=1, check=address_checks.up_to("clusters", "clusters"))
    """The subspace whose memberships are shown, from 1 on."""


#: The sliders, in their order.
PARAMETERS = parameters(SubspacesState)

ADDRESS = address.Address("subspaces", SubspacesState)
