"""Views of skip-trigrams without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aotlens.checkpoints import find_checkpoint
from aotlens.conventions import minus
from aotlens.data.windows import WINDOWS_A_STRATUM
from aotlens.trigrams.explained import in_text, in_weights
from aotlens.trigrams.table import KINDS
from aotlens.trigrams.verdict import FALSE_DISCOVERY_RATE, MIN_OCCURRENCES, MIN_STRATA, VERDICTS
from aotlens.views import View, make, trigram_parameters
from aotlens.views.kinds import Reading
from aotlens.views.trigram_parameters import TrigramsParameters
from aotlens.views.trigrams import (
    BUGS,
    BY_HEAD,
    BY_KIND,
    CHECK,
    EXAMPLES,
    FAMILY,
    ONE,
    PATH,
    ROWS,
    RULES,
    ZERO_LAYER,
    says_choice,
)
from tests.messages import refused, says
from tests.views.executed import same_by_python

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

NAME = "novels-1l-mhsa"
NOVELS = Reading(text=make("aotlens.data.open_corpus", "novels"), about="five novels", held_out=True)


def parsed(**changes: Any) -> TrigramsParameters:
    usual = {"head": "0.6", "least": 20_000, "k": 30, "corpus": NOVELS, "tokens": 4000, "row": 3, "after": "the"}
    return FAMILY.parse(NAME, **{**usual, "own": "with", **changes})


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are made of few triples."""
    monkeypatch.setattr(trigram_parameters, "DEPTH", 300)


@pytest.mark.parametrize(
    ("view", "changes"),
    [
        (ROWS, {"source": "t", "out": "=·the", "within": "all", "score": "sum", "end": "bottom", "distance": "mean"}),
        (ROWS, {"source": "t", "kind": "other", "verdict": "too rare"}),
        *((view, {}) for view in (ONE, EXAMPLES, BY_KIND, BUGS, CHECK, BY_HEAD, PATH, ZERO_LAYER)),
        (BY_HEAD, {"corpus": None}),
        (PATH, {"corpus": None, "own": "", "after": ""}),
    ],
    ids=lambda one: one.name if isinstance(one, View) else "",
)
def test_its_python_gives_its_result_table_and_figure(view: View, changes: dict[str, Any]) -> None:
    params = parsed(**changes)
    result = same_by_python(view, params)
    assert view.file(params).startswith(NAME) and view.caption(params, result)
    assert view.cost(params) >= 0


def test_rows_are_counted_with_their_verdicts() -> None:
    params, bare = parsed(), parsed(corpus=None)
    checked = CHECK.result(params)
    n = checked.evidence.n_testable
    says(ROWS.caption(params, checked), "30 rows, with which", f"Of 30 rows the text decides {n}: ", "\nExact: ")
    says(BY_KIND.caption(params, checked), "whole documents", f"{checked.evidence.n_tokens:,} tokens of five novels")
    says(ROWS.caption(bare, ROWS.result(bare)), "the source or the destination")
    filtered = parsed(corpus=None, verdict="confirmed", source="the")
    says(ROWS.caption(filtered, ROWS.result(filtered)), "0 of 30 rows match", "No row has a verdict before")
    says(CHECK.before(params), "first 4,000 tokens of five novels")
    deep = FAMILY.parse("novels-2l-mhsa", head="1.0", k=5, fold="none")
    says(ROWS.caption(deep, ROWS.result(deep)), "5 rows.", "\nRelative: compare rows with each other.")


def test_the_words_of_the_page_are_the_librarys_rules() -> None:
    says(CHECK.about, f"stretches of {WINDOWS_A_STRATUM} windows", f"rate of {FALSE_DISCOVERY_RATE:.0%}")
    says(CHECK.about, f"fewer than {MIN_OCCURRENCES} places", f"fewer than {MIN_STRATA} such stretches")
    assert trigram_parameters.VERDICTS == VERDICTS and trigram_parameters.KINDS == KINDS == tuple(RULES)


def test_a_row_is_explained_with_its_numbers() -> None:
    row = ONE.result(parsed(row=1)).row
    table, held = row.rows.table, row.rows.evidence
    said = " ".join(in_weights(row))
    says(
        said,
        f"{abs(table.qk[0]):.2f} nats",
        f"{table.attention[0]:.2%}",
        f"{minus(table.effect[0], '+.3g')} logits",
        "Kind: ",
    )
    said = " ".join(in_text(row, "five novels"))
    says(said, f"occurs {held.counts.pair[0]:,} time", f"Verdict: {held.verdict[0]}", f"{held.attention[0]:.2%}")
    says(said, "With whole documents as stretches")
    rare = ONE.result(parsed(least=0, fold="none", row=1, head="0.4")).row
    assert rare.rows.evidence.counts.pair[0] == 0
    says(in_text(rare, "x")[0], "never comes before", "too rare to say")
    suppressed = parsed(end="bottom", row=1, corpus=None)
    says(ONE.caption(suppressed, ONE.result(suppressed)), "lowers the logit", "In text: not checked yet.")


def test_a_search_is_described() -> None:
    says(says_choice(parsed(out="x", within="all")), "predicted token contains ‹x›", "at least 20,000")
    says(says_choice(parsed(out="x")), "Among the 300 highest of the triples whose tokens")
    says(says_choice(parsed(end="bottom", fold="none")), "suppresses", "The 30 lowest")
    uncounted = replace(parsed(), info=replace(find_checkpoint(NAME), has_counts=False))
    says(says_choice(uncounted), "no token is left out")
    assert uncounted.search["background"] == "uniform" and "min_count" not in uncounted.search
    says(PATH.caption(parsed(), PATH.result(parsed())), "entries of the tokens searched for", "with what")


def test_what_the_model_does_not_have_is_refused() -> None:
    for given, expected in (({"distance": "129"}, "from 1 to 128 tokens, or mean"), ({"row": 31}, "at most 30")):
        with refused(expected):
            parsed(**given)
    assert find_checkpoint(NAME).has_counts and parsed(distance="64").search["distance"] == 64
    rotary = FAMILY.parse("novels-2l-rotary")
    assert "mean" not in rotary.limits()["distance"].options
    with refused("another kind"):
        FAMILY.parse("regression-5d-mhsa")


def test_what_is_missing_is_said() -> None:
    with refused("no text", "upload or paste"):
        CHECK.result(parsed(corpus=None))
    for view in (BUGS, EXAMPLES):
        with refused("not been checked"):
            view.result(replace(parsed(), checked=False))
    large = {"d_vocab": 50_257, "d_model": 768, "n_heads": 12}
    assert (
        ROWS.cost(replace(parsed(), model=large))
        > 2e11
        > ROWS.cost(replace(parsed(), model={**large, "d_vocab": 4096}))
    )


def test_a_check_that_comes_with_aotlens_needs_no_run() -> None:
    params = FAMILY.parse(NAME, head="0.6", corpus="novels")
    assert params.stored and "stored_check" in params.rows.source
    assert "stored_check" in replace(params, checked=False).rows.source, "on a page it is not run first"
    for other in ({"k": 499}, {"tokens": 200_000}, {"head": "0.5"}, {"end": "bottom"}, {"corpus": "stdlib"}):
        assert not FAMILY.parse(NAME, **{"head": "0.6", "corpus": "novels", **other}).stored
    other = replace(find_checkpoint(NAME), weights_sha256="0" * 64)
    assert not replace(params, info=other).stored
