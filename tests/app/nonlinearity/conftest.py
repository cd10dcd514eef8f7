"""What the tests of the Non-linearity page share."""

from __future__ import annotations

import pytest

from app.core import Core
from app.core.settings import Settings
from app.pages.nonlinearity.service import Nonlinearity


@pytest.fixture(scope="package")
def compiler() -> Nonlinearity:
    return Nonlinearity(Core.start(Settings()))
