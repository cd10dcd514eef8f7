"""Figures of images: every value in its place over its picture, curves and points as the results have them."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

import aotlens
from aotlens.heads import SemanticConsistency
from aotlens.paths import PatchCurves
from aotlens.plots import contribution_map, overlay_grid
from tests.messages import refused


def test_every_value_lies_over_its_patch_of_its_image(rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (2, 12, 12), dtype=np.uint8)
    maps = rng.random((2, 3, 4, 4))
    maps[1, 2] *= 50
    figure = overlay_grid(images, maps, row_titles=["a <b>", "b"], column_titles=["0.0", "0.1", "1.0"])
    (trace,) = figure.data
    z, values = np.asarray(trace.z), np.asarray(trace.customdata)
    assert z.shape == values.shape == (2 * 4 + 1, 3 * 4 + 2) and np.isnan(z[4]).all() and np.isnan(z[:, 4]).all()
    picture = figure.layout.images[0]
    png = Image.open(io.BytesIO(base64.b64decode(picture.source.partition(",")[2])))
    pixels = np.asarray(png)
    assert (picture.x, picture.y, picture.sizex, picture.sizey) == (-0.5, -0.5, 14, 9) and picture.layer == "below"
    assert abs(pixels.shape[0] / 9 - pixels.shape[1] / 14) <= 0.5, "pictures and maps are scaled alike"
    step = pixels.shape[0] / 9
    for image, column in np.ndindex(2, 3):
        tile = np.s_[5 * image : 5 * image + 4, 5 * column : 5 * column + 4]
        np.testing.assert_allclose(values[tile], maps[image, column], rtol=1e-6)
        np.testing.assert_allclose(z[tile], maps[image, column] / maps[image, column].max(), rtol=1e-6)
        for row, patch in np.ndindex(4, 4):
            middle = pixels[round((5 * image + row + 0.5) * step), round((5 * column + patch + 0.5) * step)]
            assert middle[3] == 255
            block = images[image, 3 * row : 3 * row + 3, 3 * patch : 3 * patch + 3].astype(float) * 175 / 255 + 30
            assert np.abs(block - middle[0]).min() < 1.5, "the picture under a cell is the cell's own patch"
    assert pixels[round(4.5 * step), 0, 3] == 0
    assert "<b>" not in figure.layout.yaxis.ticktext[0] and list(figure.layout.xaxis.ticktext) == ["0.0", "0.1", "1.0"]
    assert trace.zmin == 0 and trace.colorscale[0][1].endswith(",0.000)")


def test_contributions_are_clear_at_zero_and_have_two_colours() -> None:
    patches = np.array([[2.0, -1.0], [0.0, 0.5]])
    figure = contribution_map(np.zeros((4, 4, 3), dtype=np.uint8), patches)
    (trace,) = figure.data
    assert (trace.zmin, trace.zmax) == (-1, 1)
    np.testing.assert_allclose(np.asarray(trace.z)[:, -2:], patches / 2)
    assert (np.asarray(trace.z)[:, :2] == 0).all()
    colours = dict((round(part, 6), colour) for part, colour in trace.colorscale)
    assert (
        colours[0.5].endswith(",0.000)") and colours[0.0].startswith("rgba(240") and colours[1.0].startswith("rgba(86")
    )
    assert list(trace.colorbar.ticktext) == ["-2", "-1", "0", "1", "2"]


def test_an_empty_map_is_clear_and_shapes_are_checked() -> None:
    images = np.zeros((1, 4, 4), dtype=np.uint8)
    figure = overlay_grid(images, np.zeros((1, 1, 2, 2)), row_titles=["a"], column_titles=["x"])
    assert (np.asarray(figure.data[0].z) == 0).all()
    with refused("1 rows"):
        overlay_grid(images, np.zeros((1, 1, 2, 2)), row_titles=["a", "b"], column_titles=["x"])


def test_curves_are_means_over_images_in_a_band_of_a_standard_error(rng: np.random.Generator) -> None:
    shares = np.linspace(0, 1, 5)
    deletion = rng.random((2, 6, 5))
    result = PatchCurves(
        methods=("paths", "random"), classes=np.arange(6), baseline="mean", shares=shares, deletion=deletion,
        insertion=deletion + 1,
    )  # fmt: skip
    figure = aotlens.plot(result)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [line.name for line in lines] == ["paths", "random"] * 2
    for line, values in zip(lines, [*deletion, *(deletion + 1)], strict=True):
        np.testing.assert_allclose(line.y, values.mean(0))
        np.testing.assert_allclose(line.customdata, values.std(0, ddof=1) / np.sqrt(6))
    assert {line.xaxis for line in lines[:2]} == {"x"} and {line.xaxis for line in lines[2:]} == {"x2"}


def test_heads_beyond_chance_are_filled(rng: np.random.Generator) -> None:
    difference = rng.random((2, 3))
    intervals = np.stack([difference - 0.1, difference + 0.2], -1)
    beyond = np.array([[True, False, True], [False, False, True]])
    half = np.full((2, 3), 0.5)
    result = SemanticConsistency(
        query="all", mass=0.5, n_images=4, n_classes=2, within=difference + half, between=half, with_mean=half,
        region=half, intervals=intervals, p_values=half, adjusted_p=np.where(beyond, 0.05, 0.06), n_permutations=9,
    )  # fmt: skip
    figure = aotlens.plot(result)
    mean, filled, empty = figure.data
    assert list(filled.text) == ["0.0", "0.2", "1.2"] and list(empty.text) == ["0.1", "1.0", "1.1"]
    np.testing.assert_allclose(filled.y, difference[beyond])
    np.testing.assert_allclose(filled.error_y.arrayminus, 0.1)
    np.testing.assert_allclose(filled.error_y.array, 0.2)
    assert filled.marker.symbol == "circle" and empty.marker.symbol == "circle-open" and len(mean.y) == 6
    assert (np.round(filled.x).astype(int) == [0, 0, 1]).all()
