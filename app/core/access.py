"""The token that whoever opens a shared app must have: its form, its comparison, and how often it may be guessed."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

#: The characters that an address holds as they are, so that the printed one can be copied.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,200}", re.ASCII)
#: A token that can hold so many bits is not guessed, however often somebody tries.
_STRONG_BITS = 128
#: Wrong tokens in so many seconds, from all clients together, after which nobody's is looked at for a while.
_GUESSES, _SECONDS = 10, 60.0


def new_token() -> str:
    """Return a token of 256 random bits."""
    return secrets.token_urlsafe(32)


def checked_token(token: str) -> str:
    """Raise ValueError for what is too short or cannot stand in an address."""
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            f"expected a token of 8 to 200 letters, digits and - . _ ~, got one of {len(token)} characters. Without "
            "one of your own, a long one is made."
        )
    return token


def bits(token: str) -> float:
    """Return the bits that a token can hold at most: its length times those of a character of the kinds that it has."""
    kinds = ((r"[a-z]", 26), (r"[A-Z]", 26), (r"[0-9]", 10), (r"[._~-]", 4))
    return len(token) * math.log2(sum(size for kind, size in kinds if re.search(kind, token, re.ASCII)) or 1)


#: Addresses whose guesses are counted; those that guessed longest ago go first.
_ADDRESSES = 10_000


class Access:
    """Tells the token from others in constant time; of a short one, only so many guesses a minute are looked at.

    They are counted by the address that they come from, so that a guesser keeps nobody else out; nor does the limit
    keep anybody out who has signed in already.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._digest = _digest(checked_token(token))
        self._limited = bits(token) < _STRONG_BITS
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def right(self, given: str, address: str | None = None) -> bool:
        """Return whether it is the token. Raises TooManyGuesses, without having looked, where too many from this
        address were wrong."""
        with self._lock:
            now, key = self._clock(), address or ""
            wrong = self._wrong.get(key, deque())
            while wrong and wrong[0] <= now - _SECONDS:
                wrong.popleft()
            if len(wrong) >= _GUESSES:
                raise TooManyGuesses(math.ceil(wrong[0] + _SECONDS - now))
            right = hmac.compare_digest(_digest(given), self._digest)
            if self._limited and not right:
                wrong.append(now)
                self._wrong[key] = wrong
                self._wrong.move_to_end(key)
                while len(self._wrong) > _ADDRESSES:
                    self._wrong.popitem(last=False)
            return right


class TooManyGuesses(Exception):
    """The error of wrong tokens that came too often."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"Too many wrong tokens came in a minute. Try again in {seconds} s.")
        self.seconds = seconds


def _digest(token: str) -> bytes:
    # Digests have one length, so that the comparison tells nothing of the token's.
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
