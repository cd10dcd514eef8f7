"""The one exception whose message is meant for the person at the browser."""

from __future__ import annotations


class RequestError(ValueError):
    """What was asked for can't be done; the message says what was expected, what came, and what to do."""
