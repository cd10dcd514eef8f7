"""Views of a logit and of a score without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from aotlens.checkpoints import load
from aotlens.conventions import percent, signed
from aotlens.paths import effect_without, expand
from aotlens.paths.score.traced import Trace
from aotlens.views import View
from aotlens.views.paths import FAMILY, ORDERS, SOURCES, TOP, WITHOUT, PathsParameters
from aotlens.views.scores import PAIRS, SCORE, TRACE
from tests.messages import says
from tests.views.executed import same_by_python

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

TEXT = "The captain bowed"
CHOSEN = PathsParameters(
    checkpoint="novels-2l-mhsa", text=TEXT, position=2, target=11, versus=7, k=6, through=(1, 0), by="neg",
    without="token@2-0.1-1.0", head=(1, 2), query=3, key=2, against="1",
)  # fmt: skip
#: What is taken where little is named: the model's first choice minus a token, a head and a key by attention.
LITTLE = PathsParameters(checkpoint="novels-2l-mhsa", text=TEXT, versus=" a", without="1.0")


@pytest.mark.parametrize("params", [CHOSEN, LITTLE])
@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
def test_its_python_gives_its_result_table_and_figure(view: View, params: PathsParameters) -> None:
    result = same_by_python(view, params)
    assert view.file(params).startswith("novels-2l-mhsa-") and view.caption(params, result)


def test_captions_say_what_is_proven_and_what_is_left() -> None:
    top = TOP.result(CHOSEN)
    bound = f"{math.ceil(1000 * top.bound) / 1000:.3f}"
    says(TOP.caption(CHOSEN, top), "Exact top", "through head 1.0 (", "against it", bound)
    few = replace(CHOSEN, text="a", position=1, k=2000, through=None)
    assert "these are all paths there are" in TOP.caption(few, TOP.result(few))
    model = load("novels-2l-mhsa")
    logits = model(TEXT)[0, 2]
    says(SOURCES.result(CHOSEN).sentences(), '" captain" at position 2', f"{abs(float(logits[11] - logits[7])):.3f}")
    says(PAIRS.caption(CHOSEN, PAIRS.result(CHOSEN)), "Exact top", "all together")
    assert ORDERS.caption(CHOSEN, ORDERS.result(CHOSEN)).startswith("300 paths in all: token + position + bias")


def test_nothing_is_taken_away_before_something_is_chosen() -> None:
    with pytest.raises(ValueError, match="Click “without”"):
        WITHOUT.result(replace(CHOSEN, without=" "))
    head = replace(CHOSEN, without="1.0")
    assert WITHOUT.result(head).without == "head 1.0" and "effect_without(expansion, '1.0', 2" in WITHOUT.python(head)


def test_what_runs_a_model_behind_its_arguments_has_it_to_itself() -> None:
    assert WITHOUT.call(CHOSEN).runs and CHOSEN.score.runs and CHOSEN.trace.runs
    assert not TOP.call(CHOSEN).runs and not PAIRS.call(CHOSEN).runs


def test_where_the_model_moves_the_other_way_it_is_said():
    model = load("novels-2l-mhsa", device="cpu")
    params = PathsParameters(checkpoint="novels-2l-mhsa", text="Mr. Darnay bowed to Mr. Dar", position=13, target=0)
    expansion = expand(model, params.text)
    at = len(expansion.tokens) - 1
    target = int(expansion.frozen.logits[at].argmax())
    seen = set()
    for path in expansion.top(20, at, target).paths:
        effect = effect_without(expansion, path, at, target)
        forward, linear = effect.forward[0] - effect.clean[0], effect.linear[0] - effect.clean[0]
        assert effect.reversed == (forward * linear < 0 and min(abs(forward), abs(linear)) >= 0.005)
        assert ("all the same" in WITHOUT.caption(params, effect)) == effect.reversed
        seen.add(effect.reversed)
    assert seen == {True, False}


def test_what_is_not_named_is_taken_by_the_model() -> None:
    logits = load("novels-2l-mhsa")(TEXT)[0, -1]
    little = replace(LITTLE, versus=None)
    assert SOURCES.result(little).logit == pytest.approx(float(logits.max()), abs=1e-4)
    assert SOURCES.result(LITTLE).logit < SOURCES.result(little).logit
    score = SCORE.result(little)
    assert score.head[0] == 1 and score.query == 3 and score.key in (1, 2)
    says(SCORE.caption(little, score), f"Head {score.words.cell}", "pairs of paths", "tolerance")
    assert SCORE.result(replace(CHOSEN, against="plain")).against is None
    assert SCORE.result(replace(CHOSEN, against="mean")).against == "mean"


def test_what_cannot_be_is_refused_with_what_can() -> None:
    for name, value, part in (
        ("through", "2.0", "layer"), ("target", 10**5, "0 to 4,095"), ("k", 0, "1 to 200"), ("by", "size", "abs")
    ):  # fmt: skip
        with pytest.raises(ValueError, match=part):
            FAMILY.parse("novels-2l-mhsa", **{name: value})
    for view in (SCORE, PAIRS, TRACE):
        with pytest.raises(ValueError, match="mean, plain or a key's position"):
            view.result(replace(CHOSEN, against="most"))
    with pytest.raises(ValueError, match="position"):
        WITHOUT.result(replace(CHOSEN, without="token@40-0.0"))


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100.0%"), (0.0123, "1.2%"), (0.0032, "0.32%"), (0.00032, "0.032%"), (2e-7, "2e-07")]
)
def test_small_probabilities_can_be_read(share: float, text: str) -> None:
    assert percent(share) == text


def test_nothing_has_no_minus() -> None:
    assert (signed(-0.0004), signed(-0.0006), signed(-0.04, 1)) == ("+0.000", "−0.001", "+0.0")


def test_a_rounding_below_0_has_a_minus_and_one_cell_is_no_cells() -> None:
    result = SOURCES.result(CHOSEN)
    assert "−7.2e−07 logits" in replace(result, by_order=replace(result.by_order, error=-7.2e-7)).sentences()
    one = SimpleNamespace(nodes=[SimpleNamespace(cell=((0, 1), 4, 0))])
    assert Trace.headline.fget(one) == "1 cell behind head 0.1, 4 → 0"
