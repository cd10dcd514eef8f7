"""The figure of all heads: each map in its place, on its own scale, with what a paper needs around it."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots import all_heads_maps


def test_every_entry_is_in_its_place_on_its_heads_scale(rng: np.random.Generator):
    values = rng.random((2, 3, 10, 10)).astype(np.float32)
    values[1, 2] *= 100
    visible = np.tril(np.ones((1, 10, 10), dtype=bool))
    values[:, :, ~visible[0]] = -np.inf
    figure = all_heads_maps(values, visible, quantity="attention", title="A model", theme="light")
    (trace,) = figure.data
    z, shapes = np.asarray(trace.z), figure.layout.shapes
    assert (trace.zmin, trace.zmax) == (0, 254) and len(shapes) == 6 == len(figure.layout.annotations)
    drawn = 0
    for at, (layer, head) in enumerate(np.ndindex(2, 3)):
        frame, largest = shapes[at], values[layer, head][visible[0]].max()
        top, left = round(frame.y0 + 0.5), round(frame.x0 + 0.5)
        assert frame.x1 - frame.x0 == frame.y1 - frame.y0 == 10
        for query in range(10):
            for key in range(10):
                expected = values[layer, head, query, key] / largest if key <= query else 0
                assert abs(z[top + query, left + key] / 254 - expected) <= 0.5 / 254 + 1e-6
        drawn += int(z[top : top + 10, left : left + 10].astype(int).sum())
        assert figure.layout.annotations[at].text == f"<b>{layer}.{head}</b> {largest:.2g}"
        # Ticks name the row and the column that the map is in.
        assert figure.layout.xaxis.ticktext[head] == str(head) and figure.layout.yaxis.ticktext[layer] == str(layer)
        assert frame.x0 < figure.layout.xaxis.tickvals[head] < frame.x1
        assert frame.y0 < figure.layout.yaxis.tickvals[layer] < frame.y1
    assert drawn == int(z.astype(int).sum())  # nothing between the maps
    assert figure.layout.title.text == "A model" and "attention" in trace.colorbar.title.text
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("head", "layer")


def test_signs_have_zero_in_the_middle():
    values = np.array([[[[-2.0, 1.0], [0.0, 0.5]]]], dtype=np.float32)
    trace = all_heads_maps(values, quantity="score (nats)", title="").data[0]
    assert (trace.zmin, trace.zmax) == (-127, 127) and list(trace.colorbar.ticktext) == ["−1", "−½", "0", "½", "1"]
    z = np.asarray(trace.z)
    assert z.min() == -127 and 64 in z and 32 in z


@pytest.mark.parametrize("shape", [(1, 1), (12, 8)])
def test_it_grows_with_the_model_and_not_with_the_text(shape: tuple[int, int]):
    figure = all_heads_maps(np.ones((*shape, 300, 300), dtype=np.float32), quantity="attention", title="x")
    assert figure.layout.width > 100 * shape[1] + 150 and figure.layout.height >= 100 * shape[0] + 100
    assert np.asarray(figure.data[0].z).shape[0] <= 125 * shape[0]
    assert all(annotation.font.size >= 12 for annotation in figure.layout.annotations)


def test_a_head_that_is_nothing_is_drawn():
    figure = all_heads_maps(np.zeros((1, 2, 3, 3), dtype=np.float32), quantity="attention", title="x")
    assert figure.layout.annotations[0].text == "<b>0.0</b> 0"
