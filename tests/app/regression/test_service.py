"""The In-context regression page without a browser: choices, the library's numbers on them, maps and files."""

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
from aotlens.views.regression import ERRORS, LAYERS, MOTIFS, SUPPORT, VIEWS, WITHOUT, of_task
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.regression import maps
from app.pages.regression.address import ADDRESS, RegressionState
from app.pages.regression.service import Regressions, position_names
from app.shell.views import table
from tests.messages import refused, says

State = RegressionState
#: A state of the first model that reads three numbers.
THREE: Any = partial(RegressionState, checkpoint="three-mhsa")


@pytest.fixture(scope="module")
def service(regression_core: Core) -> Regressions:
    return Regressions(regression_core)


def test_errors_are_the_librarys_on_the_task_that_sliders_say(service: Regressions, regression_core: Core) -> None:
    chosen = service.chosen(THREE(dims=2, nonzero=1, noise=0.25, scale=1.5, mean=-0.5, skew=2.0, seed=4))
    assert chosen.models == ("three-mhsa", "three-mssa") and chosen.checkpoint == "three-mhsa" and chosen.d == 3
    task = RegressionTask(
        d=3, n_dims=2, n_nonzero=1, noise_std=0.25, input_scale=1.5, input_mean=-0.5, input_skew=2.0
    )  # fmt: skip
    found = service.workshop.result(ERRORS, chosen)
    results = {each.name: each for each in found.errors}
    assert list(results) == ["three-mhsa", "three-mssa", "least squares", "averaging", "3 nearest", "ridge", "Bayes"]
    model = regression_core.catalog.load("three-mssa").model
    np.testing.assert_allclose(
        results["three-mssa"].errors, regression_errors(model, task, n_prompts=320, seed=4).errors
    )
    averaging = baseline_errors("averaging", task, n_prompts=320, n_points=7, seed=4)
    np.testing.assert_array_equal(results["averaging"].errors, averaging.errors)
    says(ERRORS.caption(chosen, found), f"three-mssa {results['three-mssa'].mean[6]:.3f}")
    says(of_task(chosen), "2 coordinates", "of the 3")
    lines = {trace.name: trace for trace in ERRORS.figure(chosen, found).data}
    np.testing.assert_allclose(lines["three-mssa"].y, results["three-mssa"].mean)
    again = service.workshop.result(ERRORS, service.chosen(THREE(models=("three-mssa",), dims=2, nonzero=1, noise=0.25,
                                                                 scale=1.5, mean=-0.5, skew=2.0, seed=4)))  # fmt: skip
    assert again.errors[0] is results["three-mssa"], "made once, whatever stands beside it"


def test_a_choice_is_met_as_far_as_it_can_be(service: Regressions) -> None:
    assert service.by_width() == {2: ("two",), 3: ("three-mhsa", "three-mssa")}
    state = THREE(models=("three-mssa",), dims=3, nonzero=3)
    chosen = service.chosen(state, 3)
    assert chosen.models == ("three-mssa",) and chosen.checkpoint == "three-mhsa"
    assert (chosen.dims, chosen.nonzero) == (None, None)
    assert chosen.points == {"three-mssa": 7, "three-mhsa": 7}
    other = service.chosen(state, 2)
    assert (other.models, other.checkpoint, other.d) == (("two",), "two", 2)
    assert service.chosen(State(checkpoint="two")).models == service.chosen(State()).models == ("two",)
    assert service.chosen(THREE(dims=2, nonzero=2)).nonzero is None, "all that are left count"
    with refused("address could say", "3.5", error=ValueError):
        service.values({"checkpoint": "three-mhsa", "noise": 3.5})


