"""Stacked bars hold the counts of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aotlens.plots.results import verdicts


@dataclass
class Counted:
    """What has kinds and verdicts."""

    frame: pd.DataFrame

    def by_kind(self) -> pd.DataFrame:
        return self.frame


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_verdict_is_a_trace_with_its_column(theme: Any) -> None:
    counts = np.array([[3, 0, 5], [1, 2, 0]])
    words = ["confirmed", "not confirmed", "too rare"]
    result: Any = Counted(pd.DataFrame(counts, columns=words, index=["copy", "other"]))
    figure = verdicts(result, theme=theme)
    assert [trace.name for trace in figure.data] == words
    for index, trace in enumerate(figure.data):
        np.testing.assert_array_equal(trace.x, counts[:, index])
        assert list(trace.y) == ["copy", "other"]
    assert len({trace.marker.color for trace in figure.data}) == 3
    assert figure.data[1].text[0] == ""
