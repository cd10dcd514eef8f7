"""The composition of one head with the earlier heads that it reads and the later ones that read it, in every mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.circuits.composition import EDGE_Z, Composition, all_compositions
from aotlens.circuits.head_pairs import Mode
from aotlens.conventions import Head, HeadLike, as_head, head_name
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

#: The modes in which a later head reads an earlier one.
MODES = {"q": "queries (q)", "k": "keys (k)", "qk": "queries and keys (q = k)", "v": "values (v)"}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadComposition(Result):
    """Every pair that one head is in, the highest score first; the numbers are those of `Composition`."""

    head: Head
    n_layers: int
    n_heads: int
    earlier: Int64[np.ndarray, "pair 2"]
    """The layer and number of each pair's earlier head."""
    later: Int64[np.ndarray, "pair 2"]
    modes: tuple[str, ...]
    """q, k or v; qk where queries and keys are one matrix (MSSA without rotary positions), so that the two scores are
    one number."""
    values: Float64[np.ndarray, " pair"]
    rank: Int64[np.ndarray, " pair"]
    """The earlier head's place among all that the later head can read, by score."""
    above_null: Bool[np.ndarray, " pair"]
    """Whether z against flipped signs is `EDGE_Z` or more: `Composition.edges`."""
    z: Float64[np.ndarray, " pair"]
    """The z score against flipped signs: `Composition.z_signs`."""
    z_rotated: Float64[np.ndarray, " pair"]
    """The z score against random rotations: `Composition.z`."""
    norms: Float64[np.ndarray, " pair"]
    random_mean: Float64[np.ndarray, " pair"]
    random_std: Float64[np.ndarray, " pair"]
    random_rms: float | int
    """Root mean square of the score over random rotations, whatever the two heads."""

    @property
    def headline(self) -> str:
        n, layer, head = int(self.above_null.sum()), *self.head
        return f"{n} of {len(self.values)} pairs of head {layer}.{head} have z ≥ {EDGE_Z:g} against flipped signs"

    def sentences(self, z: float = 0.0) -> str:
        """Return how many pairs lie above their null, and at least this z, and what the null is."""
        same = ""
        if "qk" in self.modes:
            same = " Queries and keys are one matrix here (MSSA), so q and k composition are one number."
        level = f" and at least z = {z:g}" if z > EDGE_Z else ""
        return (
            f"{len(self.strongest(z))} of {len(self.values)} pairs lie above their null{level}: z ≥ {EDGE_Z:g} where "
            "the directions in which the stream varies are kept, and which of them the two heads share is drawn. "
            f"Randomly rotated, every pair has a root mean square of {self.random_rms:.3f}.{same}"
        )

    def strongest(self, z: float = 0.0) -> Int64[np.ndarray, " pair"]:
        """List the places of the pairs above their null with at least this z, the highest score first."""
        return np.flatnonzero(self.above_null & (np.nan_to_num(self.z, nan=-np.inf) >= z))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair: relation, head (the other one), mode, value, rank, above_null, z, z_rotated, norm,
        random_mean, random_std (of the squared norm)."""
        reads = (self.later == np.array(self.head)).all(1)
        others = np.where(reads[:, None], self.earlier, self.later)
        return data_frame(
            {
                "relation": np.where(reads, "reads", "is read by").astype(object),
                "head": list(map(head_name, others.tolist())),
                "mode": [MODES[mode] for mode in self.modes],
                "value": self.values, "rank": self.rank,
                "above_null": np.where(self.above_null, "yes", "no").astype(object),
                "z": self.z, "z_rotated": self.z_rotated, "norm": self.norms,
                "random_mean": self.random_mean, "random_std": self.random_std,
            }
        )  # fmt: skip


def head_composition(
    model: AttentionOnlyTransformer, head: HeadLike, compositions: Mapping[Mode, Composition] | None = None
) -> HeadComposition:
    """Return the composition of a head with every head of other layers, in every mode that the model has.

    `compositions` are those of the same model; without them, `all_compositions(model, folded=True)`, which takes the
    time. Raises `ValueError` for a head that the model does not have.
    """
    require_ours(model, "head_composition", without=("norm_after", "clip_qkv"))
    head, cfg = as_head(head, model.cfg), model.cfg
    by_mode = all_compositions(model, folded=True) if compositions is None else compositions
    one_matrix = cfg.attention == "mssa" and not cfg.position_kind.rotates
    pairs = [
        (mode, pair)
        for mode in by_mode
        if not (one_matrix and mode == "k")
        for pair in _pairs(head, cfg.n_layers, cfg.n_heads)
    ]
    pairs.sort(key=lambda place: -by_mode[place[0]].values[place[1]])

    def of(name: str, dtype: type = float) -> np.ndarray:
        return np.array([getattr(by_mode[mode], name)[pair] for mode, pair in pairs], dtype=dtype)

    ends = np.array([pair for _, pair in pairs], dtype=np.int64).reshape(-1, 2, 2)
    return HeadComposition(
        head=head,
        n_layers=cfg.n_layers,
        n_heads=cfg.n_heads,
        earlier=ends[:, 0],
        later=ends[:, 1],
        modes=tuple("qk" if one_matrix and mode == "q" else mode for mode, _ in pairs),
        values=of("values"),
        rank=of("rank", np.int64),
        above_null=of("edges", bool),
        z=of("z_signs"),
        z_rotated=of("z"),
        norms=of("norms"),
        random_mean=of("random_mean"),
        random_std=of("random_std"),
        random_rms=next(iter(by_mode.values())).random_rms,
    )


def _pairs(head: Head, n_layers: int, n_heads: int) -> Iterator[tuple[int, int, int, int]]:
    """Earlier layer and head, later layer and head."""
    for layer in range(n_layers):
        for other in range(n_heads if layer != head[0] else 0):
            yield (layer, other, *head) if layer < head[0] else (*head, layer, other)
