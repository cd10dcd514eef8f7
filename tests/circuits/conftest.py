"""Small models in float64 whose every parameter counts."""

from __future__ import annotations

import pytest
import torch

from tests.small_models import MakeModel, maker


@pytest.fixture(scope="session")
def make() -> MakeModel:
    """`make(**changes)`: a randomised model of the small configuration with some fields changed."""
    return maker(dtype=torch.float64)
