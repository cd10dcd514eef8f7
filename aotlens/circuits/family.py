"""A head's QK circuits at many distances, and the curve of one pair of tokens over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.circuit import Circuit, CircuitTable
from aotlens.circuits.distance import alibi_bias, in_pairs, rotation_at, turned
from aotlens.circuits.over_distances import best_scores
from aotlens.circuits.topk import top_entries
from aotlens.conventions import require_whole
from aotlens.models import ModelConfig
from aotlens.models.positions import frequencies
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class EntriesAtDistances(CircuitTable):
    """The largest entries of a family of circuits over (destination, source, distance)."""

    distances: Int64[np.ndarray, " entry"]
    share_of_pairs: float
    """Share of pairs whose distances had to be looked at; the others' bounds were below the last entry."""

    @property
    def headline(self) -> str:
        if not len(self):
            return "no entries"
        place = f"[{self.row_labels[0]}] × [{self.column_labels[0]}] at distance {self.distances[0]}"
        return f"{place} first, {self.values[0]:+.4g} {self.unit}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry: row, column, distance, row_id, column_id, and the value under its unit."""
        frame = super().to_frame()
        frame.insert(2, "distance", self.distances)
        return frame


@dataclass(frozen=True, eq=False)
class CircuitFamily:
    """The QK circuits of one head at several distances, s · left W_Q R_δ (right W_K)ᵀ each, sharing two factors.

    `family.at(3)` is the circuit at a distance, `family.top(20)` the largest entries over (destination, source,
    distance).
    """

    content: Circuit
    """left W_Q and right W_K before anything is rotated; with ALiBi, the scores without their bias."""
    cfg: ModelConfig
    distances: tuple[int, ...]

    @property
    def head(self) -> tuple[int, int]:
        return self.content.heads[0]

    def at(self, distance: int) -> Circuit:
        """Return the circuit at one of the distances. Raises `ValueError` for another."""
        if distance not in self.distances:
            raise ValueError(f"distance={distance!r}: expected one of the family's, {self._span}.")
        return at_distance(self.content, self.cfg, distance)

    def top(self, k: int = 20, *, largest: bool = True) -> EntriesAtDistances:
        """Return the k largest (or smallest) entries over (destination, source, distance), exactly: float64 values.

        Memory: some tiles and copies of the factors. Raises `ValueError` for k below 1; where there are fewer entries,
        all of them come.
        """
        require_whole("k", k, 1)
        content, sign = self.content, 1.0 if largest else -1.0
        k = min(k, content.ldim * content.rdim * len(self.distances))
        if self.cfg.position_kind.rotates:
            scores = best_scores(self.cfg, sign * content.A, content.B.T, self.distances, k)
            rows, columns, places, share = scores.rows, scores.columns, scores.places, scores.share_of_pairs
            values = sign * scores.values
        else:  # every pair has the same bias at a distance: pairs beyond the k best are not among the k best anywhere
            best = top_entries(content, min(k, content.ldim * content.rdim), largest)
            every = (best.values[:, None] + self._biases).flatten()
            order = every.argsort(descending=largest, stable=True)[:k]
            pairs, places = order // len(self.distances), order % len(self.distances)
            rows, columns, values = best.rows[pairs], best.columns[pairs], every[order]
            share = len(best.values) / (content.ldim * content.rdim)
        return EntriesAtDistances(
            **content.entry_fields(rows.tolist(), columns.tolist()) | {"circuit": repr(self)},
            distances=np.asarray(self.distances, dtype=np.int64)[places.numpy()],
            values=values.numpy() + 0.0,
            share_of_pairs=share,
        )

    def profile(self, destination: int | str, source: int | str) -> DistanceProfile:
        """Return the curve of one entry over the distances, with its split by frequency."""
        content = self.content
        places = content.place("left", destination), content.place("right", source)
        names = content.entry_fields([places[0]], [places[1]])
        q, k = double(content.A)[places[0]], double(content.B)[:, places[1]]
        if self.cfg.position_kind.rotates:
            theta, bias = frequencies(self.cfg), torch.zeros(len(self.distances), dtype=torch.float64)
            (u, v, rest), (x, y, other) = in_pairs(self.cfg, q), in_pairs(self.cfg, k)
            a, b, c = u * x + v * y, u * y - v * x, float(rest @ other)
        else:
            a = b = theta = torch.zeros(0, dtype=torch.float64)
            c, bias = float(q @ k), self._biases
        return DistanceProfile(
            circuit=repr(self), destination=names["row_labels"][0], source=names["column_labels"][0],
            exact=content.exact, relative=content.relative, distances=np.asarray(self.distances, dtype=np.int64),
            theta=theta.numpy(), a=a.numpy(), b=b.numpy(), c=c, bias=bias.numpy(),
        )  # fmt: skip

    @property
    def _biases(self) -> Tensor:
        """ALiBi's bias at each distance."""
        return torch.tensor([alibi_bias(self.cfg, self.head[1], distance) for distance in self.distances]).double()

    @property
    def _span(self) -> str:
        return f"{self.distances[0]} to {self.distances[-1]} ({len(self.distances)} of them)"

    def __repr__(self) -> str:
        return f"{self.content!r} at distances {self._span}"


