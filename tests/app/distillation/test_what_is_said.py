"""What the Distillation page says while something runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from app.pages.distillation import captions
from app.shell.background import progress_text
from tests.messages import says


def test_progress_says_what_it_counts():
    job: Any = SimpleNamespace(state="running", label="Distilling m", phase="training FFNs", done=1000, total=2000)
    says(progress_text(job, captions.UNITS), "Distilling m", "training FFNs", "1,000 of 2,000 tokens")
    job.phase = "replacing heads"
    says(progress_text(job, captions.UNITS), "of 2,000 passes")
