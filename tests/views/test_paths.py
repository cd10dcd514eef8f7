"""Views of a logit and of a score without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from aotlens.checkpoints import load
from aotlens.paths import effect_without, expand
from aotlens.views import View
from aotlens.views.paths import FLOW, HEADS, ORDERS, SOURCES, TOP, WITHOUT, PathsParameters, summary
from aotlens.views.scores import BY_HEADS, BY_ORDERS, BY_SOURCES, PAIRS, SCORE, TRACE, ScoreParameters
from tests.messages import says

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

TEXT = "The captain bowed"
CHOSEN = PathsParameters(
    checkpoint="novels-2l-mhsa", text=TEXT, position=2, target=11, versus=7, k=6, through="1.0", by="neg",
    without="token@2-0.1-1.0",
)  # fmt: skip
OF_SCORE = ScoreParameters(checkpoint="novels-2l-mhsa", text=TEXT, head=(1, 2), query=3, key=2, against=1)


@pytest.mark.parametrize(
    ("view", "chosen"),
    [
        *((view, CHOSEN) for view in (SOURCES, ORDERS, TOP, HEADS, FLOW, WITHOUT)),
        *((view, OF_SCORE) for view in (SCORE, PAIRS, TRACE, BY_HEADS, BY_SOURCES, BY_ORDERS)),
    ],
    ids=lambda one: one.name if isinstance(one, View) else "",
)
def test_its_python_gives_its_result_table_and_figure(view: View, chosen: PathsParameters | ScoreParameters) -> None:
    result = view.result(chosen)
    space: dict[str, object] = {}
    exec(view.python(chosen), space)
    pd.testing.assert_frame_equal(space["table"], view.frame(result))
    if view.pictured:
        assert space["figure"].to_json() == view.figure(chosen, result).to_json()
    assert view.file(chosen).startswith("novels-2l-mhsa-") and view.caption(chosen, result)


def test_captions_say_what_is_proven_and_what_is_left() -> None:
    top = TOP.result(CHOSEN)
    says(TOP.caption(CHOSEN, top), "Exact top", "through head 1.0 (", "against it", f"{top.bound:.3f}")
    few = replace(CHOSEN, text="a", position=1, k=2000, through=None)
    assert "these are all paths there are" in TOP.caption(few, TOP.result(few))
    model = load("novels-2l-mhsa")
    logits = model(TEXT)[0, 2]
    says(summary(SOURCES.result(CHOSEN)), '" captain" at position 2', f"{abs(float(logits[11] - logits[7])):.3f}")
    says(PAIRS.caption(OF_SCORE, PAIRS.result(OF_SCORE)), "Exact top", "all together")
    assert ORDERS.caption(CHOSEN, ORDERS.result(CHOSEN)).startswith("300 paths in all: token + position + bias")


def test_nothing_is_taken_away_before_something_is_chosen() -> None:
    with pytest.raises(ValueError, match="Click “without”"):
        WITHOUT.result(replace(CHOSEN, without=None))
    head = replace(CHOSEN, without="1.0")
    assert WITHOUT.result(head).without == "head 1.0" and "effect_without(expansion, '1.0', 2" in WITHOUT.python(head)


def test_what_runs_a_model_behind_its_arguments_has_it_to_itself() -> None:
    assert WITHOUT.call(CHOSEN).runs and OF_SCORE.score.runs and OF_SCORE.trace.runs
    assert not TOP.call(CHOSEN).runs and not PAIRS.call(OF_SCORE).runs


def test_where_the_model_moves_the_other_way_it_is_said():
    model = load("novels-2l-mhsa", device="cpu")
    chosen = PathsParameters(checkpoint="novels-2l-mhsa", text="Mr. Darnay bowed to Mr. Dar", position=13, target=0)
    expansion = expand(model, chosen.text)
    at = len(expansion.tokens) - 1
    target = int(expansion.frozen.logits[at].argmax())
    seen = set()
    for path in expansion.top(20, at, target).paths:
        effect = effect_without(expansion, path, at, target)
        forward, linear = effect.forward[0] - effect.clean[0], effect.linear[0] - effect.clean[0]
        assert effect.reversed == (forward * linear < 0 and min(abs(forward), abs(linear)) >= 0.005)
        assert ("all the same" in WITHOUT.caption(chosen, effect)) == effect.reversed
        seen.add(effect.reversed)
    assert seen == {True, False}
