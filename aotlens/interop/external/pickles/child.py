"""The process that reads a pickle from its standard input, within limits, and answers with JSON.

    python -I -S -c "…; from pickles import child; child.main()" FOLDER torch|pickle < FILE

The answer is what `wire.contents` makes, or {"value": …}; {"refused": why}, {"unfit": what} or {"damaged": what} for a
file that is not read. No answer at all means that a limit ended the process.
"""

from __future__ import annotations

import gc
import json
import sys
from contextlib import suppress
from typing import Any

#: Memory of the process, and seconds of a processor.
MEMORY_BYTES, SECONDS = 210 * 2**20, 10
#: Bytes of the answer.
MOST_BYTES = 64 * 2**20


def limit() -> None:
    """Take the limits on. Windows has none of this kind."""
    with suppress(ImportError):
        import resource

        for kind, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, SECONDS)):
            hard = resource.getrlimit(kind)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            with suppress(ValueError, OSError):  # a system that has no such limit
                resource.setrlimit(kind, (least, hard))


def answer(kind: str) -> dict[str, Any]:
    """Return the answer for what stands on the standard input."""
    from .interpreter import Refused
    from .layout import Unfit, read_plain, read_saved
    from .wire import contents, plain

    try:
        with open(0, "rb", closefd=False) as file:
            return contents(*read_saved(file)) if kind == "torch" else {"value": plain(read_plain(file))}
    except Refused as reason:
        return {"refused": str(reason)[:1000]}
    except Unfit as error:
        return {"unfit": str(error)[:1000]}
    except MemoryError:
        return {"refused": f"it takes more than {MEMORY_BYTES / 2**20:.0f} MB of memory"}
    except Exception as error:  # a damaged pickle raises anything
        return {"damaged": f"{type(error).__name__} {error}"[:1000]}


def main() -> None:
    """Read and answer."""
    limit()
    gc.disable()  # of many objects it takes half of the time, and what the process holds ends with it
    reply = answer(sys.argv[2])
    try:
        text = json.dumps(reply)
    except MemoryError:
        reply, text = {}, ""
    if not text or len(text) > MOST_BYTES:
        text = json.dumps({"refused": f"what it holds beside weights takes more than {MOST_BYTES / 2**20:.0f} MB"})
    sys.stdout.write(text)
