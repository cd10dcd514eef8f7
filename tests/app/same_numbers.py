"""Whether what some lines give is what a page's service has given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def same(result: Any, expected: Any) -> None:
    """Whatever it is: a table, numbers, or several of them. Lists that are cut for the page agree as far as they go."""
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(result, expected)
    elif isinstance(expected, Mapping):
        assert list(result) == list(expected)
        for name, value in expected.items():
            same(result[name], value)
    elif (
        isinstance(expected, str | None)
        or (isinstance(expected, tuple) and isinstance(expected[0], tuple))
        or (isinstance(expected, list) and expected and isinstance(expected[0], dict))
    ):
        assert result == expected
    else:
        there = np.asarray(expected, dtype=np.complex128)
        here = np.asarray(result, dtype=np.complex128)
        assert there.size and here.ndim == there.ndim
        if here.ndim == 1:
            here = here[: len(there)]
        # What a page takes from the run that gave the patterns, a notebook's run attends to by another kernel.
        single = np.asarray(expected).dtype == np.float32
        np.testing.assert_allclose(here, there, rtol=1e-6, atol=2e-6 if single else 1e-9)
