"""Mixtures of noisy subspaces, unrolled: `aotlens.denoise`, remembered."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.parameters import within
from app.pages.subspaces.address import PARAMETERS, SubspacesState
from app.pages.subspaces.service_audit import Audits

if TYPE_CHECKING:
    from aotlens.denoise import Conditions, Unrolling

#: What says how a mixture is looked at, and nothing of the mixture.
LOOKS = ("tab", "checkpoint", "layer", "picture", "head")
_SUBSCRIPTS = str.maketrans("123", "₁₂₃")
#: The largest number of a layer's memberships that are drawn, a side; of more tokens, as many of each cluster.
MOST_MEMBERS = 96


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    """Tokens as coordinates, `[layer, n, 2 or 3]`, with their axes."""

    coordinates: np.ndarray
    axes: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]


class Subspaces:
    """Unrolled mixtures by what was asked for."""

    def __init__(self, core: Core) -> None:
        self.audits = Audits(core)
        self._unrollings: Cache[SubspacesState, Unrolling] = core.memory.cache()

    def unroll(self, state: SubspacesState) -> Unrolling:
        """The mixture layer by layer. Raises RequestError for what cannot be drawn, with the reason."""
        first = SubspacesState()
        state = replace(state, **{name: getattr(first, name) for name in LOOKS})
        if state.phi == "softmax":
            state = replace(state, threshold=first.threshold)
        return self._unrollings.get(state, lambda: _unroll(state))

    def conditions(self, state: SubspacesState) -> Conditions:
        """The theorem's conditions at these sizes."""
        from aotlens.denoise import conditions

        return conditions(
            state.clusters, state.rank, state.tokens, state.d_model, noise=state.noise, threshold=state.threshold
        )

    def points(self, state: SubspacesState) -> Points:
        """Where the tokens are drawn, in the picture that the state asks for."""
        return _PICTURES[state.picture](self.unroll(state))

    def memberships(self, state: SubspacesState) -> tuple[np.ndarray, np.ndarray]:
        """φ within the chosen subspace, `[layer, query, key]`, and the clusters of the tokens that it is of."""
        unrolling = self.unroll(state)
        labels = unrolling.mixture.labels.numpy()
        members = max(MOST_MEMBERS // state.clusters, 1)
        kept = np.concatenate([np.flatnonzero(labels == cluster)[:members] for cluster in range(state.clusters)])
        patterns = unrolling.memberships(head_of(state) - 1).numpy()
        return patterns[:, kept[:, None], kept], labels[kept]


def head_of(state: SubspacesState) -> int:
    """The subspace whose memberships are shown, from 1 on: the last one where there are fewer than asked for."""
    return min(state.head, state.clusters)


def from_form(**form: Any) -> SubspacesState:
    """What stands in the page's controls; numbers within their bounds."""
    return SubspacesState(**within(PARAMETERS, form))


def to_dict(state: SubspacesState) -> dict[str, Any]:
    """For the browser, without what only says how it is looked at."""
    return {name: value for name, value in asdict(state).items() if name not in LOOKS}


def from_dict(data: dict[str, Any], **looks: Any) -> SubspacesState:
    """What `to_dict` made, looked at so."""
    return SubspacesState(**data, **looks)


def _unroll(state: SubspacesState) -> Unrolling:
    from aotlens.denoise import sample_mixture, unroll_mixture

    orthogonal = state.bases == "orthogonal"
    if orthogonal and state.clusters * state.rank > state.d_model:
        raise RequestError(
            f"{state.clusters} orthogonal subspaces of rank {state.rank} need d_model of at least "
            f"{state.clusters * state.rank}, and it is {state.d_model}. Take a larger d_model, a smaller rank, fewer "
            "clusters, or random subspaces, which need not be orthogonal."
        )
    try:
        mixture = sample_mixture(
            state.clusters, state.rank, state.tokens, state.d_model, state.noise, state.seed, orthogonal=orthogonal
        )
        threshold = state.threshold if state.phi == "thresholded_softmax" else None
        return unroll_mixture(mixture, state.step, state.phi, threshold, state.layers)
    except ValueError as error:
        raise RequestError(str(error)) from error


def _scale(unrolling: Unrolling) -> np.ndarray:
    """The root mean square length of a layer's tokens, `[layer, 1, 1]`."""
    return np.sqrt(unrolling.tokens.pow(2).sum(-1).mean(1).numpy())[:, None, None]


def _axes(unrolling: Unrolling) -> int:
    return min(len(unrolling.mixture.bases), 3)


def _lengths(unrolling: Unrolling) -> Points:
    n_axes = _axes(unrolling)
    lengths = unrolling.lengths[..., :n_axes].numpy() / _scale(unrolling)
    return Points(
        coordinates=lengths,
        axes=tuple(f"in subspace {axis + 1}" for axis in range(n_axes)),
        ranges=((-0.02, 1.05 * float(lengths.max())),) * n_axes,
    )


def _directions(unrolling: Unrolling) -> Points:
    n_axes = _axes(unrolling)
    firsts = unrolling.mixture.bases[:n_axes, :, 0]
    coordinates = (unrolling.tokens @ firsts.T).numpy() / _scale(unrolling)
    # A few tokens of one layer may lie far out: all but they fill the picture.
    reach = 1.3 * float(np.quantile(np.abs(coordinates), 0.995))
    return Points(
        coordinates=coordinates,
        axes=tuple(f"along U{axis + 1}".translate(_SUBSCRIPTS) for axis in range(n_axes)),
        ranges=((-reach, reach),) * n_axes,
    )


def _angles(unrolling: Unrolling) -> Points:
    angles, labels = unrolling.angles.numpy(), unrolling.mixture.labels.numpy()
    own = np.arange(angles.shape[2]) == labels[:, None]
    nearest = np.where(own, np.inf, angles).min(-1)
    return Points(
        coordinates=np.stack([angles[:, own], nearest], axis=-1),
        axes=("angle to its own subspace (°)", "angle to the nearest other (°)"),
        ranges=((-2.0, 92.0),) * 2,
    )


_PICTURES = {"lengths": _lengths, "directions": _directions, "angles": _angles}