def test_a_prompt_is_one_of_those_that_are_measured(service: Regressions, regression_core: Core) -> None:
    chosen = service.chosen(THREE(skew=1.0, seed=2))
    result = service.prompt(chosen, 5)
    assert (
        result.patterns.str_tokens
        == position_names(13)
        == tuple(["x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4", "x5", "y5", "x6", "y6", "x7"])
    )
    model = regression_core.catalog.load("three-mhsa").model
    tokens = chosen.task.run().sample(32, 7, 2).tokens[5]
    np.testing.assert_array_equal(result.patterns.pattern, attention_patterns(model, tokens).pattern)
    assert service.prompt(chosen, 5) is result and service.prompt(chosen, 6).key != result.key
    prompts = service.prompts(chosen)
    measured = service.workshop.result(ERRORS, chosen).errors[0]
    error = float(result.logits[12, 0] - prompts.labels[5, 6]) ** 2 / measured.task.zero_error
    assert error == pytest.approx(measured.errors[5, 6], rel=1e-3)
    said = maps.caption(result, prompts, 5, (1, 2), 12)
    best = int(result.patterns.pattern[1, 2, 12].argmax())
    says(said, "at x7", "6 examples", f"the model says {float(result.logits[12, 0]):+.3f}")
    assert f"head 1.2 attends to {result.patterns.str_tokens[best]}" in said
    assert "nothing is asked there" in maps.caption(result, prompts, 5, (1, 2), 3)


def test_heads_are_left_out_one_by_one(service: Regressions, regression_core: Core) -> None:
    chosen = service.chosen(THREE(noise=0.5, how="zero"))
    prompts = chosen.task.run().sample(128, 7, 0)
    model = regression_core.catalog.load("three-mhsa").model
    expected = ablate_each(model, prompts.tokens, "zero", targets=prompts.targets)
    result = service.workshop.result(WITHOUT, chosen)
    np.testing.assert_allclose(result.changes, expected.changes, atol=1e-5)
    shown = {
        name: y
        for trace in WITHOUT.figure(chosen, result, "dark").data
        for name, y in zip(trace.text, trace.y, strict=True)
    }
    assert shown == pytest.approx(
        {f"{layer}.{head}": change for (layer, head), change in zip(result.heads, result.changes, strict=True)}
    )
    says(WITHOUT.caption(chosen, result), "ablated by zero")


def test_motifs_and_the_support(service: Regressions) -> None:
    chosen = service.chosen(THREE())
    scores = service.workshop.result(MOTIFS, chosen)
    assert np.array(MOTIFS.figure(chosen, scores).data[0].z).shape == (6, 5)
    best = scores.best("own_input")
    assert best is not None
    says(MOTIFS.caption(chosen, scores), f"own input {best[0][0]}.{best[0][1]} {best[1]:.2f}")
    with refused("Nonzero weights", error=RequestError):
        service.workshop.result(SUPPORT, chosen)
    sparse = service.chosen(THREE(nonzero=1))
    says(SUPPORT.caption(sparse, service.workshop.result(SUPPORT, sparse)), "of 6 heads", "256")


def test_files_hold_what_is_shown(service: Regressions) -> None:
    shown = {"checkpoint": "three-mhsa", "nonzero": 1, "dims": 2}
    chosen = service.values(shown)

    def read(file: Any) -> pd.DataFrame:
        assert file.name.startswith("regression-") and "d2-nonzero1-seed0" in file.name
        return pd.read_csv(io.BytesIO(file.content))

    errors = read(table(service.workshop, ERRORS, chosen))
    assert set(errors.name) == {"three-mhsa", "three-mssa", "least squares", "averaging", "3 nearest"}
    entries = read(maps.make_file(service, shown, [1, 0], "3")).set_index(["query", "key"])
    assert len(entries) == 13 * 14 // 2
    pattern = service.prompt(chosen, 3).patterns.pattern
    assert entries.attention["x3", "y1"] == pytest.approx(pattern[1, 0, 4, 1], rel=1e-5)
    rows = {view: len(read(table(service.workshop, view, chosen))) for view in VIEWS[1:]}
    assert rows == {LAYERS: 3, WITHOUT: 6, MOTIFS: 30, SUPPORT: 6}
    with pytest.raises(RequestError, match="nothing to save"):
        maps.make_file(service, None, [0, 0], "0")


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
        Regressions(Core.start(Settings(device="cpu"))).chosen(State())
