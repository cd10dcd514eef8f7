"""Figures: what is in them, and that arrays stay arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.plots import attention_map, describe, glyphs, training_curve
from aotlens.plots.attention import span_of
from aotlens.plots.colours import lookup, stops
from aotlens.plots.primitives import axis_labels
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


HISTORY = [
    {"step": 0, "tokens": 0, "loss": 8.0, "learning_rate": 0.1, "validation_loss": 8.1, "induction": 0.0},
    {"step": 10, "tokens": 640, "loss": 7.0, "learning_rate": 0.1},
    {"step": 20, "tokens": 1280, "loss": 6.0, "learning_rate": 0.1, "validation_loss": 6.2, "induction": 0.5},
]


def test_a_training_curve_has_losses_above_scores():
    figure = training_curve(HISTORY, references={"bigram": 4.5})
    lines = {trace.name: trace for trace in figure.data}
    assert set(lines) == {"loss", "validation loss", "induction"}
    np.testing.assert_array_equal(lines["validation loss"].x, [0, 1280])
    np.testing.assert_array_equal(lines["validation loss"].y, [8.1, 6.2])
    assert lines["loss"].yaxis != lines["induction"].yaxis
    assert "bigram 4.500" in figure.layout.annotations[0].text


def test_a_training_curve_without_scores_or_with_gaps():
    figure = training_curve([{"step": 1, "loss": 2.0}, {"step": 2, "loss": None}, {"step": 3, "loss": 1.0}])
    np.testing.assert_array_equal(figure.data[0].x, [1, 3])
    assert len(figure.data) == 1


@pytest.mark.parametrize("history", [[], [{"loss": 1.0}], [{"step": 1}]])
def test_a_curve_of_nothing_is_refused(history: list[dict[str, float]]):
    with pytest.raises(ValueError, match="training_curve: expected rows"):
        training_curve(history)


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
