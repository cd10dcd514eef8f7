"""What goes wrong: by what was asked for, which a person can put right, or by ours, which the log has under an id."""

from __future__ import annotations

import logging
import secrets


class RequestError(ValueError):
    """What was asked for can't be done; the message says what was expected, what came, and what to do."""


def logged(log: logging.Logger, what: str) -> str:
    """Logs the exception that is being handled, and gives the id that the log has and whoever asked is told."""
    id = secrets.token_hex(4)
    log.exception("%s (error %s)", what, id)
    return id


def out_of_memory(error: BaseException) -> bool:
    """Whether something did not fit in memory: Python's own, numpy's and torch's ways to say so."""
    said = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (
        isinstance(error, RuntimeError) and ("not enough memory" in said or "can't allocate memory" in said)
    )
