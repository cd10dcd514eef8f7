"""Analyses by name: which there are, what they are given, and what becomes of their results."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import aotlens
from aotlens.sweeps.calling import as_table, call, check, function, names, reads
from aotlens.sweeps.store import packed, unpacked
from tests.messages import refused


def test_functions_that_take_a_model_are_analyses():
    known = names()
    assert {"metrics", "heads.motif_scores", "circuits.composition", "denoise.audit"} <= set(known)
    assert "heads.Atlas" not in known and "circuits.jacobi" not in known
    assert function("heads.motif_scores") is aotlens.heads.motif_scores


@pytest.mark.parametrize(
    ("name", "settings", "seed", "has_text", "said"),
    [
        ("heads.motif_score", {}, None, False, "no analysis 'heads.motif_score'.*heads.motif_scores"),
        ("os.system", {}, None, False, "no analysis 'os.system'"),
        ("heads.motif_scores", {"half": 3}, None, False, "unknown settings half; it takes tokens, motifs"),
        ("evaluate.validation_loss", {}, None, False, "reads windows. Give the sweep a section"),
        ("circuits.copying_rate", {}, None, False, "missing settings heads"),
        ("evaluate.validation_loss", {}, 1, True, "it takes no seed: it draws nothing"),
        ("metrics", {"a": 1}, None, False, "takes no settings and no seeds"),
    ],
)
def test_what_an_analysis_cannot_take_is_said(
    name: str, settings: dict[str, Any], seed: int | None, has_text: bool, said: str
):
    with pytest.raises(ValueError, match=said):
        check(name, settings, seed, has_text)


def test_data_fill_what_no_setting_does():
    assert reads("evaluate.validation_loss", {}) == ("windows",)
    assert reads("heads.attention_by_place", {}) == ("tokens",)
    assert reads("heads.attention_by_place", {"tokens": "the cat"}) == ()
    assert reads("heads.atlas", {}) == ("corpus",)
    assert reads("heads.motif_scores", {}) == ()  # has text of its own
    assert reads("heads.motif_scores", {"tokens": "data"}) == ("tokens",)
    assert reads("circuits.composition", {}) == () and reads("metrics", {}) == ()
    assert reads("evaluate.evaluate_images", {}) == ("images",)
    assert reads("heads.semantic_consistency", {}) == ("images", "labels")
    assert reads("heads.ablate_each", {}) == ("inputs", "targets")


@dataclass
class Losses:
    loss: float
    unit: str
    each: np.ndarray


def test_results_become_tables():
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="head"))
    table = as_table(SimpleNamespace(to_frame=lambda: frame))
    assert list(table.columns) == ["head", "a"] and list(table["head"]) == ["x", "y"]
    assert as_table(0.5).to_dict("list") == {"value": [0.5]}
    assert as_table({"p": 1, "q": 2.5}).to_dict("list") == {"p": [1], "q": [2.5]}
    named = as_table({mode: SimpleNamespace(to_frame=lambda: frame) for mode in ("q", "k")})
    assert list(named["of"]) == ["q", "q", "k", "k"] and len(named) == 4
    assert as_table(Losses(1.5, "nats", np.zeros(3))).to_dict("records") == [{"loss": 1.5, "unit": "nats"}]
    for nothing in (None, "text", object()):
        with refused(type(nothing).__name__, "no table"):
            as_table(nothing)


def test_a_card_without_figures_is_refused():
    with pytest.raises(ValueError, match="no card with figures"):
        call("metrics", SimpleNamespace(card=None), {}, None, None)
    card = SimpleNamespace(metrics={"validation_loss": 2.5, "note": "text"})
    assert call("metrics", SimpleNamespace(card=card), {}, None, None).to_dict("list") == {"validation_loss": [2.5]}


def test_a_table_keeps_every_bit():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "float64": [*generator.normal(size=4), np.nan, np.inf, -np.inf],
            "float32": np.array([*generator.normal(size=4), np.nan, np.inf, 1e-45], dtype=np.float32),
            "int": np.arange(7, dtype=np.int32),
            "bool": [True, False] * 3 + [True],
            "text": pd.Series(["a", "", None, "</script>", "é", "1.0", "nan"], dtype=object),
        }
    )
    again = unpacked(packed(frame))
    for name in ("float64", "float32", "int", "bool"):
        assert again[name].dtype == frame[name].dtype
        assert again[name].to_numpy().tobytes() == frame[name].to_numpy().tobytes()
    assert [None if pd.isna(each) else each for each in again["text"]] == [
        "a",
        "",
        None,
        "</script>",
        "é",
        "1.0",
        "nan",
    ]
