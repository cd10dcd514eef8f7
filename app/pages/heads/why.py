"""The tab Why, of why a head attends where it does: one entry of its map explained by the largest pairs of paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.views.scores import SCORE, cancellation, cell_says, pairs_say
from app.pages.heads.ids import ids
from app.pages.heads.service import Heads, WhyParameters
from app.shell import ids as shell
from app.shell.page_links import leading
from app.shell.panel import about, panel
from app.shell.score_lines import pair_table
from app.shell.tables import value_tables

if TYPE_CHECKING:
    from aotlens.paths import ScoreExpansion, TopPairs

#: Other keys that are offered to compare with.
_OTHERS = 5

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
    content = html.Div(
        [html.Div(id=shell.body(ids.WHY)), value_tables(ids.WHY_PAIRS, "Largest pairs of paths")], className="why-lines"
    )
    return panel(
        ids.WHY, "Why it attends there", _EXPLAIN, content, exports=("csv", "json", "python"), follows=ids.WHY_OF
    )


def explain(service: Heads, params: WhyParameters, top: TopPairs) -> dict[str, Any]:
    """Return what is explained, its contrasts, what all pairs add, and a table with one pair of paths per row."""
    links, score = service.core.links, service.workshop.result(SCORE, params)
    sums = score.by_head_pair().values
    sentences = [params.said, *cell_says(score, params.reason)]
    totals = [pairs_say(top), cancellation(float(sums.abs().sum()), float(sums.sum()))]
    trace = links.to(
        "paths", checkpoint=params.checkpoint, text=params.text, of="score", head=params.head, query=params.query,
        key=params.key, against=params.against, part="trace",
    )  # fmt: skip
    link = leading("Its trace and sums", trace)
    body = [
        html.P(" ".join(filter(None, sentences)), className="why-says"),
        _against(contrasts(score), params),
        html.P([" ".join(filter(None, totals)), " ", link], className="why-says"),
    ]
    return {"title": f"Why {score.words.cell}", "body": body, "pairs": [pair_table(params, top)]}


def contrasts(score: ScoreExpansion) -> list[tuple[int | str, str]]:
    """List what a score can be compared with, as addresses have it, and the names; other keys by their scores."""
    from aotlens.paths.score.expansion import keys_by_score

    if not score.compares:
        return [("plain", "raw score")]
    others = [key for key in keys_by_score(score) if key != score.key]
    first = [0] if 0 in others else []
    keys = [*first, *(key for key in others if key)][: _OTHERS + 1]
    if isinstance(score.against, int) and score.against not in keys:
        keys.append(score.against)
    named = [(key, "the first token" if key == 0 else score.words.at(key)) for key in keys]
    mean: list[tuple[int | str, str]] = [("mean", "the average key")] if others else []
    return [*mean, *named, ("plain", "raw score")]


def _against(contrasts: Sequence[tuple[int | str, str]], params: WhyParameters) -> html.Div:
    buttons = [
        html.Button(
            label, className="plain-button why-against",
            **{"data-against": str(value), "aria-pressed": str(value == params.against).lower()},
        )
        for value, label in contrasts
    ]  # fmt: skip
    label = html.Span("Compared with", className="field-label")
    cell = {"data-query": str(params.query), "data-key": str(params.key)}
    return html.Div([label, *buttons], className="why-choices", role="group", **{"aria-label": "Compared with", **cell})
