"""The built site, as `make docs` leaves it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import ON_CI
from tests.test_structure import ROOT

SITE = ROOT / "docs" / "_build" / "html"
#: Written last by a build without warnings.
FINISHED = SITE / ".finished"


def sources() -> list[Path]:
    """What the site is made of: pages, their examples and pictures, and the docstrings of the library."""
    pages = [
        path
        for path in (ROOT / "docs").rglob("*")
        if path.is_file() and not {"_build", "auto_gallery", "__pycache__"} & set(path.parts)
    ]
    around = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "analyses" / "README.md"]
    return [*pages, *around, *(ROOT / "aotlens").rglob("*.py")]


def why_not() -> str | None:
    """Why these tests cannot say anything of the site, if they cannot."""
    if importlib.util.find_spec("sphinx") is None:
        return "Sphinx is not installed; make docs installs it and builds the site"
    if not FINISHED.is_file():
        return "the site is not built; make docs"
    newest = max(sources(), key=lambda path: path.stat().st_mtime)
    if newest.stat().st_mtime > FINISHED.stat().st_mtime:
        return f"the site is older than {newest.relative_to(ROOT)}; make docs"
    return None


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site, which is as new as its sources."""
    if reason := why_not():
        if ON_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return SITE


@pytest.fixture(scope="session")
def pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > 50
    return [path for path in found if "_static" not in path.relative_to(site).parts]
