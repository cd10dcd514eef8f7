"""What the In-context denoising page shows, as files."""

from __future__ import annotations

import pandas as pd

from app.core.files import File, csv_file
from app.pages.denoising import words
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.service import Denoising


def plane_csv(service: Denoising, state: DenoisingState) -> File:
    """One row a point: the context's tokens, the query, its way, and the answers."""
    made, descent = service.plane(state), service.descent(state)
    rows = [("context", None, *token) for token in made.prompts.context[0].tolist()]
    rows += [("path", step, *point) for step, point in enumerate(descent.states[:, 0].tolist())]
    for kind, points in {"attention": descent.attention, "Bayes": descent.bayes, "clean": made.prompts.target}.items():
        rows.append((kind, None, *points[0].tolist()))
    return _csv(state, "plane", pd.DataFrame(rows, columns=["kind", "step", "x", "y"]))


def errors_csv(service: Denoising, state: DenoisingState) -> File:
    """One row a step: the mean over prompts with its levels, and this query."""
    frame = service.plane(state).mean.to_frame()
    frame["this_query"] = service.descent(state).errors[:, 0].tolist()
    return _csv(state, "errors", frame)


def _csv(state: DenoisingState, what: str, frame: pd.DataFrame) -> File:
    return csv_file(f"{words.name(state)}-{what}.csv", frame)
