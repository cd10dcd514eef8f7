"""A motif is added in one place, `aotlens.heads.MOTIFS`, and is everywhere: scores, command, Heads, Distillation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from aotlens.views.distillation import ATTENTION, HEADS
from app.pages.distillation import captions
from app.pages.distillation.address import DistillationState
from app.pages.distillation.service import Distillations
from app.pages.distillation.tables import head_rows
from app.pages.heads.motif_labels import motif_labels
from tests.messages import says

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


def test_it_is_in_the_scores_and_a_badge_of_the_heads_page(distilled: Distillations) -> None:
    from aotlens.heads import motif_scores

    scores = motif_scores(distilled.catalog.load("tiny-mhsa").model, n_sequences=2)
    np.testing.assert_allclose(scores[NAME], 1, atol=1e-5)
    shown = motif_labels(distilled.inference.motifs("tiny-mhsa"), distilled.inference.labels("tiny-mhsa"))
    assert set(shown["badges"].values()) == {"upto"}
    says(shown["says"]["0.0"], "upto", "1.00", SENTENCE[:-1])
    assert shown["scores"][NAME]["0.0"] == pytest.approx(1, abs=1e-5)


def test_it_is_on_the_distillation_page(distilled: Distillations) -> None:
    shown, problems = distilled.describe(DistillationState(across=NAME, width=4))
    assert shown is not None and shown.across == NAME and not [one for one in problems if "motif" in one]
    assert {"value": NAME, "label": "attention: up to here"} in captions.across_options()
    (column,) = [column for column in captions.motif_columns(distilled, shown) if column[0] == NAME]
    assert column[1] == "up to here" and SENTENCE in column[2]
    found, compared = distilled.record("tiny-mhsa").distillation, distilled.workshop.result(HEADS, shown)
    rows = [row for row in head_rows(compared.to_frame()) if row["result"] == "tiny-mhsa"]
    np.testing.assert_allclose([row[NAME] for row in rows], found.attending.to(NAME))
    np.testing.assert_allclose(found.attending.to(NAME), 1, atol=1e-5)
    assert {row["attends"] for row in rows} == {"up to here"}
    figure = ATTENTION.figure(shown, compared)
    np.testing.assert_allclose(figure.data[0].x, found.attending.to(NAME), rtol=1e-6)


def test_the_command_prints_it(distilled: Distillations, capsys: pytest.CaptureFixture[str]) -> None:
    from aotlens.cli import main

    path = Path(str(distilled.catalog.info("tiny-mhsa").path))
    with pytest.raises(SystemExit) as end:
        main(["motifs", str(path), "--motif", NAME, "--sequences", "2"])
    out = capsys.readouterr().out
    assert end.value.code in (0, None) and out.splitlines()[2].split() == ["head", "up", "to", "here", "label"]
    assert out.splitlines()[3].split() == ["0.0", "1.000", "up", "to", "here"]


def test_results_measured_without_it_say_so(distilled: Distillations, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotlens.heads import MOTIFS, Motif
    from aotlens.heads.motifs import offset

    monkeypatch.setitem(MOTIFS, "later", Motif(name="later", badge="late", sentence="It is new.", mask=offset(-3)))
    shown, problems = distilled.describe(DistillationState(across="later", width=4))
    assert shown is not None and shown.across == "later"
    says(" ".join(problems), "tiny-mhsa", "later was not measured", "made before")
    assert "later" not in [name for name, _, _ in captions.motif_columns(distilled, shown)]
    shown, problems = distilled.describe(DistillationState(across="next_token", width=4))
    says(problems[0], "next token was not measured", "no query")
    shown, problems = distilled.describe(DistillationState(across="nowhere", width=4))
    assert shown is not None and shown.across == "first_token" and "no motif nowhere" in problems[0]
