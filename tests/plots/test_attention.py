"""Maps of attention, alone, side by side and in one picture: every value is in its place, and arrays stay arrays."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from aotlens.plots import all_heads_maps, attention_map, data_uri, sprite
from aotlens.plots.attention import TRANSPARENT, pattern_gallery, pool, span_of
from aotlens.plots.colours import lookup
from tests.messages import refused


def test_a_map_goes_out_as_float32_and_not_as_a_list(rng: np.random.Generator):
    values = rng.random((128, 128), dtype=np.float32)
    figure = attention_map(values, ["a"] * 128)
    sent = json.loads(figure.to_json())["data"][0]["z"]
    assert sent["dtype"] == "f4"
    assert len(sent["bdata"]) < 128 * 128 * 4 * 1.4
    np.testing.assert_array_equal(figure.data[0].z, values)


def test_a_map_hides_what_is_not_visible_and_leaves_its_input_alone():
    values = np.arange(9, dtype=np.float32).reshape(3, 3)
    figure = attention_map(values, ["a", "b", "c"], visible=np.tril(np.ones((3, 3), dtype=bool)))
    shown = np.asarray(figure.data[0].z)
    assert np.isnan(shown[0, 1:]).all() and not np.isnan(shown[2]).any()
    assert values[0, 1] == 1
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0, 8)


def test_values_with_a_sign_have_zero_in_the_middle():
    figure = attention_map(np.array([[-1.0, 2.0], [0.5, -4.0]], dtype=np.float32), ["a", "b"], theme="dark")
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-4, 4)


def test_a_map_of_nothing_is_a_figure():
    hidden = np.zeros((2, 2), dtype=bool)
    assert attention_map(np.ones((2, 2), dtype=np.float32), ["a", "b"], visible=hidden).data[0].zmax == 1


def test_a_map_of_the_wrong_size_is_refused():
    with refused("3 × 3", "3 tokens", "(2, 2)"):
        attention_map(np.ones((2, 2), dtype=np.float32), ["a", "b", "c"])


def test_each_pattern_has_its_map_title_and_tokens() -> None:
    patterns = [np.eye(2), np.full((3, 3), 1 / 3)]
    figure = pattern_gallery(patterns, ["<next>", "even"], [["a", " b"], ["x", "y", "z"]], columns=2)
    first, second = figure.data
    assert np.array_equal(first.z, np.eye(2, dtype=np.float32)) and second.z.shape == (3, 3)
    assert [a.text for a in figure.layout.annotations] == ["&lt;next&gt;", "even"]
    assert list(first.x) == ["a  0", "·b  1"] and len(second.y) == 3
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 1)
    with pytest.raises(ValueError, match="as many titles"):
        pattern_gallery(patterns, ["one"], [["a", "b"]])
    with pytest.raises(ValueError, match="2 × 2"):
        pattern_gallery(patterns[1:], ["one"], [["a", "b"]])


def test_maps_of_one_span_have_one_scale():
    rng = np.random.default_rng(2)
    small, large = rng.uniform(0, 0.2, (4, 4)), rng.uniform(-1, 1, (6, 6))
    small[0, 1] = np.nan
    span = span_of(small, large)
    assert span == (large.min(), large.max())
    figures = [attention_map(one, list("abcdef")[: len(one)], span=span) for one in (small, large)]
    drawn = [(figure.data[0].zmin, figure.data[0].zmax, figure.data[0].colorscale) for figure in figures]
    assert drawn[0] == drawn[1] and drawn[0][1] == np.float32(np.abs(large).max())
    assert span_of(np.full((2, 2), np.nan)) == (0, 0)


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


def pixels(png: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(png))
    assert image.mode == "P"
    return np.array(image.convert("RGBA"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_rows_are_layers_and_columns_are_heads(theme: str):
    values = np.zeros((2, 3, 4, 4), dtype=np.float32)
    values[1, 2, 3, 0] = 5.0  # layer 1, head 2, query 3, key 0
    picture = pixels(sprite(values, theme=theme))
    assert picture.shape == (8, 12, 4)
    colours = lookup("sequential", theme, TRANSPARENT)
    np.testing.assert_array_equal(picture[1 * 4 + 3, 2 * 4 + 0, :3], colours[-1])
    picture[7, 8, :3] = colours[0]
    assert (picture[..., :3] == colours[0]).all() and (picture[..., 3] == 255).all()


def test_each_head_has_its_own_scale(rng: np.random.Generator):
    values = rng.random((1, 2, 5, 5), dtype=np.float32)
    values[0, 1] *= 1000
    picture = pixels(sprite(values))
    colours = lookup("sequential", "light", TRANSPARENT)
    for head in range(2):
        for query in range(5):
            for key in range(5):
                step = round(254 * float(values[0, head, query, key]) / float(values[0, head].max()))
                np.testing.assert_array_equal(picture[query, 5 * head + key, :3], colours[step])


def test_what_is_not_visible_is_transparent():
    visible = np.tril(np.ones((1, 6, 6), dtype=bool))
    values = np.full((2, 2, 6, 6), -np.inf, dtype=np.float32)
    values[:, :, visible[0]] = 1.0
    picture = pixels(sprite(values, visible))
    np.testing.assert_array_equal(picture[..., 3] == 255, np.tile(visible[0], (2, 2)))


def test_one_mask_per_head():
    visible = np.stack([np.eye(3, dtype=bool), np.ones((3, 3), dtype=bool)])
    picture = pixels(sprite(np.ones((1, 2, 3, 3), dtype=np.float32), visible))
    np.testing.assert_array_equal(picture[:, :3, 3] == 255, visible[0])
    assert (picture[:, 3:, 3] == 255).all()


def test_signs_of_a_picture_have_zero_in_the_middle():
    values = np.array([-2.0, 0.0, 2.0, 1.0], dtype=np.float32).reshape(1, 1, 2, 2)
    picture = pixels(sprite(values, scale="diverging")).reshape(4, 4)[:, :3]
    colours = lookup("diverging", "light", TRANSPARENT)
    np.testing.assert_array_equal(picture[:3], colours[[0, 127, 254]])


@pytest.mark.parametrize(("size", "cell"), [(8, 4), (9, 4), (13, 5), (7, 7), (3, 10)])
def test_pooling_keeps_the_entry_largest_in_magnitude(size: int, cell: int, rng: np.random.Generator):
    values = rng.integers(-100, 100, (2, 2, size, size)).astype(np.int16)
    pooled = pool(values, cell)
    factor = -(-size // cell)
    side = -(-size // factor)
    assert pooled.shape == (2, 2, side, side) and side <= cell
    for row in range(side):
        for column in range(side):
            block = values[:, :, row * factor : (row + 1) * factor, column * factor : (column + 1) * factor]
            np.testing.assert_array_equal(np.abs(pooled[:, :, row, column]), np.abs(block).max(axis=(-2, -1)))


def test_a_thin_diagonal_survives():
    values = np.zeros((1, 1, 200, 200), dtype=np.float32)
    values[0, 0, np.arange(1, 200), np.arange(199)] = 1.0
    picture = pixels(sprite(values, cell=50))
    darkest = lookup("sequential", "light", TRANSPARENT)[-1]
    assert all((picture[row, row, :3] == darkest).all() for row in range(50))


def test_nothing_at_all_is_a_picture():
    assert pixels(sprite(np.zeros((1, 1, 2, 2), dtype=np.float32))).shape == (2, 2, 4)
    assert data_uri(b"\x89PNG").startswith("data:image/png;base64,iVBORw==")
