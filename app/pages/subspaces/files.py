"""What the Subspace denoising page shows, as files."""

from __future__ import annotations

import pandas as pd

from app.core.files import File, csv_file
from app.pages.subspaces import figures, words
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.service import Subspaces, head_of


def snr_csv(service: Subspaces, state: SubspacesState) -> File:
    """One row a layer and cluster."""
    return _csv(state, "snr", service.unroll(state).to_frame())


def cloud_csv(service: Subspaces, state: SubspacesState) -> File:
    """One row a layer and token: its cluster, and its coordinates in the picture."""
    points, labels = service.points(state), service.unroll(state).mixture.labels.numpy()
    n_layers, n_tokens, n_axes = points.coordinates.shape
    frame = pd.DataFrame(points.coordinates.reshape(-1, n_axes), columns=list(points.axes))
    frame.insert(0, "layer", [layer for layer in range(n_layers) for _ in range(n_tokens)])
    frame.insert(1, "token", list(range(n_tokens)) * n_layers)
    frame.insert(2, "cluster", (labels + 1).tolist() * n_layers)
    return _csv(state, state.picture, frame)


def membership_csv(service: Subspaces, state: SubspacesState) -> File:
    """The memberships of the chosen layer: one row a query, one column a key."""
    patterns, labels = service.memberships(state)
    layer = min(state.layer, len(patterns) - 1)
    names = [f"cluster {label + 1}, token {place}" for place, label in enumerate(labels)]
    frame = pd.DataFrame(patterns[layer], columns=names)
    frame.insert(0, "query", names)
    return _csv(state, f"memberships-{head_of(state)}-layer-{layer}", frame)


def conditions_csv(service: Subspaces, state: SubspacesState) -> File:
    """One row a condition."""
    return _csv(state, "conditions", pd.DataFrame(figures.condition_rows(service, state)))


def _csv(state: SubspacesState, what: str, frame: pd.DataFrame) -> File:
    return csv_file(f"{words.name(state)}-{what}.csv", frame)
