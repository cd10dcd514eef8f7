"""The beginning of a script whose forked children are killed, each at its own system call."""

#: `die_at(count, before)` kills the process just before or just after its system call of that number, counted from 1.
DIE_AT = r"""
import builtins, json, os, signal, sys
from pathlib import Path

os.fsync = lambda descriptor: None  # counted all the same; a killed process loses nothing that it has written

def die_at(count, before):
    left = [count]
    def wrap(function):
        def counted(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0 and before:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return function(*args, **kwargs)
            finally:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        return counted
    for name in ("rename", "replace", "fsync", "mkdir", "rmdir", "unlink", "open"):
        setattr(os, name, wrap(getattr(os, name)))
    builtins.open = wrap(builtins.open)
"""
