"""The picture of all heads, pixel by pixel against loops."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from aotlens.plots import data_uri, sprite
from aotlens.plots.attention import TRANSPARENT, pool
from aotlens.plots.colours import lookup


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


def test_signs_have_zero_in_the_middle():
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
