"""Views of skip-trigrams without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from aotlens.checkpoints import find_checkpoint
from aotlens.views import View, make
from aotlens.views.trigram_captions import RULES, in_text, in_weights, rule, says_choice, says_own_heads
from aotlens.views.trigram_choice import Reading, TrigramsParameters
from aotlens.views.trigrams import (
    BY_HEAD,
    CHECK,
    DECIDABLE,
    FORCED,
    KINDS,
    ONE,
    PATH,
    ROWS,
    ZERO_LAYER,
)
from tests.messages import refused, says

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

NAME = "novels-1l-mhsa"
NOVELS = Reading(text=make("aotlens.data.open_corpus", "novels"), about="five novels", tokens=4000, held_out=True)
CHOSEN = TrigramsParameters(
    checkpoint=NAME, head=(0, 6), least=20_000, k=30, depth=300, over=("source", "destination"), reading=NOVELS,
    row=3, own=True, after="the",
)  # fmt: skip
CHECKED = replace(CHOSEN, checked=True)


@pytest.mark.parametrize(
    ("view", "chosen"),
    [
        (ROWS, replace(CHOSEN, source="t", out="=·the", score="sum", largest=False, distance="mean")),
        *((view, CHECKED) for view in (ONE, KINDS, FORCED, BY_HEAD, PATH, ZERO_LAYER)),
        (BY_HEAD, replace(CHOSEN, reading=None)),
        (PATH, replace(CHOSEN, reading=None, own=False, after="")),
    ],
    ids=lambda one: one.name if isinstance(one, View) else "",
)
def test_its_python_gives_its_result_table_and_figure(view: View, chosen: TrigramsParameters) -> None:
    chosen = replace(chosen, model=find_checkpoint(NAME).model)
    result = view.result(chosen)
    space: dict[str, object] = {}
    exec(view.python(chosen), space)
    pd.testing.assert_frame_equal(space["table"], view.frame(result))
    if view.pictured:
        assert space["figure"].to_json() == view.figure(chosen, result).to_json()
    assert view.file(chosen).startswith(NAME) and view.caption(chosen, result)
    assert view.cost(chosen) >= 0


def test_the_text_says_what_it_decides_before_the_model_is_run() -> None:
    before, after = DECIDABLE.result(CHOSEN), CHECK.result(CHOSEN)
    assert before.evidence.verdict == after.evidence.verdict
    n = after.evidence.n_testable
    says(DECIDABLE.caption(CHOSEN, before), f"decide {n} of the 30 rows", "five novels")
    says(ROWS.caption(CHECKED, after), f"Of 30 rows the text decides {n}: ", "the source or the destination")
    says(KINDS.caption(CHECKED, after), "whole documents", f"{after.evidence.n_tokens:,} tokens of five novels")


def test_a_row_is_said_with_its_numbers() -> None:
    row = ONE.result(replace(CHECKED, row=1))
    table, held = row.rows.table, row.rows.evidence
    said = " ".join(in_weights(row))
    says(said, f"{abs(table.qk[0]):.2f} nats", f"{table.attention[0]:.2%}", f"{table.effect[0]:+.3g} logits", "Kind: ")
    said = " ".join(in_text(row, "five novels"))
    says(said, f"occurs {held.counts.pair[0]:,} time", f"Verdict: {held.verdict[0]}", f"{held.attention[0]:.2%}")
    says(said, "With whole documents as stretches")
    rare = ONE.result(replace(CHECKED, least=0, over=(), row=1, head=(0, 4)))
    assert rare.rows.evidence.counts.pair[0] == 0
    says(in_text(rare, "x")[0], "never comes before", "too rare to say")
    assert "lowers the logit" in in_weights(ONE.result(replace(CHOSEN, largest=False, row=1)))[0]


def test_a_choice_is_said() -> None:
    says(says_choice(replace(CHOSEN, out="x"), 20_000, 10**6), "predicted token contains ‹x›", "at least 20,000")
    says(says_choice(replace(CHOSEN, largest=False, over=()), 0, 1), "suppresses", "The 30 lowest")
    says(says_choice(replace(CHOSEN, counted=False), 5, 0), "no token is left out")
    says(says_choice(replace(CHOSEN, least=0), 9999, 300), "No token", "9,999 times")
    assert all(word in rule() for word in ("confirmed", "too rare", "10", "5%")) and len(RULES) == 5
    path = PATH.result(replace(CHOSEN, own=False))
    says(says_own_heads([(0, 1), (0, 7)], path), "Heads 0.1 and 0.7 attend to")
    assert says_own_heads([(0, 1)], PATH.result(CHOSEN)) == ""


def test_what_is_missing_is_said() -> None:
    with refused("no text", "choose or paste"):
        CHECK.result(replace(CHOSEN, reading=None))
    with refused("not been checked"):
        FORCED.result(CHOSEN)
    for view in (ROWS, ONE, CHECK, FORCED):
        with refused("broken"):
            view.result(replace(CHECKED, problem="broken"))
    large = {"d_vocab": 50_257, "d_model": 768, "n_heads": 12}
    assert ROWS.cost(replace(CHOSEN, model=large)) > 2e11 > ROWS.cost(replace(CHOSEN, model={**large, "d_vocab": 4096}))
