"""Cases of a test of which `make test` takes some, each of another kind, and `make test-long` all others."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def mostly_long(cases: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """Parameters for `parametrize`: each case by itself, marked `long` unless it is kept."""
    return [pytest.param(case, marks=[] if case in kept else [pytest.mark.long]) for case in cases]
