"""The In-context regression page without a browser: numbers against the library, choices, words and files."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aotlens.data import RegressionTask
from aotlens.denoise.regression import baseline_errors
from aotlens.evaluate import regression_errors
from aotlens.heads import ablate_each, attention_patterns
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.regression import figures, words
from app.pages.regression.address import ADDRESS, RegressionState
from app.pages.regression.files import make_file
from app.pages.regression.ids import ids
from app.pages.regression.service import Asked, Regressions, position_names
from tests.messages import refused, says

State = RegressionState
#: A state of the first model that reads three numbers.
THREE: Any = partial(RegressionState, checkpoint="three-mhsa")


@pytest.fixture(scope="module")
def service(regression_core: Core) -> Regressions:
    return Regressions(regression_core)


def test_errors_are_the_librarys_on_the_task_that_sliders_say(service: Regressions, regression_core: Core) -> None:
    asked = service.asked_of(THREE(dims=2, nonzero=1, noise=0.25, scale=1.5, mean=-0.5, skew=2.0, seed=4))
    assert asked.models == ("three-mhsa", "three-mssa") and asked.checkpoint == "three-mhsa" and asked.d == 3
    task = RegressionTask(
        d=3, n_dims=2, n_nonzero=1, noise_std=0.25, input_scale=1.5, input_mean=-0.5, input_skew=2.0
    )  # fmt: skip
    assert asked.task == task
    results = {each.name: each for each in service.errors(asked)}
    assert list(results) == ["three-mhsa", "three-mssa", "least squares", "averaging", "3 nearest", "ridge", "Bayes"]
    model = regression_core.catalog.load("three-mssa").model
    np.testing.assert_allclose(
        results["three-mssa"].errors, regression_errors(model, task, n_prompts=320, seed=4).errors
    )
    averaging = baseline_errors("averaging", task, n_prompts=320, n_points=7, seed=4)
    np.testing.assert_array_equal(results["averaging"].errors, averaging.errors)
    said = words.of_errors(asked, list(results.values()))
    says(said[0], f"three-mssa {results['three-mssa'].mean[6]:.3f}")
    says(said[1], "2 coordinates", "of the 3")
    lines = {trace.name: trace for trace in figures.errors_figure(service, asked, "linear", "light").data}
    np.testing.assert_allclose(lines["three-mssa"].y, results["three-mssa"].mean)


def test_a_choice_is_met_as_far_as_it_can_be(service: Regressions) -> None:
    assert service.by_width() == {2: ("two",), 3: ("three-mhsa", "three-mssa")}
    form = {"noise": 9.0, "scale": None, "mean": 0.0, "skew": 0.0, "seed": 0, "dims": 3, "nonzero": 3}
    asked = service.asked(("three-mssa",), "three-mhsa", 3, **form)
    assert asked.models == ("three-mssa",) and asked.checkpoint == "three-mhsa"
    assert (asked.noise, asked.scale, asked.dims, asked.nonzero) == (2.0, 1.0, None, None)
    other = service.asked(("three-mssa",), "three-mhsa", 2, **form)
    assert (other.models, other.checkpoint, other.d) == (("two",), "two", 2)
    assert service.asked_of(State(checkpoint="two")).models == service.asked_of(State()).models == ("two",)
    assert service.asked_of(THREE(dims=2, nonzero=2)).nonzero is None, "all that are left count"
    assert Asked.from_dict({**asked.to_dict(), "more": 1}) == asked


def test_a_prompt_is_one_of_those_that_are_measured(service: Regressions, regression_core: Core) -> None:
    asked = service.asked_of(THREE(skew=1.0, seed=2))
    result = service.prompt(asked, 5)
    assert (
        result.patterns.str_tokens
        == position_names(13)
        == tuple(["x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4", "x5", "y5", "x6", "y6", "x7"])
    )
    model = regression_core.catalog.load("three-mhsa").model
    tokens = asked.task.sample(32, 7, 2).tokens[5]
    np.testing.assert_array_equal(result.patterns.pattern, attention_patterns(model, tokens).pattern)
    assert service.prompt(asked, 5) is result and service.prompt(asked, 6).key != result.key
    prompts = service.prompts(asked, 32)
    measured = service.error(asked, "three-mhsa")
    error = float(result.logits[12, 0] - prompts.labels[5, 6]) ** 2 / asked.task.zero_error
    assert error == pytest.approx(measured.errors[5, 6], rel=1e-3)
    said = words.of_map(result, prompts, 5, (1, 2), 12)
    best = int(result.patterns.pattern[1, 2, 12].argmax())
    says(said, "at x7", "6 examples", f"the model says {float(result.logits[12, 0]):+.3f}")
    assert f"head 1.2 attends to {result.patterns.str_tokens[best]}" in said
    assert "nothing is asked there" in words.of_map(result, prompts, 5, (1, 2), 3)


def test_heads_are_left_out_one_by_one(service: Regressions, regression_core: Core) -> None:
    asked = service.asked_of(THREE(noise=0.5))
    prompts = asked.task.sample(128, 7, 0)
    model = regression_core.catalog.load("three-mhsa").model
    expected = ablate_each(model, prompts.tokens, "zero", targets=prompts.targets)
    result = service.without(asked, "zero")
    np.testing.assert_allclose(result.changes, expected.changes, atol=1e-5)
    points = figures.without_figure(service, asked, "zero", "dark").data
    shown = {name: y for trace in points for name, y in zip(trace.text, trace.y, strict=True)}
    assert shown == pytest.approx(
        {f"{layer}.{head}": change for (layer, head), change in zip(result.heads, result.changes, strict=True)}
    )
    assert "gives way to nothing" in words.of_without(asked, result)


def test_motifs_layers_and_the_support(service: Regressions) -> None:
    asked = service.asked_of(THREE())
    figure = figures.motifs_figure(service, asked, "light")
    assert np.array(figure.data[0].z).shape == (6, 5)
    best = service.motifs(asked).best("own_input")
    assert best is not None and f"own input {best[0][0]}.{best[0][1]} {best[1]:.2f}" in words.of_motifs(
        service.motifs(asked)
    )
    readings = service.readings(asked)
    assert f"layer 1: {'least squares' if readings.nearest[2][0] == 'least squares' else ''}" in words.of_layers(
        asked, readings
    )
    with refused("Nonzero weights", error=RequestError):
        service.support(asked)
    sparse = service.asked_of(THREE(nonzero=1))
    said = words.of_support(sparse, service.support(sparse))
    assert "of 6 heads" in said and "256 of them" in said


def test_files_hold_what_is_shown(service: Regressions) -> None:
    asked = service.asked_of(THREE(nonzero=1, dims=2))

    def table(panel: str) -> pd.DataFrame:
        file = make_file(service, panel, asked.to_dict(), "mean", "3", [1, 0])
        assert file.name.startswith("regression-") and "d2-nonzero1-seed0" in file.name
        return pd.read_csv(io.BytesIO(file.content))

    errors = table(ids.ERRORS)
    assert set(errors.name) == {"three-mhsa", "three-mssa", "least squares", "averaging", "3 nearest"}
    entries = table(ids.MAP).set_index(["query", "key"])
    assert len(entries) == 13 * 14 // 2
    pattern = service.prompt(asked, 3).patterns.pattern
    assert entries.attention["x3", "y1"] == pytest.approx(pattern[1, 0, 4, 1], rel=1e-5)
    assert len(table(ids.WITHOUT)) == len(table(ids.SUPPORT)) == 6 and len(table(ids.LAYERS)) == 3
    assert len(table(ids.MOTIFS)) == 30
    with pytest.raises(RequestError, match="nothing to save"):
        make_file(service, ids.ERRORS, None, "mean", "0", [0, 0])


def test_the_address_says_all_and_refuses_the_rest(regression_core: Core) -> None:
    state = State(
        models=("three-mssa",), checkpoint="three-mssa", dims=2, nonzero=1, noise=0.5, scale=2.0, mean=-1.0, skew=0.3,
        seed=7, axis="log", tab="heads", head=(1, 2), prompt=9, query=4, view="scores", how="zero",
    )  # fmt: skip
    assert ADDRESS.read(ADDRESS.format(state).partition("?")[2], regression_core) == (state, [])
    read: Any = lambda search: ADDRESS.read(search, regression_core)  # noqa: E731
    state, sentences = read("models=three-mhsa,two&checkpoint=tiny-mhsa&head=5.0")
    assert state.models == ("three-mhsa",) and state.checkpoint == "three-mhsa" and state.head == (0, 0)
    assert len(sentences) == 3


def test_the_catalog_says_which_page_shows_a_checkpoint(regression_core: Core) -> None:
    catalog = regression_core.catalog
    assert catalog.page_of(catalog.info("two")) == "regression"
    assert catalog.page_of(catalog.info("tiny-mhsa")) == "heads"
    with pytest.raises(RequestError, match="the page Regression shows"):
        catalog.need_text("two")


def test_without_models_it_says_where_they_come_from(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path / "none")
    with refused("aotlens train regression-5d-mhsa", error=RequestError):
        Regressions(Core.start(Settings(device="cpu"))).asked_of(State())
