"""The `aotlens-app` command, which is there without Dash too and then says what to install."""

from __future__ import annotations

import sys
from importlib.util import find_spec

#: The packages of the extra `app`, by the names that they are imported by.
NEEDED = ("brotli", "dash", "dash_mantine_components", "flask", "waitress")


def missing() -> list[str]:
    """Return those of them that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def main() -> int:
    """Serve the app, or return 2 with one line that says what is missing."""
    if lacking := missing():
        print(f"aotlens-app needs {', '.join(lacking)}: pip install 'aotlens[app]'", file=sys.stderr)
        return 2
    from app.__main__ import main as serve

    return serve()
