"""Heads as points: every head with both numbers is one, in its label's trace, and the chosen one has a ring."""

from __future__ import annotations

import numpy as np

from aotlens.plots import head_scatter


def test_a_point_a_head_by_label() -> None:
    x, y = np.array([0.1, 0.2, np.nan, 0.4]), np.array([1.0, 2.0, 3.0, 4.0])
    names, labels = ["0.0", "0.1", "1.0", "1.1"], ["induction", "mixed", "induction", "<b>"]
    figure = head_scatter(x, y, names, labels, titles=("previous", "induction"), chosen="1.1", theme="dark")
    traces = figure.data[:3]
    points = {name: at for t in traces for name, *at in zip(t.customdata, t.x, t.y, strict=True)}
    assert points == {"0.0": [0.1, 1.0], "0.1": [0.2, 2.0], "1.1": [0.4, 4.0]}
    assert traces[0].name == "induction" and traces[2].name == "mixed" and "<b>" not in traces[1].name
    ring = figure.data[3]
    assert (ring.x[0], ring.y[0]) == (0.4, 4.0) and figure.layout.xaxis.title.text == "previous"
    assert len(head_scatter(x, y, names, labels, titles=("a", "b"), chosen="1.0").data) == 3, "no point, no ring"
