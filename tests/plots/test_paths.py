"""Figures of paths: bars and flows, with the numbers that they were given."""

from __future__ import annotations

import numpy as np
import pytest

import aotlens
from aotlens.paths import Sankey
from aotlens.paths.of_logit import Node
from aotlens.plots import order_bars


def sankey(nodes: list[Node], links: list[tuple[int, int, float]]) -> Sankey:
    """These links between these nodes; as much passes a node as comes out of it, and the logit as comes in."""
    sources, targets, values = zip(*links, strict=True)
    through = np.array([sum(value for start, end, value in links if i in (start, end)) for i in range(len(nodes))])
    return Sankey(
        nodes=tuple(nodes), sources=np.array(sources), targets=np.array(targets), values=np.array(values),
        through=through, n_links=len(links), shown=1.0, str_tokens=("<a>", " b"), end="logit",
    )  # fmt: skip


def test_bars_have_the_values_their_signs_and_counts():
    bars = order_bars(np.array([0.5, -2.0]), [1, 1234]).data[0]
    assert list(bars.y) == [0.5, -2.0] and list(bars.text) == ["+0.50", "−2.00"]
    assert bars.marker.color[0] != bars.marker.color[1]
    assert "1 path<" in bars.customdata[0] and "1,234 paths" in bars.customdata[1]
    with pytest.raises(ValueError, match="expected 2 counts"):
        order_bars(np.zeros(2), [1])
    assert len(order_bars(np.zeros(1)).data[0].y) == 1


def test_a_flow_keeps_sizes_and_signs_and_drops_untouched_nodes() -> None:
    heads = [Node("head", head=(0, 0)), Node("head", head=(0, 1))]
    nodes = [Node("source", position=0), Node("source", position=1), *heads, Node("logit")]
    (flow,) = aotlens.plot(sankey(nodes, [(1, 2, 1.5), (2, 4, 2.0), (0, 4, -0.5)])).data
    assert list(flow.node.label) == ["&lt;a&gt; @0", "·b @1", "0.0", "logit"], "0.1 has no link"
    assert list(flow.link.source) == [1, 2, 0] and list(flow.link.target) == [2, 3, 3]
    np.testing.assert_array_equal(flow.link.value, np.float32([1.5, 2.0, 0.5]))
    assert flow.link.color[0] == flow.link.color[1] != flow.link.color[2]
    assert flow.link.customdata[2] == "−0.500 logits"
    assert flow.node.x[0] < flow.node.x[2] < flow.node.x[3]
    assert flow.node.y[1] < flow.node.y[0], "the larger one is above"
    assert all(0 < place < 1 for place in (*flow.node.x, *flow.node.y))
    said = ["from here: −0.500", "from here: +1.500", "through this head: +3.500", "+1.500 logits"]
    assert all(words in note for words, note in zip(said, flow.node.customdata, strict=True))


def test_deep_flows_leave_room_for_the_labels_of_both_ends() -> None:
    for n_heads in (1, 2, 12):
        heads = [Node("head", head=(layer, 0)) for layer in range(n_heads)]
        nodes = [Node("source", position=0), *heads, Node("logit")]
        gaps = np.diff(aotlens.plot(sankey(nodes, [(i, i + 1, 1.0) for i in range(n_heads + 1)])).data[0].node.x)
        assert (gaps > 0).all() and min(gaps[0], gaps[-1]) > min(0.12, 0.9 / (n_heads + 1))
        if n_heads > 2:
            np.testing.assert_allclose(gaps[1:-1], gaps[1])
