"""The one exception of this package."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint can't be read, written or found.

    The message names the file, what was expected, what was found, and what to do.
    """
