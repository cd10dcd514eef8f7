"""Ids of the Checkpoints page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "checkpoints",
    "catalog table open card curve curve-empty parameters tensors tabs",
    "chosen",  # store: the name of the checkpoint that is shown
)
