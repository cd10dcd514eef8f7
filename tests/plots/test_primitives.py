"""The pieces of figures: labels, matrices, texts in cells, lines over seeds, colours."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.plots import describe, glyphs, matrix_map
from aotlens.plots.colours import lookup, stops
from aotlens.plots.primitives import axis_labels, cell_texts, seed_curves
from tests.messages import refused


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


LEVELS = np.linspace(-1.0, 2.0, 61)  # beyond both ends, too


def relative_luminance(colour: str) -> float:
    """WCAG's formula, channel by channel."""
    total = 0.0
    for weight, place in ((0.2126, 1), (0.7152, 3), (0.0722, 5)):
        channel = int(colour[place : place + 2], 16) / 255
        total += weight * (channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)
    return total


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("scale", ["sequential", "diverging"])
def test_a_text_has_the_contrast_that_wcag_asks_for(scale, theme):
    trace = cell_texts([LEVELS], [["x"] * 61], theme, x=range(61), y=["row"], low=0.0, high=1.0, scale=scale)
    table = lookup(scale, theme, 256)
    for level, ink in zip(LEVELS, trace.textfont.color, strict=True):
        cell = relative_luminance("#{:02x}{:02x}{:02x}".format(*table[round(min(max(level, 0), 1) * 255)]))
        low, high = sorted([cell, relative_luminance(ink)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, (level, ink)


def test_a_text_stands_in_its_own_cell():
    trace = cell_texts(
        [[0, 1], [np.nan, 0.5]], [["a", "b"], ["", "d"]], "light", x=["0", "1"], y=["p", "q"], low=0.0, high=1.0
    )
    assert list(zip(trace.x, trace.y, trace.text, strict=True))[1:4:2] == [("1", "p", "b"), ("1", "q", "d")]
    assert trace.hoverinfo == "skip"


def test_tokens_are_not_markup():
    assert axis_labels(["<b>", "a&b", " the"]) == ["&lt;b&gt;  0", "a&amp;b  1", "·the  2"]


@given(st.lists(st.text(max_size=4), max_size=30))
def test_axis_labels_are_distinct(tokens: list[str]):
    assert len(set(axis_labels(tokens))) == len(tokens)


@pytest.mark.parametrize(
    ("token", "shown", "described"),
    [
        (" the", "·the", '" the"'),
        ("\n\t", "⏎→", '"\\n\\t"'),
        ("\0", "⟨0000⟩", '"\\u0000"'),
        ("\r\x7f", "⟨000D⟩⟨007F⟩", '"\\r\\u007f"'),
        ("\u200b", "⟨200B⟩", '"\\u200b"'),
        ("\u00a0", "⟨00A0⟩", '"\\u00a0"'),
        ("\u0301", "◌\u0301", '"\u0301"'),
        ("\U000e0001", "⟨E0001⟩", '"\\U000e0001"'),
        ("🙂", "🙂", '"🙂"'),
        ('"\\', '"\\', '"\\"\\\\"'),
        ("", "∅", '""'),
    ],
)
def test_tokens_are_told_apart(token: str, shown: str, described: str):
    assert glyphs(token) == shown
    assert describe(token) == described


@given(st.text(min_size=1, max_size=6), st.text(min_size=1, max_size=6))
def test_descriptions_tell_all_tokens_apart(one: str, other: str):
    assert (describe(one) == describe(other)) == (one == other)


def test_colours_run_from_end_to_end():
    for scale in ("sequential", "diverging"):
        for theme in ("light", "dark"):
            table = lookup(scale, theme, 255)
            ends = [stops(scale, theme)[0], stops(scale, theme)[-1]]
            assert ["#{:02x}{:02x}{:02x}".format(*table[row]) for row in (0, -1)] == ends


WORDS = {"quantity": "nats", "row_title": "destination token", "column_title": "source token"}


def test_a_map_goes_out_as_float32_with_zero_in_the_middle(rng: np.random.Generator):
    values = rng.standard_normal((256, 128))
    figure = matrix_map(values, [f"{i}" for i in range(256)], [f"{i}" for i in range(128)], **WORDS)
    trace = figure.data[0]
    assert (trace.zmin, trace.zmax) == (-np.abs(values).max(), np.abs(values).max())
    sent = json.loads(figure.to_json())["data"][0]["z"]
    assert sent["dtype"] == "f4" and sent["shape"] == "256, 128"
    np.testing.assert_array_equal(trace.z, values.astype(np.float32))
    # Rows down: the first row of the matrix is at the top.
    assert figure.layout.yaxis.autorange == "reversed"


def test_tokens_that_read_the_same_stay_apart_and_none_is_markup():
    trace = matrix_map(np.zeros((3, 2)), ["·a", "·a", "<b>"], ["x", "y"], **WORDS).data[0]
    assert list(trace.y) == ["·a (0)", "·a (1)", "&lt;b&gt;"]
    assert (trace.zmin, trace.zmax) == (-1, 1)


def test_shares_have_a_scale_of_0_to_1_and_short_names_lie_flat():
    figure = matrix_map(np.array([[0.25, 0.75]]), ["0"], ["0", "1"], shares=True, **WORDS)
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0, 1)
    assert figure.data[0].colorscale != matrix_map(np.zeros((1, 1)), ["0"], ["0"], **WORDS).data[0].colorscale
    assert figure.layout.xaxis.tickangle == 0


@pytest.mark.parametrize(("n", "all_of_them"), [(48, True), (49, False)])
def test_many_rows_are_labelled_sparsely(n: int, all_of_them: bool):
    axis = matrix_map(np.zeros((n, 1)), [f"{i}" for i in range(n)], ["x"], **WORDS).layout.yaxis
    assert (axis.dtick == 1) is all_of_them
    assert all_of_them or 4 <= len(axis.tickvals) <= 9


def test_labels_that_do_not_fit_are_refused():
    with refused("1 × 2", "2 × 2"):
        matrix_map(np.zeros((2, 2)), ["a"], ["b", "c"], **WORDS)
