"""The Checkpoints page's address: which one is chosen."""

from __future__ import annotations

from app.urlstate.query import format_query, parse_query

CHECKPOINTS_PATH = "/checkpoints"


def parse_checkpoints(search: str | None) -> str | None:
    """The checkpoint chosen on the Checkpoints page."""
    return parse_query(search).get("checkpoint") or None


def format_checkpoints(checkpoint: str | None) -> str:
    """The address of the Checkpoints page with one chosen."""
    return CHECKPOINTS_PATH + format_query({"checkpoint": checkpoint} if checkpoint else {})
