"""Freed memory goes back to the system, so that a server that has run for days is as large as one that has just filled.

glibc keeps what each thread has freed for that thread alone, and, by a threshold that grows with use, arrays of up to
32 MB within its heaps, which fragment: under twenty users the process grew on while all that the app keeps stayed
within its bound (docs/security.md).
"""

from __future__ import annotations

import ctypes
import sys

#: glibc's numbers for what is set (malloc.h).
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
#: Heaps for all threads together, and bytes from which an array gets pages of its own: what glibc begins with.
_ARENAS, _LARGE = 2, 128 * 2**10


def give_memory_back() -> bool:
    """Set the C library's allocator, before threads are started; return whether it has such settings (glibc, on
    Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:  # musl
        return False
    return bool(set_option(_M_ARENA_MAX, _ARENAS)) and bool(set_option(_M_MMAP_THRESHOLD, _LARGE))
