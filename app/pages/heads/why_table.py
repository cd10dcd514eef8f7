"""The tab Why as elements that the browser draws (app/shell/drawn.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.views.scores import cancellation, pairs_say
from app.core import Core
from app.core.scores import Explained
from app.shell.score_lines import pair_table

if TYPE_CHECKING:
    from aotlens.paths.score import TopPairs


def lines_table(core: Core, explained: Explained, top: TopPairs, sentences: Sequence[str]) -> list[Any]:
    """What is explained, what it can be compared with, what all pairs add, and a row a pair of paths, largest first."""
    size, total = core.scores.cancellation(explained.question)
    sums = [pairs_say(top), cancellation(size, total)]
    return [
        html.P(" ".join(sentences), className="why-says"),
        _against(core, explained),
        html.P([" ".join(text for text in sums if text), " ", _trace(core, explained)], className="why-says"),
        pair_table(core.links, explained.question, explained.score.words, top),
    ]


def _trace(core: Core, explained: Explained) -> html.A:
    score, question = explained.score, explained.question
    href = core.links.to(
        "paths", checkpoint=question.checkpoint, text=question.text, of="score", head=score.head, query=score.query,
        key=score.key, against=explained.against, part="trace",
    )  # fmt: skip
    return html.A("Its trace and sums", href=href, className="head-entry", **{"data-in-app": ""})


def _against(core: Core, explained: Explained) -> html.Div:
    cell = {"data-query": str(explained.score.query), "data-key": str(explained.score.key)}
    buttons = [
        html.Button(
            label, className="why-against",
            **{"data-against": str(value), "aria-pressed": str(value == explained.against).lower()},
        )
        for value, label in core.scores.choices(explained.question)
    ]  # fmt: skip
    label = html.Span("Compared with", className="field-label")
    return html.Div([label, *buttons], className="why-choices", role="group", **{"aria-label": "Compared with", **cell})
