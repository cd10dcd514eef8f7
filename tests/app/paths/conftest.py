"""The service of the Paths page of the app that all tests share."""

from __future__ import annotations

import pytest

from app.pages.paths.service import Paths
from app.shell.app import App


@pytest.fixture(scope="session")
def paths(app: App) -> Paths:
    service: Paths = app.services["paths"]
    return service
