"""The Checkpoints page's address: which one is chosen, and what is open beside its card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address

Tab = Literal["training", "parameters"]


@dataclass(frozen=True, kw_only=True)
class CheckpointsState:
    """Everything that the Checkpoints page shows."""

    checkpoint: str | None = address.checkpoint()
    """The checkpoint; None: the first."""
    tab: Tab = address.choice(get_args(Tab), "training")


ADDRESS = address.Address("checkpoints", CheckpointsState)
