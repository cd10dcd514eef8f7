"""Calls as values: what is run is what is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlens
from aotlens.data import RegressionTask
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views import Load, Workshop, call, make


def prompts(seed: int) -> Any:
    task = make("aotlens.data.RegressionTask", d=3, noise_std=0.5).named("task")
    return task.method("sample", 4, 5, seed).named("prompts")


def executed(lines: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(lines, space)
    return space


def test_what_is_printed_gives_what_is_run():
    node = prompts(2).part("tokens").item((0, 1))
    lines = node.python("double = 2 * result")
    assert lines.splitlines()[2:] == [
        "task = aotlens.data.RegressionTask(d=3, noise_std=0.5)", "prompts = task.sample(4, 5, 2)",
        "result = prompts.tokens[0, 1]", "double = 2 * result",
    ]  # fmt: skip
    expected = RegressionTask(d=3, noise_std=0.5).sample(4, 5, 2).tokens[0, 1]
    space = executed(lines)
    np.testing.assert_array_equal(node.run(), expected)
    np.testing.assert_array_equal(space["result"], expected)
    np.testing.assert_array_equal(space["double"], 2 * expected)
    assert eval(node.source, {"aotlens": aotlens}).tolist() == expected.tolist(), "one expression"


def test_long_calls_have_an_argument_a_line_and_still_run():
    errors = [
        call("aotlens.denoise.regression.baseline_errors", name, make("aotlens.data.RegressionTask", d=2).named("task"),
             n_prompts=20, seed=1, n_points=4)
        for name in ("least squares", "averaging", "3 nearest")
    ]  # fmt: skip
    node = make("aotlens.denoise.regression.RegressionComparison", errors)
    lines = node.python()
    assert max(map(len, lines.splitlines())) <= 130 and lines.count("RegressionTask(d=2)") == 1
    np.testing.assert_array_equal(executed(lines)["result"].errors[1].errors, node.run().errors[1].errors)


def test_two_are_equal_where_they_are_written_alike():
    assert prompts(1) == prompts(1) != prompts(2)
    assert len({prompts(1), prompts(1), prompts(2)}) == 2
    assert make("aotlens.data.RegressionTask", d=3) != "aotlens.data.RegressionTask(d=3)"


def test_a_workshop_loads_keeps_and_hands_out():
    ends: Any = {"read_in": "vectors", "d_in": 3, "read_out": "vectors", "d_out": 1}
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=12, n_heads=2, d_head=6, n_ctx=9, seed=2, **ends))
    used: list[Any] = []

    class Noting(Workshop):
        def load(self, checkpoint: str) -> Any:
            used.append(("load", checkpoint))
            return model

        def call(self, node: Any, work: Any) -> Any:
            used.append(("call", node.function, node.models))
            return work()

        def use(self, models: Any, function: Any) -> Any:
            used.append(("use", tuple(models)))
            return function()

    node = call("aotlens.evaluate.regression_errors", Load("three"), make("aotlens.data.RegressionTask", d=3),
                n_prompts=4)  # fmt: skip
    found = node.run(Noting())
    assert used == [
        ("call", "aotlens.evaluate.regression_errors", ("three",)), ("load", "three"), ("use", ()), ("use", ("three",)),
    ]  # fmt: skip
    expected = aotlens.evaluate.regression_errors(model, RegressionTask(d=3), n_prompts=4)
    np.testing.assert_array_equal(found.errors, expected.errors)


@pytest.mark.parametrize("models", [("one",), ("one", "two")])
def test_a_model_has_a_name_where_there_is_one(models):
    tasks = make("aotlens.data.RegressionTask", d=3)
    node = make("aotlens.denoise.regression.RegressionComparison",
                [call("aotlens.evaluate.regression_errors", Load(name), tasks) for name in models])  # fmt: skip
    assert ("model = aotlens.load('one')" in node.python()) == (len(models) == 1)
    assert node.models == models


def test_what_opens_a_file_is_run_and_its_own_name_printed() -> None:
    opened = call("aotlens.distill.load_record", "mine.safetensors").opened_by(lambda: {"a": 1}, 7)
    assert opened.item("a").run() == 1 and opened.stamps == (7,)
    assert (
        opened.item("a").python() == "import aotlens\n\nresult = aotlens.distill.load_record('mine.safetensors')['a']\n"
    )
