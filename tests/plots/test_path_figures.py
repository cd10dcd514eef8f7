"""Figures of paths: bars and flows, with the numbers that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots import FlowNode, flow_graph, order_bars

NODES = [
    FlowNode(label="<a> @0", column=0, kind="source"),
    FlowNode(label="b @1", column=0, kind="source", note="a note"),
    FlowNode(label="0.0", column=1, kind="head"),
    FlowNode(label="0.1", column=1, kind="head"),
    FlowNode(label="logit", column=2, kind="end"),
]


def test_bars_have_the_values_their_signs_and_counts():
    bars = order_bars(np.array([0.5, -2.0]), [1, 1234]).data[0]
    assert list(bars.y) == [0.5, -2.0] and list(bars.text) == ["+0.50", "−2.00"]
    assert bars.marker.color[0] != bars.marker.color[1]
    assert "1 path<" in bars.customdata[0] and "1,234 paths" in bars.customdata[1]
    with pytest.raises(ValueError, match="expected 2 counts"):
        order_bars(np.zeros(2), [1])
    assert len(order_bars(np.zeros(1)).data[0].y) == 1


def test_a_flow_keeps_sizes_and_signs_and_drops_untouched_nodes():
    figure = flow_graph(NODES, [1, 2, 0], [2, 4, 4], np.array([1.5, 2.0, -0.5]))
    sankey = figure.data[0]
    assert list(sankey.node.label) == ["&lt;a&gt; @0", "b @1", "0.0", "logit"], "0.1 has no link"
    assert list(sankey.link.source) == [1, 2, 0] and list(sankey.link.target) == [2, 3, 3]
    np.testing.assert_array_equal(sankey.link.value, np.float32([1.5, 2.0, 0.5]))
    assert sankey.link.color[0] == sankey.link.color[1] != sankey.link.color[2]
    assert sankey.link.customdata[2] == "−0.500 logits"
    assert sankey.node.x[0] < sankey.node.x[2] < sankey.node.x[3]
    assert sankey.node.y[1] < sankey.node.y[0], "the larger one is above"
    assert all(0 < place < 1 for place in (*sankey.node.x, *sankey.node.y))


def test_deep_flows_leave_room_for_the_labels_of_both_ends() -> None:
    for last in (1, 2, 3, 13):
        nodes = [FlowNode(label=str(column), column=column, kind="head") for column in range(last + 1)]
        steps = range(last)
        x = flow_graph(nodes, list(steps), [step + 1 for step in steps], np.ones(last)).data[0].node.x
        gaps = np.diff(x)
        assert (gaps > 0).all() and min(gaps[0], gaps[-1]) > min(0.12, 0.9 / last)
        if last > 3:
            np.testing.assert_allclose(gaps[1:-1], gaps[1])


def test_a_flow_runs_to_the_right_or_not_at_all():
    with pytest.raises(ValueError, match="links to the right"):
        flow_graph(NODES, [2], [3], np.ones(1))
    assert len(flow_graph(NODES, [], [], np.zeros(0)).data[0].link.source) == 0
