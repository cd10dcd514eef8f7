"""`aotlens.plot` finds the figure of a result by its type's name, and says so where there is none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import aotlens
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
