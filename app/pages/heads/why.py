"""The tab Why, of why a head attends where it does: one entry of its map explained by the largest pairs of paths."""

from __future__ import annotations

from typing import Any

from dash import html

from aotlens.views.scores import SCORE, cancellation, cell_says, pairs_say
from app.core.scores import ScoreQuestion
from app.pages.heads.ids import ids
from app.pages.heads.service import Heads, WhyParameters
from app.shell.drawn import drawn
from app.shell.panel import about, panel
from app.shell.score_lines import pair_table

_EXPLAIN = about(
    "A score is a product of what the query and the key read of the stream, and the stream is a sum of paths: a token, "
    "a position, biases or what an MLP wrote, and the heads that moved them. So it is a sum over pairs of paths, one "
    "to the query and one to the key, with patterns and norms of earlier layers as they are on this text. A softmax "
    "ignores what all keys share, so a key is compared with the average key, or with one other key: what a path moves "
    "there is taken off. Click a head's name to see its own entry on the map. On the keyboard, w opens this for the "
    "locked entry.",
    formula="score(i, j) = Σ over pairs ⟨q, k⟩ / √d_head;   compared: log A(i, j) − log A(i, k), or + H(Aᵢ)",
    source="A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), QK circuits with composition",
)


def why_button() -> html.Button:
    """Lay out the button beside a head's map, there once an entry is locked."""
    tip = "Why the head attends there: the largest pairs of paths (key w)"
    return html.Button("Why?", id=ids.WHY_BUTTON, className="plain-button", hidden=True, **{"data-tip": tip})


def why_panel() -> html.Section:
    """Lay out the tab."""
    lines = drawn(ids.WHY_LINES, "why-lines", "Why the head attends there")
    return panel(
        ids.WHY, "Why it attends there", _EXPLAIN, lines, exports=("csv", "json", "python"), follows=ids.WHY_OF
    )


def explain(service: Heads, chosen: WhyParameters, top: Any) -> dict[str, Any]:
    """Return what is explained, its contrasts, what all pairs add, and a row a pair of paths, largest first."""
    core, score = service.core, service.workshop.result(SCORE, chosen)
    asked = {name: getattr(chosen, name) for name in ("checkpoint", "text", "head", "query", "key", "against")}
    question = ScoreQuestion(**asked)
    sentences = [chosen.said, *cell_says(score, chosen.reason)]
    sums = [pairs_say(top), cancellation(*core.scores.cancellation(question))]
    against = chosen.against
    trace = core.links.to(
        "paths", checkpoint=chosen.checkpoint, text=chosen.text, of="score", head=chosen.head, query=chosen.query,
        key=chosen.key, against=against, part="trace",
    )  # fmt: skip
    link = html.A("Its trace and sums", href=trace, className="head-entry", **{"data-in-app": ""})
    lines = [
        html.P(" ".join(filter(None, sentences)), className="why-says"),
        _against(core.scores.choices(question), chosen, against),
        html.P([" ".join(filter(None, sums)), " ", link], className="why-says"),
        pair_table(core.links, chosen, score.words, top),
    ]
    return {"title": f"Why {score.words.cell}", "lines": lines}


def _against(choices: Any, chosen: WhyParameters, against: int | str | None) -> html.Div:
    pressed = {value: str(value == against).lower() for value, _ in choices}
    buttons = [
        html.Button(label, className="why-against", **{"data-against": str(value), "aria-pressed": pressed[value]})
        for value, label in choices
    ]
    label = html.Span("Compared with", className="field-label")
    cell = {"data-query": str(chosen.query), "data-key": str(chosen.key)}
    return html.Div([label, *buttons], className="why-choices", role="group", **{"aria-label": "Compared with", **cell})
