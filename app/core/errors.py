"""Errors: by what was asked for, which a person can put right, or by ours, which the log has under an id."""

from __future__ import annotations

import logging
import secrets

from aotlens.files import WriteError


class RequestError(ValueError):
    """A request that can't be met; the message says what was expected, what came, and what to do."""


def logged(log: logging.Logger, what: str) -> str:
    """Log the exception that is being handled, and return the id that the log has and whoever asked is told."""
    id = secrets.token_hex(4)
    log.exception("%s (error %s)", what, id)
    return id


def not_kept(error: WriteError) -> str:
    """Write the message, to somebody at a browser, of a full disk, or of a folder that the app may not write to."""
    reason = (error.strerror or "").partition(" while writing")[0].lower() or "it could not be written"
    return (
        f"This could not be kept: {reason}. Nothing was replaced. Whoever runs the app can make room, or give it a "
        "folder that it may write to (AOTLENS_HOME)."
    )


def out_of_memory(error: BaseException) -> bool:
    """Return whether something did not fit in memory: Python's own, numpy's and torch's ways to say so."""
    message = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (
        isinstance(error, RuntimeError) and ("not enough memory" in message or "can't allocate memory" in message)
    )
