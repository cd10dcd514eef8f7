"""What the Distillation page says where there is nothing to draw, and while something runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from app.pages.distillation import words
from app.shell.background import progress_text
from app.shell.graph import blank
from tests.messages import says


def shown(width: int) -> Any:
    return SimpleNamespace(of="a-result", width=width)


def test_a_missing_learning_curve_is_explained():
    assert "not trained" in words.no_curve(shown(0))
    says(words.no_curve(shown(16)), "a-result", "no learning curves")
    figure = blank(words.no_curve(shown(0)), "dark")
    assert not figure["data"]
    assert figure["layout"]["annotations"][0]["text"].replace("<br>", " ") == words.no_curve(shown(0))
    assert figure["layout"]["modebar"]["remove"]  # nothing to zoom


def test_progress_says_what_it_counts():
    job: Any = SimpleNamespace(state="running", label="Distilling m", phase="training FFNs", done=1000, total=2000)
    says(progress_text(job, words.UNITS), "Distilling m", "training FFNs", "1,000 of 2,000 tokens")
    job.phase = "replacing heads"
    says(progress_text(job, words.UNITS), "of 2,000 passes")
