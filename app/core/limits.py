"""The limits of one request: operations, estimated before it starts, and time, after which it is stopped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from app.core.errors import RequestError

if TYPE_CHECKING:
    from aotlens.conventions import Progress


def require_at_most(found: float, most: float, of: str, *, choose: str = "a smaller model") -> None:
    """Raise RequestError for more operations or bytes (`of`) than `most`, and say what to choose."""
    if found > most:
        would = "hold" if of == "bytes" else "take"
        raise RequestError(
            f"This would {would} about {found:.0e} {of}, and one request may {would} {most:.0e} ({found / most:.3g} "
            f"times less). Choose {choose}, or let the command line do it (aotlens --help)."
        )


def deadline(seconds: float) -> Progress:
    """Return a callback for a function that counts its steps: it raises RequestError once it has had its time."""
    ends = time.monotonic() + seconds

    def tell(done: int, total: int) -> None:
        if time.monotonic() > ends:
            raise RequestError(
                f"Stopped after {seconds:.0f} seconds, {done:,} of {total:,} steps done, the longest that one request "
                "may take. Choose a smaller model, or let the command line do it (aotlens --help)."
            )

    return tell
