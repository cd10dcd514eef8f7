"""Figures of distilled heads, with the numbers of the records that they are of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import aotlens
from aotlens.distill import ComparedDistillations, Record, bundled_distillations, compare_distillations
from tests.messages import refused

NAMES = ("novels-2l-mhsa", "novels-2l-gpt")


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    bundled = bundled_distillations()
    return {name: bundled[name] for name in NAMES}


@pytest.fixture(scope="module")
def compared(records: dict[str, Record]) -> ComparedDistillations:
    return compare_distillations(records, 16, (0, 1))


def with_errors(record: Record, errors: np.ndarray) -> dict[str, Record]:
    """The record with other errors of its heads, the same at every width."""
    found = record.distillation
    squared = errors[:, None, None, None] * found.baseline[:, None, None] + 0 * found.squared_error
    return {"a": replace(record, distillation=replace(found, squared_error=squared))}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_grid_has_a_cell_a_head(records: dict[str, Record], theme: Any) -> None:
    found = records[NAMES[0]].distillation
    beyond = with_errors(records[NAMES[0]], np.full(8, 1.3))
    figure = aotlens.plot(compare_distillations(beyond, 16, (0, 1)), theme=theme)
    cells, texts, scale = *figure.data[:2], figure.layout.coloraxis
    assert cells.z.shape == found.attending.scores.values.shape[1:] and "1.30" in texts.text
    assert (scale.cmin, scale.cmax) == (0, 1) and len(figure.layout.shapes) == 1
    assert figure.layout.shapes[0].y0 == -0.45 and figure.layout.shapes[0].x0 == pytest.approx(0.53)
    whole = aotlens.plot(found, width=16).data[0]
    for place, (layer, head) in enumerate(found.heads):
        assert whole.z[layer, head] == pytest.approx(found.mean_error(16)[place])
        low, high = found.interval(16)[place]
        assert f"{low:.3f} to {high:.3f}" in whole.customdata[layer][head][3]


def test_lines_by_width_have_their_intervals(compared: ComparedDistillations) -> None:
    figure = aotlens.plot(compared, what="widths")
    left, others, *_ = figure.data
    found = compared.records[NAMES[0]].distillation
    assert list(left.x) == ["linear" if width == 0 else str(width) for width in compared.widths]
    np.testing.assert_allclose(left.y, [found.mean_error(width).mean() for width in compared.widths], rtol=1e-6)
    lows, highs = np.array([found.over_heads(width)[1:] for width in compared.widths]).T
    np.testing.assert_allclose(left.error_y.array, highs - left.y, rtol=1e-4)
    np.testing.assert_allclose(left.error_y.arrayminus, left.y - lows, rtol=1e-4)
    assert others.y[list(others.x).index("neighbours")] == pytest.approx(found.neighbour_error.mean())
    assert f"{NAMES[0]} 0.1" in {trace.name for trace in figure.data}


def test_a_long_interval_leaves_the_picture_and_errors_above_one_are_seen(records: dict[str, Record]) -> None:
    apart = with_errors(records[NAMES[0]], np.array([7.2, 0, 0, 0, 0, 0, 0, 0]))  # a mean of 0.9, and up to 3
    figure = aotlens.plot(compare_distillations(apart, 16, (1, 0)), what="widths")
    assert max(np.add(figure.data[0].y, figure.data[0].error_y.array)) > 2
    low, high = figure.layout.yaxis.range
    assert low == 0 and 1 < high < 1.2
    two = compare_distillations(with_errors(records[NAMES[0]], np.full(8, 2.0)), 16)
    assert aotlens.plot(two, what="widths").layout.yaxis.range[1] > 2


def test_points_are_told_apart_by_kind_and_model(compared: ComparedDistillations) -> None:
    figure = aotlens.plot(compared, what="attention")
    found = compared.found
    points = [trace for trace in figure.data if trace.customdata is not None and trace.customdata[0][0] == NAMES[0]]
    assert len(points) == 2, "one picture of the motif, one of pattern consistency"
    np.testing.assert_allclose(points[0].y, found.mean_error(16), rtol=1e-6)
    np.testing.assert_allclose(points[0].x, found.attending.to("first_token"), rtol=1e-6)
    np.testing.assert_allclose(points[1].x, found.attending.pattern_consistency, rtol=1e-6)
    np.testing.assert_allclose(points[0].error_y.array, found.interval(16)[:, 1] - found.mean_error(16), rtol=1e-6)
    colours = dict(zip(found.attending.attends, points[0].marker.color, strict=True))
    assert [colours[label] for label in found.attending.attends] == list(points[0].marker.color)
    assert len(set(colours.values())) == len(colours)
    assert len({trace.marker.symbol for trace in figure.data if trace.customdata is not None}) == 2
    legend = [trace.name for trace in figure.data if trace.x[0] is None]
    assert legend[-2:] == list(NAMES) and {label.replace("_", " ") for label in colours} <= set(legend)


def test_costs_have_a_band_for_random_orders(compared: ComparedDistillations, records: dict[str, Record]) -> None:
    costs = records[NAMES[0]].costs
    assert costs is not None
    band, line, *_ = aotlens.plot(costs).data
    sizes = list(costs.sizes)
    assert list(band.x) == [*sizes, *sizes[::-1]]
    np.testing.assert_allclose(band.y, [*costs.random.max(0), *costs.random.min(0)[::-1]])
    np.testing.assert_allclose(line.y, costs.by_error[0], rtol=1e-6)
    assert "loss, nats" in aotlens.plot(compared, what="costs").layout.yaxis.title.text
    assert "divergence" in aotlens.plot(replace(costs, measure="kl")).layout.yaxis.title.text


def test_learning_curves_have_their_references(compared: ComparedDistillations) -> None:
    figure, frame = aotlens.plot(compared, what="curve"), compared.curve_frame()
    np.testing.assert_allclose(figure.data[0].y, frame[frame.columns[1]], rtol=1e-6)
    level = compared.found.linear_error[compared.place]
    assert figure.data[-1].name == f"linear map (held out) {level:.3f}" and figure.data[-1].y == (level, level)
    with refused("'curves'", "'heads', 'widths', 'attention'"):
        aotlens.plot(compared, what="curves")


def test_bars_of_kinds_have_their_shares(compared: ComparedDistillations) -> None:
    bars, frame = aotlens.plot(compared, what="classes").data[0], compared.class_frame()
    np.testing.assert_allclose(bars.x, frame["error"], rtol=1e-6)
    assert len(bars.text) == len(frame) and all("of tokens" in text and "of the error" in text for text in bars.text)
