from __future__ import annotations

import pytest

from tests.small_models import MakeModel, maker


@pytest.fixture(scope="session")
def make() -> MakeModel:
    """`make(**changes)`: a randomised model of the small configuration with some fields changed, in float64."""
    import torch

    return maker(dtype=torch.float64)
