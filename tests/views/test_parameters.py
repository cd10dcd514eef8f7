"""Parameters declared as dataclasses: each kind parses what it writes, and limits are refused or clipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from aotlens.checkpoints import CheckpointInfo
from aotlens.conventions import Head
from aotlens.views import Family, Limit, OfCheckpoint, call
from aotlens.views import parameters as declare
from aotlens.views.kinds import NumberParameter, OptionParameter
from aotlens.views.parameters import key_of
from aotlens.views.view import View
from tests.messages import refused


@dataclass(frozen=True, kw_only=True)
class EveryKind(OfCheckpoint):
    how: str = declare.choice({"mean": "mean", "zero": "zero"}, label="How")
    note: str = declare.text("a", label="Note", most=3)
    keep: float = declare.real(0.5, 0.0, 1.0, step=0.1, label="Keep")
    layer: int = declare.whole(0, most=99, label="Layer")
    position: int | None = declare.whole(None, most=99, label="Position", blank="the last")
    biases: bool = declare.flag("Biases", word="with")
    head: Head = declare.head("Head")
    other: Head | None = declare.head("Other head", blank="the same")
    ablated: tuple[Head, ...] = declare.head("Ablated", several=2, blank="none")
    block: tuple[int, int] | None = declare.pair("Block", blank="the largest")
    side: str | None = declare.option("Side", blank="the first")
    line: int | str | None = declare.row("Line", blank="the largest")
    lines: tuple[int | str, ...] = declare.row("Lines", several=3, blank="the largest", key="rows", page_only=True)
    x: tuple[float, ...] | None = declare.reals(most=2, label="x", blank="0")
    n_tokens: int = 7

    def limits(self) -> Mapping[str, Limit]:
        return {"layer": Limit(most=self.head[0]), "side": Limit(options={"left": "left", "right": "right"})}


VIEW = View(
    name="keep", title="", about="", call=lambda params: call("f"), caption=lambda params, result: "",
    file=lambda params: "",
)  # fmt: skip
FAMILY = Family("kinds", "Which?", (VIEW,), EveryKind, reads=lambda info: True)
CARD = CheckpointInfo(name="built", model={"n_layers": 3, "n_heads": 2})


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("how", "zero", "zero"), ("note", "abc", "abc"), ("keep", "0.3", 0.3), ("layer", "2", 2),
        ("position", "", None), ("position", "4", 4), ("biases", "with", True), ("biases", "", False),
        ("head", "2.1", (2, 1)),
        ("other", "", None), ("other", "1.0", (1, 0)), ("ablated", "1.0,0.1", ((0, 1), (1, 0))), ("ablated", "", ()),
        ("block", "7.9", (7, 9)), ("side", "left", "left"), ("line", "12", 12), ("line", " the", " the"),
        ("lines", "4-7", (4, 7)), ("x", "0.5,-1", (0.5, -1.0)),
    ],
)  # fmt: skip
def test_each_kind_parses_text_and_its_own_type(name: str, written: str, value: Any):
    kind = FAMILY.fields[name]
    assert kind.parse(name, written) == value == kind.parse(name, value)
    assert kind.parse(name, kind.written(value)) == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("how", "none", "how: expected one of mean, zero"), ("note", "abcd", "at most 3 characters, got 4"),
        ("note", "", "note: expected a text"), ("keep", 1.5, "a number from 0 to 1, got 1.5"),
        ("layer", "x", "a whole number from 0 to 99, got 'x'"), ("layer", None, "layer: expected a whole number"),
        ("biases", "without", "biases: expected with or nothing"), ("head", "2", "expected a layer and a head"),
        ("head", "", "head: expected a layer and a head"), ("head", "3.0", "head 3.0: this model has layers 0 to 2"),
        ("ablated", "0.0,0.1,1.0", "at most 2 heads, got 3"), ("ablated", "0.2", "head 0.2"),
        ("block", "7", "two whole numbers, as 1.3"), ("side", 5, "side: expected a text"),
        ("side", "top", "side: expected one of left, right, got 'top'"), ("lines", "1-2-3-4", "expected a number or"),
        ("x", "1,2,3", "at most 2 numbers"), ("x", "1,,2", "x: expected a number such as"),
        ("layer", 1, "layer: expected at most 0, got '1'"), ("n_tokens", 9, "there is no parameter n_tokens"),
    ],
)  # fmt: skip
def test_invalid_values_and_those_beyond_a_limit_are_refused(name: str, value: Any, said: str):
    with refused(said):
        FAMILY.parse(CARD, **{name: value})


def test_defaults_facts_and_pages_own_parameters():
    params = FAMILY.parse(CARD)
    assert (params.checkpoint, params.model, params.n_tokens) == ("built", CARD.model, 7)
    assert (params.head, params.other, params.ablated, params.lines, params.biases) == ((0, 0), None, (), (), False)
    assert "lines" in FAMILY.fields and "lines" not in FAMILY.parameters and "n_tokens" not in FAMILY.fields
    assert (key_of(EveryKind, "lines"), key_of(EveryKind, "line")) == ("rows", None)


def test_a_page_clips_what_a_command_refuses():
    values = FAMILY.typed({"head": "2.0", "layer": 9, "side": "top", "ablated": "0.1,9.9"})
    params, expected = EveryKind.of_infos(CARD, **values).fitted()
    assert (params.layer, params.side, params.ablated, params.head) == (2, None, ((0, 1),), (2, 0))
    assert set(expected) == {"layer", "side", "ablated"} and expected["layer"] == "at most 2"
    beyond, expected = EveryKind.of_infos(CARD, head=(5, 0), layer=4).fitted()
    assert (beyond.head, beyond.layer) == ((0, 0), 0), "a limit follows a value that was clipped"


def test_a_whole_number_is_one_and_nan_is_none() -> None:
    parameter = NumberParameter("Runs", 1, least=0, most=9)
    assert type(parameter.parse("runs", 3.0)) is int
    for wrong in (float("nan"), 3.5, float("inf")):
        with refused("runs: expected a whole number from 0 to 9", repr(wrong)):
            parameter.parse("runs", wrong)


def test_several_options_are_distinct_names() -> None:
    given = OptionParameter("Distillations", (), several=2)
    assert given.parse("it", "b,a,b,") == ("b", "a") == given.parse("it", given.written(("b", "a")))
    assert given.parse("it", None) == given.parse("it", []) == ()
    for value, said in (("a,b,c", "at most 2 names, got 3"), (7, "names with commas"), ([1], "names with commas")):
        with refused(f"it: expected {said}"):
            given.parse("it", value)
    limit = Limit(options={"a": "A"}, rest=("a",))
    assert limit.nearest(given, ("b", "a")) == ("a",) and limit.nearest(given, ()) == ()
