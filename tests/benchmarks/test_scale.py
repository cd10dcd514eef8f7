"""Points of cost by size: skipped by their law, kept in a file, resumed; exponents, estimates, and the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import scale
from benchmarks._scale import points as module
from benchmarks._scale.analyses import HEADLINES, TINY, Shape, untrained
from benchmarks._scale.page import LARGEST, TARGETS, estimate, exponent_rows, known, seconds, section, size, slope
from benchmarks._scale.points import CORNER, Bounds, Points, about, key_of, measure, run
from tests.messages import refused

ROOT = Path(__file__).resolve().parents[2]
STORED, PAGE = ROOT / "benchmarks" / "scale.json", ROOT / "docs" / "scale.md"
ABOUT = {**about("cpu", 1, False), "torch": "2", "processor": "test"}
WIDE = Bounds(seconds=1e9, memory_bytes=1e15)
TARGET = TARGETS["V = 256k, 96 × 96 heads"]


def made_by_law(name: str) -> Points:
    """Points of every series of an analysis that cost what its law says."""
    headline = HEADLINES[name]
    shapes = [shape for axis in headline.axes for shape in headline.series(axis)]
    figures = {
        key_of(name, shape): {"cpu": 0.001 + 1e-11 * headline.operations(shape), "bytes": 2 * headline.bytes(shape)}
        for shape in shapes
    }
    return Points(about=ABOUT, figures=figures)


@pytest.fixture
def law_measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Points cost what their law says; the names of those that were measured."""
    names: list[str] = []

    def measured(name: str, shape: Shape, **settings: Any) -> dict[str, Any]:
        names.append(key_of(name, shape))
        headline = HEADLINES[name]
        return {"cpu": 1e-11 * headline.operations(shape), "wall": 1.0, "bytes": headline.bytes(shape), "calls": 1}

    monkeypatch.setattr(module, "measure", measured)
    return names


def test_a_point_that_its_law_predicts_to_be_too_large_is_skipped(law_measured: list[str]) -> None:
    points = Points(about=ABOUT)
    assert run(points, ["circuits"], Bounds(seconds=2, memory_bytes=1e15), lambda line: None)
    law = HEADLINES["circuits"].operations
    for shape in HEADLINES["circuits"].series("vocabulary"):
        figures = points.figures[key_of("circuits", shape)]
        if 1e-11 * law(shape) > 2:
            assert figures == {"skipped": f"predicted {1e-11 * law(shape):.0f} s, above 2 s"}
        else:
            assert figures["cpu"] <= 2
    points = Points(about=ABOUT)
    run(points, ["forward"], Bounds(seconds=1e9, memory_bytes=3e8), lambda line: None)
    large = HEADLINES["forward"].middle.on("vocabulary", 2**17)
    assert re.fullmatch(r"predicted 0\.\d GB, above 0\.3 GB", points.figures[key_of("forward", large)]["skipped"])


def test_a_run_resumes(law_measured: list[str], tmp_path: Path) -> None:
    path, short = tmp_path / "points.json", Bounds(seconds=1, memory_bytes=1e15)
    assert not run(Points.open(path, ABOUT), ["circuits"], replace(WIDE, until=0.0), lambda line: None)
    assert law_measured == [] and run(Points.open(path, ABOUT), ["circuits"], short, lambda line: None)
    first = list(law_measured)
    again = Points.open(path, ABOUT)
    assert run(again, ["circuits"], short, lambda line: None) and law_measured == first
    assert run(again, ["circuits"], WIDE, lambda line: None)
    assert set(law_measured) > set(first) and len(set(law_measured)) == len(law_measured), "skipped points may be"
    assert Points.read(path).figures == again.figures
    with refused("{'threads': 1}", "{'threads': 2}"):
        Points.open(path, {**ABOUT, "threads": 2})
    path.write_text("{}")
    with refused("expected a file of"):
        Points.open(path, ABOUT)


