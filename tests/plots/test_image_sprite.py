"""Maps over pictures, pixel by pixel."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from aotlens.plots import image_sprite, picture


def pixels(png: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(png)).convert("RGBA"))


def test_a_row_is_a_head_and_a_column_an_image() -> None:
    images = np.zeros((3, 1, 4, 4), dtype=np.uint8)
    images[1] = 255
    maps = np.zeros((2, 3, 2, 2), dtype=np.float32)
    maps[1, 2, 0, 1] = 5.0  # head 1 on image 2, the patch at the top right
    maps[0, 1, 1, 0] = -0.1
    sheet = pixels(image_sprite(images, maps, cell=8, gap=2))
    assert sheet.shape == (18, 28, 4)
    np.testing.assert_array_equal(sheet[:, 8:10, 3], 0)  # the gaps
    np.testing.assert_array_equal(sheet[8:10, :, 3], 0)
    dark, bright = sheet[0, 0, :3], sheet[0, 10, :3]
    assert (dark == 96).all() and (bright == 236).all()
    patch = sheet[10:14, 24:28, :3].reshape(-1, 3)
    expected = 0.1 * np.array([96, 96, 96]) + 0.9 * np.array([0, 92, 170])
    np.testing.assert_allclose(patch, np.broadcast_to(expected, patch.shape), atol=0.5)
    assert (sheet[14:18, 20:28, :3] == 96).all() and (sheet[10:14, 20:24, :3] == 96).all()
    below = sheet[4, 10, :3].astype(int)  # each map on its own scale: −0.1 is this one's largest
    np.testing.assert_allclose(below, 0.1 * 236 + 0.9 * np.array([214, 84, 0]), atol=0.5)


def test_colours_are_grey_beneath_a_map_and_nothing_is_covered_by_nan() -> None:
    red = np.zeros((1, 3, 2, 2), dtype=np.uint8)
    red[0, 0] = 255
    sheet = pixels(image_sprite(red, np.full((1, 1, 2, 2), np.nan, dtype=np.float32), cell=2))
    assert (sheet[..., :3] == round(96 + 140 * 0.299)).all()
    shown = pixels(picture(red[0], cell=7))
    assert shown.shape == (6, 6, 4) and (shown[..., :3] == (255, 0, 0)).all()


def test_maps_and_images_belong_together() -> None:
    with pytest.raises(ValueError, match="one of each image"):
        image_sprite(np.zeros((2, 1, 4, 4), dtype=np.uint8), np.zeros((1, 3, 2, 2), dtype=np.float32))
