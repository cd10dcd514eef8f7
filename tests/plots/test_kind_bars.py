"""Stacked bars hold the counts they are given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.kinds import stacked_counts


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_part_is_a_trace_with_its_column(theme):
    counts = np.array([[3, 0, 5], [1, 2, 0]])
    figure = stacked_counts(counts, ["<b>", "two"], ["yes", "no", "rare"], title="rows", quiet=("rare",), theme=theme)
    assert [trace.name for trace in figure.data] == ["yes", "no", "rare"]
    for index, trace in enumerate(figure.data):
        np.testing.assert_array_equal(trace.x, counts[:, index])
        assert trace.y[0] == "&lt;b&gt;"
    assert len({trace.marker.color for trace in figure.data}) == 3
    assert figure.data[1].text[0] == ""


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 × 1"):
        stacked_counts(np.zeros((2, 3), dtype=np.int64), ["a", "b"], ["c"], title="rows")
