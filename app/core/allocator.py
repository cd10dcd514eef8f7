"""Large arrays that are freed go back to the system, so that a server that has run for days does not grow on.

glibc keeps what each thread has freed for that thread alone, and, by a threshold that grows with use, arrays of up to
32 MB within its heaps, which fragment: under twenty users the process grew on while all that the app keeps stayed
within its bound. Here smaller ones stay in two heaps that all threads share, which level off (docs/security.md).
"""

from __future__ import annotations

import ctypes
import sys

#: glibc's numbers for what is set (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Heaps for all threads together; bytes from which an array gets pages of its own; free bytes that a heap keeps.
#: Fresh pages for every array of 128 kB, which glibc begins with, take as long as all else that an answer takes.
_ARENAS, _LARGE, _SPARE = 2, 4 * 2**20, 64 * 2**20


def give_memory_back() -> bool:
    """Set the C library's allocator, before threads are started; return whether it has such settings (glibc, on
    Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:  # musl
        return False
    settings = ((_M_ARENA_MAX, _ARENAS), (_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, _SPARE))
    return all([set_option(name, value) for name, value in settings])
