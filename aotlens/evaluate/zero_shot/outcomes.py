"""The outcomes of a protocol for one model on one data set, before they are summed up: losses or hits, unit by unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """Losses of independent units of text."""

    data: str
    measure: str
    over: str
    """The kind of the units: passages, articles."""
    nats: Float[np.ndarray, " units"]
    """The losses in nats, summed over each unit."""
    counts: dict[str, Float[np.ndarray, " units"]]
    """The size of each unit in what the loss is stated per: `word`, `token`, `byte`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedLosses:
    """Mean losses on random windows, one of each seed."""

    data: str
    measure: str
    nats_per_token: Float[np.ndarray, " seeds"]
    tokens_per_byte: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """Questions, answered rightly or not."""

    data: str
    measure: str
    over: str
    hits: Bool[np.ndarray, " questions"]


Outcome = Losses | SeedLosses | Hits
