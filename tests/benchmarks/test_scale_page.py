"""docs/scale.md and its picture follow from the stored points, and every disagreement with a law has its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks._scale.extrapolate import Estimate
from benchmarks._scale.figure import draw
from benchmarks._scale.headline import HEADLINES
from benchmarks._scale.reasons import REASONS
from benchmarks._scale.series import CORNER, Points, key_of
from benchmarks._scale.tables import disagreements, section

ROOT = Path(__file__).resolve().parents[2]
STORED, PAGE = ROOT / "benchmarks" / "scale.json", ROOT / "docs" / "scale.md"

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture(scope="module")
def points() -> Iterator[Points]:
    yield Points.read(STORED)


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"(?<![\w.])-?\d[\d,]*\.?\d*", text)]


def test_the_page_follows_from_the_points(points: Points) -> None:
    """Word for word; a number may differ in its last digit, as least squares do between machines."""
    page = PAGE.read_text(encoding="utf-8")
    stored = page.split("<!-- scale -->")[1].split("<!-- /scale -->")[0].strip()
    made = section(points).strip()
    assert re.sub(r"[\d.,]+", "", stored) == re.sub(r"[\d.,]+", "", made)
    assert numbers(stored) == pytest.approx(numbers(made), rel=0.12, abs=0.011)


def test_an_interval_grows_until_it_holds_what_was_measured() -> None:
    estimate = Estimate(value=10.0, low=5.0, high=40.0)
    assert estimate.needs(20.0) == pytest.approx(0.5) and estimate.needs(5.0) == pytest.approx(1)
    wider = estimate.widened(estimate.needs(1.25))
    assert wider.value == 10 and wider.low == pytest.approx(1.25) and wider.high == pytest.approx(640)


def test_the_picture_has_every_point(points: Points) -> None:
    drawn, made = (PAGE.with_suffix(".svg").read_text(encoding="utf-8"), draw(points))
    assert drawn.count("<circle") == made.count("<circle") > 200
    assert len(drawn) < 60_000 and STORED.stat().st_size < 50_000


def test_every_disagreement_with_a_law_has_its_reason(points: Points) -> None:
    assert set(REASONS) == set(disagreements(points))


def test_every_headline_analysis_was_measured(points: Points) -> None:
    for name, headline in HEADLINES.items():
        for axis in headline.axes:
            known = [shape for shape in headline.series(axis) if points.measured(key_of(name, shape))]
            assert len(known) >= 5, (name, axis)
        if headline.axes:
            assert points.measured(key_of(name, CORNER)), name
        if headline.refused is not None:
            assert "failed" in points.figures[key_of(name, headline.refused)]
