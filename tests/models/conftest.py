"""Small models whose every parameter counts, tokens for them, and a tokenizer."""

from __future__ import annotations

import pytest
from torch import Tensor

from aotlens.data import Tokenizer
from tests.small_models import MakeModel, maker, small_tokenizer, small_tokens


@pytest.fixture(scope="session")
def make() -> MakeModel:
    """`make(**changes)`: a randomised model of the small configuration with some fields changed."""
    return maker()


@pytest.fixture(scope="session")
def tokens() -> Tensor:
    return small_tokens()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return small_tokenizer()