@dataclass(frozen=True, kw_only=True, eq=False)
class DistanceProfile(Result):
    """The score of one destination for one source over distances: Σ_f (a_f cos θ_f δ + b_f sin θ_f δ) + c, in nats."""

    circuit: str
    destination: str
    source: str
    exact: bool
    """Whether it is the model's own score of these tokens on any input; `relative` says why not."""
    relative: str
    distances: Int64[np.ndarray, " distance"]
    theta: Float64[np.ndarray, " pair"]
    """Frequencies, in radians a position, from the fastest."""
    a: Float64[np.ndarray, " pair"]
    b: Float64[np.ndarray, " pair"]
    """Their sign is that of R_δ with δ = destination − source (`aotlens.conventions`)."""
    c: float
    """The contribution of the coordinates that are not rotated."""
    bias: Float64[np.ndarray, " distance"]
    """The bias of ALiBi; zeros for rotary positions."""

    @property
    def by_frequency(self) -> Float64[np.ndarray, "pair distance"]:
        """The contribution of each frequency at each distance."""
        angles = self.theta[:, None] * self.distances
        return self.a[:, None] * np.cos(angles) + self.b[:, None] * np.sin(angles)

    @property
    def scores(self) -> Float64[np.ndarray, " distance"]:
        return self.by_frequency.sum(0) + self.c + self.bias

    @property
    def amplitude(self) -> Float64[np.ndarray, " pair"]:
        """√(a² + b²): the most that a frequency adds anywhere, nats."""
        return np.hypot(self.a, self.b)

    @property
    def headline(self) -> str:
        best = int(self.scores.argmax())
        return (
            f"[{self.destination}] scores [{self.source}] highest at distance {self.distances[best]}, "
            f"{self.scores[best]:+.3f} nats; mean over distances {self.scores.mean():+.3f}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a distance: distance, score, and what each frequency adds, by its wavelength in positions."""
        frame = data_frame({"distance": self.distances, "score": self.scores})
        parts = {
            f"wavelength {2 * np.pi / theta:.4g}": part
            for theta, part in zip(self.theta, self.by_frequency, strict=True)
        }
        return frame.assign(**parts)


def at_distance(circuit: Circuit, cfg: ModelConfig, distance: int) -> Circuit:
    """Return the circuit at a distance, from the one without rotation: queries turned, or ALiBi's bias as one more
    dimension."""
    A, B = circuit.A, circuit.B
    if cfg.position_kind.rotates:
        A = turned(A, rotation_at(cfg, distance))
    else:
        bias = alibi_bias(cfg, circuit.heads[0][1], distance)
        A, B = torch.cat([A, torch.ones_like(A[:, :1])], 1), torch.cat([B, torch.full_like(B[:1], bias)])
    return circuit.with_factors(A, B)


def checked_distances(cfg: ModelConfig, distances: Sequence[int]) -> tuple[int, ...]:
    """Return distances in rising order, each once. Raises `ValueError` for none and for one outside the context."""
    rising = sorted({require_whole("distance", each, 0, cfg.shortest_window - 1) for each in distances})
    if not rising:
        raise ValueError("distance: expected at least one distance, as range(64), got none.")
    return tuple(rising)
