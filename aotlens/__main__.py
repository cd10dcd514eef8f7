"""``python -m aotlens`` is the ``aotlens`` command."""

from __future__ import annotations

from aotlens.cli import main

if __name__ == "__main__":
    main()
