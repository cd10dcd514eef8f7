"""What the tests of the Non-linearity page share."""

from __future__ import annotations

import pytest

from app.services.nonlinearity import Nonlinearity
from app.settings import Settings


@pytest.fixture(scope="package")
def compiler() -> Nonlinearity:
    return Nonlinearity(Settings())
