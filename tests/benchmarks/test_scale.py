"""Points of cost against size: skipped by their law, kept in a file, gone on with; tables and estimates."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import scale
from benchmarks._scale import point, series, words
from benchmarks._scale.extrapolate import axis_fit, from_axes, from_law
from benchmarks._scale.figure import draw
from benchmarks._scale.headline import HEADLINES
from benchmarks._scale.series import Bounds, Points, about, key_of, run
from benchmarks._scale.shapes import TINY, Shape, untrained
from benchmarks._scale.tables import disagreements, exponent_rows, section, write_page
from tests.messages import refused

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

ABOUT = {**about("cpu", 1, False), "torch": "2", "processor": "test"}
WIDE = Bounds(seconds=1e9, memory_bytes=1e15)


def made_by_law(name: str, seconds_per_operation: float = 1e-11) -> dict[str, Any]:
    """Points of every series of an analysis, as its law has them."""
    headline = HEADLINES[name]
    return {
        key_of(name, shape): {
            "cpu": 0.001 + seconds_per_operation * headline.operations(shape),
            "wall": 1.0,
            "bytes": 2 * headline.bytes(shape),
            "calls": 1,
        }
        for axis in headline.axes
        for shape in headline.series(axis)
    }


@pytest.fixture
def law_measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Points that cost what their law says, and the names of those that were asked for."""
    asked: list[str] = []

    def measured(name: str, shape: Shape, **settings: Any) -> dict[str, Any]:
        asked.append(key_of(name, settings["checkpoint"] or shape))
        headline = HEADLINES[name]
        return {"cpu": 1e-11 * headline.operations(shape), "wall": 1.0, "bytes": headline.bytes(shape), "calls": 1}

    monkeypatch.setattr(series, "measure", measured)
    return asked


def test_what_its_law_says_is_too_large_is_skipped(law_measured: list[str]) -> None:
    points = Points(about=ABOUT)
    assert run(points, ["circuits"], Bounds(seconds=2, memory_bytes=1e15), lambda line: None)
    base = HEADLINES["circuits"].middle_of("vocabulary")
    law = HEADLINES["circuits"].operations
    for shape in HEADLINES["circuits"].series("vocabulary"):
        figures = points.figures[key_of("circuits", shape)]
        if 1e-11 * law(shape) > 2:
            assert figures == {"skipped": f"predicted {1e-11 * law(shape):.0f} s, above 2 s"}
        else:
            assert figures["cpu"] <= 2
    assert key_of("circuits", base.on("vocabulary", 2**17)) not in law_measured


def test_memory_bounds_points_too(law_measured: list[str]) -> None:
    points = Points(about=ABOUT)
    run(points, ["forward"], Bounds(seconds=1e9, memory_bytes=3e8), lambda line: None)
    large = HEADLINES["forward"].middle.on("vocabulary", 2**17)
    assert 4 * large.n_weights > 3e8
    assert re.fullmatch(r"predicted 0\.\d GB, above 0\.3 GB", points.figures[key_of("forward", large)]["skipped"])


