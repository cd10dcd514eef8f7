"""Another folder in the place of the results that come with aotlens."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotlens.results.stored_files import STORED_KINDS


def store_in(kind: str, folder: str | Path, patch: pytest.MonkeyPatch) -> None:
    """Read and write the stored results of a kind in this folder."""
    patch.setitem(STORED_KINDS, kind, STORED_KINDS[kind]._replace(folder=folder))
