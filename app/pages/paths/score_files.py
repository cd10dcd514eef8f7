"""What the Paths page shows of a score, as files."""

from __future__ import annotations

from typing import Any

import pandas as pd

from app.core import Core
from app.core import score_words as words
from app.core.files import File, csv_file, json_file, text_file
from app.core.scores import ScoreQuestion
from app.pages.paths import score_service as service

_MIMES = {"svg": "image/svg+xml", "html": "text/html", "json": "application/json"}


def pairs_csv(core: Core, question: ScoreQuestion) -> File:
    """One row a pair of paths, with its sentence."""
    explained, top = core.scores.explain(question), core.scores.top(question, service.N_PAIRS)
    frame = top.to_frame()
    frame.insert(1, "pair", [words.line(explained, pair) for pair in top.pairs])
    return csv_file(f"{_name(question)}-pairs.csv", frame)


def pairs_json(core: Core, question: ScoreQuestion) -> File:
    """The same, with the sum of all pairs and what is proven."""
    return json_file(f"{_name(question)}-pairs.json", words.record(core.scores, question, service.N_PAIRS))


def sums(core: Core, question: ScoreQuestion, *, by: str, kind: str) -> File:
    """A sum of pairs in groups: one row a pair of groups, or the matrix."""
    names, values = service.sums(core, question, by)
    if kind == "csv":
        rows = [
            {"query": row, "key": column, "nats": float(values[i, j])}
            for i, row in enumerate(names)
            for j, column in enumerate(names)
        ]
        return csv_file(f"{_name(question)}-by-{by}.csv", pd.DataFrame(rows))
    content: dict[str, Any] = {**question.to_dict(), "groups": list(names), "nats": values.tolist()}
    return json_file(f"{_name(question)}-by-{by}.json", content)


def trace(core: Core, question: ScoreQuestion, *, kind: str) -> File:
    """The trace as the library gives it: a drawing, one page, or JSON."""
    content: str = getattr(core.scores.trace(question), f"to_{kind}")()
    return text_file(f"{_name(question)}-trace.{kind}", content, _MIMES[kind])


def _name(question: ScoreQuestion) -> str:
    layer, head = question.head
    return f"{question.checkpoint}-score-{layer}.{head}-{question.query}-{question.key}"
