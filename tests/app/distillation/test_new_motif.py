"""A motif is added in one place, `aotlens.heads.MOTIFS`, and is everywhere: scores, command, Heads, Distillation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from aotlens.views.distillation import ATTENTION, TABLE
from app.core.errors import RequestError
from app.pages.distillation import PAGE, table
from app.pages.heads.callbacks import motif_labels
from app.shell.view_service import Views
from tests.messages import refused, says

NAME = "up_to_here"
SENTENCE = "It attends up to here."


@pytest.fixture(scope="module", autouse=True)
def motif() -> Iterator[None]:
    """Before anything is measured: all attention of a query, which is 1 for every head, as a score of the pattern. (As
    keys it would be no label: uniform attention has all of it too.)"""
    from aotlens.heads import MOTIFS, Motif

    def score(pattern: torch.Tensor) -> torch.Tensor:
        return pattern.sum(-1).mean(-1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MOTIFS, NAME, Motif(name=NAME, badge="upto", sentence=SENTENCE, score=score))
        yield


def test_it_is_in_the_scores_and_a_badge_of_the_heads_page(distilled: Views) -> None:
    from aotlens.heads import motif_scores

    scores = motif_scores(distilled.core.catalog.load("tiny-mhsa").model, n_sequences=2)
    np.testing.assert_allclose(scores[NAME], 1, atol=1e-5)
    shown = motif_labels(distilled.core.inference.motifs("tiny-mhsa"), distilled.core.inference.labels("tiny-mhsa"))
    assert set(shown["badges"].values()) == {"upto"}
    says(shown["says"]["0.0"], "upto", "1.00", SENTENCE[:-1])
    assert shown["scores"][NAME]["0.0"] == pytest.approx(1, abs=1e-5)


def test_it_is_on_the_distillation_page(distilled: Views) -> None:
    params = distilled.values({"results": ["tiny-mhsa"], "across": NAME, "width": 4})
    assert params.motif == NAME and params.limits()["across"].options[NAME] == "up to here"
    compared = distilled.workshop.result(TABLE, params)
    found = compared.records["tiny-mhsa"].distillation
    np.testing.assert_allclose(compared.to_frame()[NAME], found.attending.to(NAME))
    np.testing.assert_allclose(found.attending.to(NAME), 1, atol=1e-5)
    assert set(compared.to_frame().attends) == {"up to here"}
    (listed,) = table(params, compared)
    (place,) = [k for k, column in enumerate(listed["columns"]) if column["title"] == "up to here"]
    assert SENTENCE in listed["columns"][place]["help"] and {row[place] for row in listed["rows"]} == {"1.00"}
    figure = ATTENTION.figure(params, distilled.workshop.result(ATTENTION, params))
    np.testing.assert_allclose(figure.data[0].x, found.attending.to(NAME), rtol=1e-6)


def test_the_command_prints_it(distilled: Views, capsys: pytest.CaptureFixture[str]) -> None:
    from aotlens.cli import main

    path = Path(str(distilled.core.catalog.info("tiny-mhsa").path))
    with pytest.raises(SystemExit) as end:
        main(["motifs", str(path), "--motif", NAME, "--sequences", "2"])
    out = capsys.readouterr().out
    assert end.value.code in (0, None) and out.splitlines()[2].split() == ["head", "up", "to", "here", "label"]
    assert out.splitlines()[3].split() == ["0.0", "1.000", "up", "to", "here"]


def test_results_measured_without_it_say_so(distilled: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotlens.heads import MOTIFS, Motif
    from aotlens.heads.motifs import offset

    monkeypatch.setitem(MOTIFS, "later", Motif(name="later", badge="late", sentence="It is new.", mask=offset(-3)))
    shown = {"results": ["tiny-mhsa"], "width": 4}
    for motif, parts in {"later": ("later", "made before"), "next_token": ("next token", "no query")}.items():
        with refused("tiny-mhsa", "was not measured", *parts, error=RequestError):
            distilled.workshop.result(ATTENTION, distilled.values({**shown, "across": motif}))
    params = distilled.values(shown)
    assert "later" not in [
        each["title"] for each in table(params, distilled.workshop.result(TABLE, params))[0]["columns"]
    ]
    state, (sentence,) = PAGE.address.read("?checkpoint=tiny-mhsa&across=nowhere", distilled.core)
    assert state.across is None
    says(sentence, "across=nowhere: expected one of first_token")