def test_a_run_goes_on_where_it_was(law_measured: list[str], tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    assert not run(Points.open(path, ABOUT), ["circuits"], replace(WIDE, until=0.0), lambda line: None)
    assert law_measured == []
    assert run(Points.open(path, ABOUT), ["circuits"], Bounds(seconds=1, memory_bytes=1e15), lambda line: None)
    first = list(law_measured)
    again = Points.open(path, ABOUT)
    assert run(again, ["circuits"], Bounds(seconds=1, memory_bytes=1e15), lambda line: None)
    assert law_measured == first, "a point that stands in the file is not measured again"
    assert run(again, ["circuits"], WIDE, lambda line: None)
    assert set(law_measured) > set(first) and len(set(law_measured)) == len(law_measured), "but one skipped may be"
    assert Points.read(path).figures == again.figures


def test_other_settings_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    Points.open(path, ABOUT).add("forward x", {"cpu": 1.0})
    with refused("{'threads': 1}", "{'threads': 2}"):
        Points.open(path, {**ABOUT, "threads": 2})
    path.write_text("{}")
    with pytest.raises(ValueError, match="expected a file of"):
        Points.open(path, ABOUT)


@pytest.mark.parametrize("name", [name for name, headline in HEADLINES.items() if headline.axes])
def test_costs_that_follow_their_law_do_not_disagree_with_it(name: str) -> None:
    points = Points(about=ABOUT, figures=made_by_law(name))
    rows = exponent_rows(points, [name])
    assert len(rows) == len(HEADLINES[name].axes)
    assert disagreements(points) == []
    for key, figures in points.figures.items():  # a cost that grows by one power more does
        vocabulary = int(key.split()[1][1:])
        figures["cpu"] *= vocabulary
    disagreeing = [axis for _, axis in disagreements(points)]
    assert disagreeing == (["vocabulary"] if "vocabulary" in HEADLINES[name].axes else [])


TARGET = Shape(vocabulary=256_000, layers=96, heads=96, width=6144, tokens=1024)


@pytest.mark.parametrize("name", [name for name, headline in HEADLINES.items() if headline.axes])
def test_the_law_leads_to_sizes_far_away(name: str) -> None:
    """A 256th of the target is measured at most, and its cost is found; so is that of memory."""
    points = Points(about=ABOUT, figures=made_by_law(name))
    headline = HEADLINES[name]
    for figure, exact in (("cpu", 1e-11 * headline.operations(TARGET)), ("bytes", 2 * headline.bytes(TARGET))):
        found = from_law(points, name, TARGET, figure)
        assert found is not None and found.low <= found.value <= found.high
        assert found.value == pytest.approx(exact, rel=0.02)
    assert from_law(Points(about=ABOUT), name, TARGET, "cpu") is None


def test_axes_lead_there_where_one_product_leads() -> None:
    """They do for circuits, whose vocabulary squared leads; logits, which are added to layers, count too much."""
    for name, low, high in (("circuits", 0.8, 1.3), ("forward", 3, 1000)):
        points = Points(about=ABOUT, figures=made_by_law(name))
        target = replace(TARGET, width=512)
        found = from_axes(points, name, target, "cpu")
        assert found is not None and found.low <= found.value <= found.high
        assert low < found.value / (1e-11 * HEADLINES[name].operations(target)) < high
        for key in [key for key in points.figures if " L4 " in key]:
            del points.figures[key]
        assert from_axes(points, name, target, "cpu") is None


def test_intervals_of_the_law_cover_a_new_measurement() -> None:
    """With 10% of scatter on every point: of 60 runs 95% less three standard errors, and no wider than needed."""
    headline, generator = HEADLINES["path_sums"], np.random.default_rng(1)
    exact = made_by_law("path_sums")
    covered, widths = 0, []
    for _ in range(60):
        figures = {key: {**each, "cpu": each["cpu"] * np.exp(0.1 * generator.standard_normal())}
                   for key, each in exact.items()}  # fmt: skip
        found = from_law(Points(about=ABOUT, figures=figures), "path_sums", TARGET, "cpu")
        assert found is not None
        new = 1e-11 * headline.operations(TARGET) * np.exp(0.1 * generator.standard_normal())
        covered += found.low <= new <= found.high
        widths.append(found.high / found.low)
    assert covered / 60 >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 60) and np.median(widths) < 2


def test_small_peaks_are_not_fitted() -> None:
    points = Points(about=ABOUT, figures=made_by_law("forward"))
    for figures in points.figures.values():
        figures["bytes"] = 10**6
    assert axis_fit(points, HEADLINES["forward"], "vocabulary", "bytes").values == []


def test_the_page_is_made_from_the_points(tmp_path: Path) -> None:
    points = Points(about=ABOUT, figures=made_by_law("circuits"))
    page = tmp_path / "scale.md"
    page.write_text("before\n<!-- scale -->\n<!-- /scale -->\nafter\n")
    write_page(page, points)
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after\n") and section(points) in text
    drawn = (tmp_path / "scale.svg").read_text()
    assert drawn == draw(points) and drawn.count("<circle") == 5 + sum(
        len(headline.series(axis)) for headline in [HEADLINES["circuits"]] for axis in headline.axes
    )
    write_page(page, points)
    assert page.read_text() == text


@pytest.mark.long
def test_points_are_measured_in_processes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One series, and two points that fail: refused by the library, and more memory than allowed."""
    path, figures = tmp_path / "points.json", tmp_path / "figures.json"
    arguments = ["--quick", "--only", "path_sums", "--out", str(path), "--json", str(figures)]
    assert scale.main(arguments) == 0
    points = Points.read(path)
    assert len(points.figures) == 5 and all(figures["cpu"] > 0 for figures in points.figures.values())
    assert json.loads(figures.read_text())["scale"]["rows"][0]["axis"] == "vocabulary"
    refused = point.measure("every_path", Shape(vocabulary=64, layers=9, heads=8, width=16, d_head=4, tokens=8))
    assert "387,420,489" in refused["failed"]
    wide = Shape(vocabulary=2**16, layers=1, heads=1, width=1024, tokens=8)
    assert point.measure("forward", wide, memory_bytes=1e8) == {"failed": "does not fit 0.1 GB"}
    assert scale.main([*arguments, "--threads", "2"]) == 2
    assert "give another --out" in capsys.readouterr().err


def test_words() -> None:
    assert [words.seconds(x) for x in (2e-6, 0.0034, 59.9, 3600 * 24 * 3, 4e10)] == [
        "2.0 µs", "3.4 ms", "1.0 min", "3.0 days", "1,300 years",
    ]  # fmt: skip
    assert [words.size(x) for x in (512, 7.26e10, 1e12)] == ["0.5 kB", "73 GB", "1.0 TB"]


def test_untrained_models_have_the_weights_that_are_counted() -> None:
    model = untrained(TINY, "cpu")
    own = sum(p.numel() for name, p in model.named_parameters() if ".W_" in name and "pos" not in name)
    assert own == TINY.n_weights
    assert model.unigram_counts is not None and len(model.unigram_counts) == TINY.vocabulary
