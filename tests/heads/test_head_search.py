"""Heads by their scores, against the same comparisons written out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aotlens.heads.head_search import rows_where

FRAME = pd.DataFrame(
    {
        "layer": [0, 0, 1, 1],
        "head": [0, 1, 0, 1],
        "label": ["previous_token", "mixed", "first_token", "mixed"],
        "induction_random": [0.0, 0.5, 0.9, np.nan],
        "previous_token": [0.9, 0.1, 0.0, 0.2],
        "pattern_consistency": [1.0, 0.5, -0.25, 0.25],
        "reads": ["", "", "0.1 k z=9", "0.0 q z=2"],
    }
)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("induction_random > 0.4", [1, 2]),
        ("induction random>=.5 AND layer=1", [2]),
        ("induction_random <= 0", [0]),
        ("induction_random != 0.9", [0, 1]),  # a head without the number is not found
        ("pattern_consistency < -1e-1", [2]),
        ("layer = 0 and head = 0 or layer == 1 and pattern_consistency > 0", [0, 3]),
        ("mixed", [1, 3]),
        ("Previous Token", [0]),
        ("token and layer = 1", [2]),
        ("label != mixed", [0, 2]),
        ("reads = 0.1 K z=9", None),
        ("head = 1.0", [2]),
        ("head != 1.0 and layer = 1", [3]),
        ("0.1", [1]),
        ("head > 0.5", [1, 3]),
    ],
)  # fmt: skip
def test_what_is_found(search: str, found: list[int] | None) -> None:
    if found is None:
        with pytest.raises(ValueError, match="expected a column"):
            rows_where(FRAME, search)
    else:
        assert rows_where(FRAME, search).nonzero()[0].tolist() == found


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("induktion > 0.4", r"no column 'induktion'\. Did you mean induction random\?"),
        ("zzz = 1", r"no column 'zzz'\. There are layer, head, label"),
        ("pattern_consistency > high", "pattern_consistency is a number, so expected one after >, got 'high'"),
        ("label > 3", "label is a text, so expected = or !=, got >"),
        ("pattern_consistency", "is a column: compare it with something, as pattern_consistency > 0.4"),
        ("bracket", "no head has such a label; there are first token, mixed, previous token"),
        ("pattern_consistency > 0.1 > 0", "expected a column, one of"),
        ("x" * 301, "at most 300 characters, got 301"),
        ("__import__('os') = 1", "there is no column"),
    ],
)
def test_what_cannot_be_read_is_said(search: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_where(FRAME, search)
