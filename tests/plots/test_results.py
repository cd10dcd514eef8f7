"""`aotlens.plot` finds the figure of a result by its type's name, and refuses a result without one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import aotlens
from aotlens.heads import find_heads, stored_atlas
from aotlens.plots.heads import verdicts
from aotlens.plots.results import FIGURES
from tests.every_result import every_result
from tests.messages import refused

OPTIONS: dict[str, dict[str, Any]] = {
    "Composition": {"head": "0.1", "above_null": False},
    "PathExpansion": {"target": 7},
}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """The first of each type."""
    first: dict[str, Any] = {}
    for result in every_result():
        first.setdefault(type(result).__name__, result)
    return first


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_type_in_the_table_is_there_and_has_its_figure(name: str, results: dict[str, Any]) -> None:
    module, _, kind = name.rpartition(".")
    assert isinstance(getattr(import_module(module), kind), type)
    result = results[kind]
    if kind == "Circuit":
        result = result[:12, 5:9]
    for theme in ("light", "dark"):
        figure = aotlens.plot(result, theme=theme, **OPTIONS.get(kind, {}))
        assert isinstance(figure, go.Figure) and figure.data


def test_the_figure_shows_the_result(results: dict[str, Any]) -> None:
    patterns = results["AttentionPatterns"]
    one = aotlens.plot(patterns, head=(1, 0)).data[0]
    np.testing.assert_allclose(np.nan_to_num(one.z), patterns.pattern[1, 0], rtol=1e-6)
    assert len(aotlens.plot(patterns).data) == patterns.pattern.shape[0] * patterns.pattern.shape[1]
    circuit = results["Circuit"][:12, 5:9]
    np.testing.assert_allclose(aotlens.plot(circuit).data[0].z, circuit.AB.numpy(), rtol=1e-5)
    scores = results["MotifScores"]
    np.testing.assert_allclose(aotlens.plot(scores, motif="induction").data[0].z, scores["induction"], rtol=1e-6)


def test_errors_costs_terms_and_verdicts_are_the_results(results: dict[str, Any]) -> None:
    distillation = results["Distillation"]
    for width in distillation.hidden:
        cells = aotlens.plot(distillation, width=width).data[0]
        for place, (layer, head) in enumerate(distillation.heads):
            assert cells.z[layer, head] == pytest.approx(
                distillation.error[place, distillation.width_index(width)].mean()
            )
    costs = results["SubstitutionCosts"]
    lines = {trace.name: trace for trace in aotlens.plot(costs).data}
    np.testing.assert_allclose(lines["FFNs, most FFN-like first"].y, costs.by_error[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(lines["the same heads zero"].y, costs.by_error[2], rtol=1e-5, atol=1e-7)
    assert list(lines["FFNs, least FFN-like first"].x) == list(costs.sizes)
    terms = results["TermImportance"]
    bars = aotlens.plot(terms).data[0]
    assert list(bars.x) == [1, 2] and sum(bars.y) == pytest.approx(terms.loss_up_to[0] - terms.loss_up_to[-1], abs=1e-5)
    np.testing.assert_allclose(aotlens.plot(terms, of="heads").data[0].z, terms.given_the_rest, rtol=1e-5)
    np.testing.assert_allclose(aotlens.plot(terms, of="heads alone").data[0].z, terms.alone, rtol=1e-5)
    with refused("orders, heads or heads alone"):
        aotlens.plot(terms, of="layers")
    evidence = results["Evidence"]
    assert {bar.name: sum(bar.x) for bar in aotlens.plot(evidence).data} == evidence.summary()


def test_what_has_no_figure_is_refused(results: dict[str, Any]) -> None:
    with refused("Record", "Spectrum"):
        aotlens.plot(results["Record"])
    with refused("head 2.0", "0 to 1"):
        aotlens.plot(results["AttentionPatterns"], head="2.0")
    with refused("part"):
        aotlens.plot(results["Circuit"])


def test_a_number_for_each_head_is_a_map_of_heads() -> None:
    values = np.arange(6.0).reshape(2, 3)
    figure = aotlens.plot(SimpleNamespace(head_values=("entropy, nats", values)))
    np.testing.assert_array_equal(figure.data[0].z, values)


def test_a_point_a_head_by_label() -> None:
    atlas = stored_atlas("novels-2l-mhsa").atlas
    frame = atlas.to_frame()
    figure = aotlens.plot(atlas, x="previous_token", y="copying", head="1.1", theme="dark")
    *traces, ring = figure.data
    points = {name: at for t in traces for name, *at in zip(t.customdata, t.x, t.y, strict=True)}
    expected = {f"{row.layer}.{row.head}": [row.previous_token, row.copying] for row in frame.itertuples()}
    assert points == expected and [ring.x[0], ring.y[0]] == expected["1.1"]
    for trace in traces:
        own = [f"{row.layer}.{row.head}" for row in frame.itertuples() if row.label.replace("_", " ") == trace.name]
        assert list(trace.customdata) == own
    assert figure.layout.xaxis.title.text == "previous token"
    assert "mixed" not in {trace.name for trace in traces[:-1]}, "mixed is last"


def test_heads_that_are_not_found_are_faint() -> None:
    atlas = stored_atlas("novels-2l-mhsa").atlas
    found = find_heads(atlas, "layer = 1")
    opacity = {
        name: shade for trace in aotlens.plot(found).data
        for name, shade in zip(trace.customdata, trace.marker.opacity, strict=True)
    }  # fmt: skip
    assert opacity == {name: 1.0 if name.startswith("1.") else 0.35 for name in opacity} and len(opacity) == 8


@dataclass
class Counted:
    """What has kinds and verdicts."""

    frame: pd.DataFrame

    def by_kind(self) -> pd.DataFrame:
        return self.frame


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_verdict_is_a_trace_with_its_column(theme: Any) -> None:
    counts = np.array([[3, 0, 5], [1, 2, 0]])
    words = ["confirmed", "not confirmed", "too rare"]
    result: Any = Counted(pd.DataFrame(counts, columns=words, index=["copy", "other"]))
    figure = verdicts(result, theme=theme)
    assert [trace.name for trace in figure.data] == words
    for index, trace in enumerate(figure.data):
        np.testing.assert_array_equal(trace.x, counts[:, index])
        assert list(trace.y) == ["copy", "other"]
    assert len({trace.marker.color for trace in figure.data}) == 3
    assert figure.data[1].text[0] == ""
