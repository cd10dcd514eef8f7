"""The Checkpoints page's address: which one is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from app.core import address


@dataclass(frozen=True, kw_only=True)
class CheckpointsState:
    """Everything that the Checkpoints page shows."""

    checkpoint: str | None = address.checkpoint()
    """None: the first."""


ADDRESS = address.Address("checkpoints", CheckpointsState)