def test_the_slope_of_an_exact_power_and_its_interval() -> None:
    sizes = 2.0 ** np.arange(10, 17)
    p, half = slope(sizes.tolist(), (3e-7 * sizes**1.7).tolist())
    assert p == pytest.approx(1.7) and half < 1e-6
    generator, inside = np.random.default_rng(0), 0
    for _ in range(200):
        p, half = slope(sizes.tolist(), (sizes**2 * np.exp(0.1 * generator.standard_normal(7))).tolist())
        inside += abs(p - 2) <= half
    assert 0.9 < inside / 200 < 1


@pytest.mark.parametrize("name", HEADLINES)
def test_the_law_leads_to_sizes_far_away(name: str) -> None:
    """Points that follow their law have its exponents, and its cost at a target 256 times as large."""
    points, headline = made_by_law(name), HEADLINES[name]
    for figure, exact in (("cpu", 1e-11 * headline.operations(TARGET)), ("bytes", 2 * headline.bytes(TARGET))):
        assert estimate(points, name, TARGET, figure) == pytest.approx(exact, rel=0.02)
    assert estimate(Points(about=ABOUT), name, TARGET, "cpu") is None
    rows = exponent_rows(points, [name])
    assert [row["axis"] for row in rows] == list(headline.axes)
    for row in rows:
        assert float(row["time ∝ size^p"].split(" ± ")[0]) == pytest.approx(float(row["by law"]), abs=0.05)
    for figures in points.figures.values():
        figures["bytes"] = 10**6
    assert known(points, headline, headline.axes[0], "bytes") == {}, "small peaks are the allocator's"


def test_the_page_follows_from_the_points(tmp_path: Path) -> None:
    """Word for word; a number may differ in its last digit, as least squares do between machines."""
    points = Points.read(STORED)
    stored = PAGE.read_text(encoding="utf-8").split("<!-- scale -->")[1].split("<!-- /scale -->")[0].strip()
    made = section(points)
    assert re.sub(r"[\d.,]+", "", stored) == re.sub(r"[\d.,]+", "", made)
    old, new = (
        [float(n.replace(",", "")) for n in re.findall(r"(?<![\w.])-?\d[\d,]*\.?\d*", text)] for text in (stored, made)
    )
    assert old == pytest.approx(new, rel=0.12, abs=0.011)
    for name, headline in HEADLINES.items():
        assert points.measured(key_of(name, CORNER)), name
        for axis in headline.axes:
            assert len(known(points, headline, axis, "cpu")) >= LARGEST, (name, axis)


@pytest.mark.long
def test_points_are_measured_in_processes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, figures = tmp_path / "points.json", tmp_path / "figures.json"
    arguments = ["--quick", "--only", "path_sums", "--out", str(path), "--json", str(figures)]
    assert scale.main(arguments) == 0
    points = Points.read(path)
    assert len(points.figures) == 5 and all(figures["cpu"] > 0 for figures in points.figures.values())
    assert json.loads(figures.read_text())["scale"]["rows"][0]["axis"] == "vocabulary"
    wide = Shape(vocabulary=2**16, layers=1, heads=1, width=1024, tokens=8)
    assert measure("forward", wide, memory_bytes=1e8) == {"failed": "does not fit 0.1 GB"}
    assert scale.main([*arguments, "--threads", "2"]) == 2
    assert "give another --out" in capsys.readouterr().err


def test_units_and_weights() -> None:
    assert [seconds(x) for x in (2e-6, 0.0034, 59.9, 3600 * 24 * 3, 4e10)] == [
        "2.0 µs", "3.4 ms", "1.0 min", "3.0 days", "1,300 years",
    ]  # fmt: skip
    assert [size(x) for x in (512, 7.26e10, 1e12)] == ["0.5 kB", "73 GB", "1.0 TB"]
    model = untrained(TINY, "cpu")
    weights = sum(p.numel() for name, p in model.named_parameters() if ".W_" in name and "pos" not in name)
    assert weights == TINY.n_weights
    assert model.unigram_counts is not None and len(model.unigram_counts) == TINY.vocabulary
