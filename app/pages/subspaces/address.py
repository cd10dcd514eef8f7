"""The Subspace denoising page's address: a mixture, how it is denoised, and what of it is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address
from app.core.parameters import Parameter

Tab = Literal["mixture", "models"]
Phi = Literal["thresholded_softmax", "softmax"]
Bases = Literal["orthogonal", "random"]
Picture = Literal["lengths", "directions", "angles"]


#: The sliders, in their order; the first values are those at which theory and computation part in the middle.
PARAMETERS: dict[str, Parameter] = {
    "clusters": Parameter(label="Clusters K", first=3, least=2, most=6, step=1),
    "rank": Parameter(label="Rank p of a subspace", first=24, least=1, most=128, step=1),
    "tokens": Parameter(label="Tokens of a cluster", first=24, least=1, most=100, step=1),
    "d_model": Parameter(label="d_model", first=72, least=2, most=512, step=1),
    "noise": Parameter(label="Noise δ", first=0.1, least=0.0, most=1.0, step=0.01),
    "step": Parameter(label="Step size η", first=0.5, least=0.05, most=2.0, step=0.05),
    "threshold": Parameter(label="Threshold τ", first=0.6, least=0.01, most=0.99, step=0.01),
    "layers": Parameter(label="Layers", first=10, least=1, most=24, step=1),
    "seed": Parameter(label="Seed", first=0, least=0, most=99, step=1),
}


@dataclass(frozen=True, kw_only=True)
class SubspacesState:
    """Everything that the Subspace denoising page shows."""

    tab: Tab = address.choice(get_args(Tab), "mixture")
    checkpoint: str | None = address.checkpoint()
    """The model that is audited."""
    clusters: int = PARAMETERS["clusters"].field()
    rank: int = PARAMETERS["rank"].field()
    tokens: int = PARAMETERS["tokens"].field()
    """Of each cluster."""
    d_model: int = PARAMETERS["d_model"].field()
    noise: float = PARAMETERS["noise"].field()
    step: float = PARAMETERS["step"].field()
    threshold: float = PARAMETERS["threshold"].field()
    """Unused by the plain softmax."""
    layers: int = PARAMETERS["layers"].field()
    seed: int = PARAMETERS["seed"].field()
    phi: Phi = address.choice(get_args(Phi), "thresholded_softmax")
    bases: Bases = address.choice(get_args(Bases), "orthogonal")
    layer: int = address.whole(0, most=int(PARAMETERS["layers"].most))
    """The layer that is looked at; 0 is the tokens as drawn."""
    picture: Picture = address.choice(get_args(Picture), "lengths")
    head: int = address.whole(1, least=1, most=int(PARAMETERS["clusters"].most))
    """The subspace whose memberships are shown, from 1 on."""


ADDRESS = address.Address("subspaces", SubspacesState)
