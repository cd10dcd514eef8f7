"""Curves over seeds and galleries of patterns: what is drawn is what was given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.attention import pattern_gallery
from aotlens.plots.primitives import seed_curves


def test_the_line_is_the_mean_and_the_band_holds_every_seed() -> None:
    x = np.array([1, 2, 3])
    values = np.array([[1.0, 4.0, np.nan], [3.0, 2.0, 5.0]])
    curves = {"F": values, "one": values[1:]}
    figure = seed_curves(
        x, curves, x_title="epochs", y_title="loss", references={"level": 2.5}, quiet=("one",)
    )  # fmt: skip
    band, mean, single = figure.data
    assert list(mean.x) == [1, 2] and list(mean.y) == [2.0, 3.0], "a point that one seed lacks is left out"
    assert list(band.y) == [3.0, 4.0, 2.0, 1.0] and list(band.x) == [1, 2, 2, 1]
    assert list(single.y) == [3.0, 2.0, 5.0] and single.line.dash == "dash" and mean.line.dash == "solid"
    assert figure.layout.shapes[0].y0 == 2.5 and "level" in figure.layout.annotations[0].text
    assert figure.layout.xaxis.title.text == "epochs" and figure.layout.yaxis.type == "linear"


def test_curves_that_do_not_fit_are_refused() -> None:
    x = np.arange(3)
    with pytest.raises(ValueError, match="at least one curve"):
        seed_curves(x, {}, x_title="x", y_title="y")
    with pytest.raises(ValueError, match=r"'F' as \[seed, 3\]"):
        seed_curves(x, {"F": np.zeros((2, 4))}, x_title="x", y_title="y")
    with pytest.raises(ValueError, match="positive"):
        seed_curves(x, {"F": np.zeros((1, 3))}, x_title="x", y_title="y", log_y=True)


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
