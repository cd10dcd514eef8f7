"""Figures of circuits: what is in them, and that arrays stay arrays."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots import Edge, composition_graph, eigenvalue_plane


def test_eigenvalues_are_points_by_the_sign_of_their_real_part():
    values = np.array([3 + 0j, -1 + 2j, -1 - 2j, 0j])
    figure = eigenvalue_plane(values, unit="logits")
    positive, negative = figure.data
    assert sorted(positive.x) == [0, 3] and sorted(negative.y) == [-2, 2]
    assert positive.name.endswith("2") and negative.name.endswith("2")
    assert figure.layout.yaxis.scaleanchor == "x"
    assert figure.layout.xaxis.range[1] > 3
    assert eigenvalue_plane(np.zeros(0, dtype=complex)).layout.xaxis.range == (-1, 1)


def test_a_head_stands_between_those_it_reads_and_those_that_read_it():
    edges = [
        Edge(earlier=(0, 1), later=(1, 0), mode="k", value=0.3, z=20.0, rank=1),
        Edge(earlier=(1, 0), later=(2, 2), mode="v", value=0.2, z=5.0, rank=2),
    ]
    figure = composition_graph(edges, (1, 0), n_layers=3, n_heads=3)
    places = {
        tuple(head): (x, y)
        for trace in figure.data
        if trace.text is not None and trace.customdata is not None
        for head, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }
    assert len(places) == 7, "every head of other layers, and of its own only the chosen one"
    assert places[(0, 1)][0] < places[(1, 0)][0] < places[(2, 2)][0]
    assert places[(1, 0)][1] == 0
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert sorted(line.line.width for line in lines) == pytest.approx([5.0, 7.0])
    # A line begins and ends at its heads.
    strongest = max(lines, key=lambda line: line.line.width)
    assert (strongest.x[0], strongest.y[0]) == places[(0, 1)] and (strongest.x[-1], strongest.y[-1]) == places[(1, 0)]
    texts = [text for trace in figure.data for text in trace.text or ()]
    assert any("0.300" in text and "20.0" in text and "place 1 among" in text for text in texts)


def test_a_head_without_neighbours_is_a_figure():
    assert composition_graph([], (0, 0), n_layers=1, n_heads=2).data[-1].customdata == ([0, 0],)
