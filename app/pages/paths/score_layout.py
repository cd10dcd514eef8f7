"""The Paths page where an attention score is explained: which one, and its panels."""

from __future__ import annotations

from typing import Any

from dash import html

from app.pages.paths.address import PathsState
from app.pages.paths.ids import ids
from app.shell.drawn import drawn
from app.shell.graph import caption, figure
from app.shell.panel import about, panel, tabs

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), QK circuits with composition"
_FIGURES = ("png", "svg", "csv", "json", "python")

_EXPLAIN = about(
    "A score is bilinear in the query's and the key's stream, and each is a sum of paths, with patterns and norms of "
    "earlier layers as they are on this text: so the score is a sum over pairs of paths, exactly. A softmax ignores "
    "what all keys share, so what a key is compared with is taken off on the key side. Click a token of the first row "
    "to choose the query, one of the second to choose the key. Shading: what the paths of that side that start at a "
    "token bring, times the whole other side; either row adds up to what is explained.",
    formula="score(i, j) = Σ ⟨q_a, k_b⟩ / √d_head over pairs of a path a to the query and a path b to the key",
    source=_FRAMEWORK,
)
_EXPLAIN_PAIRS = about(
    "Single pairs of paths: one to the key, one to the query. A head's name leads to its own entry on Heads. Ranks are "
    "proven unless a question mark says that they are not.",
    formula="term(a, b) = ⟨q_a, Σₖ cₖ k_b(k)⟩ / √d_head;  c = 1 at the key, less what it is compared with",
    source=_FRAMEWORK,
)
_EXPLAIN_TRACE = about(
    "The cells behind the cell: each is split twice, by what made its query and by what made its keys, into sources "
    "and cells of earlier layers. The width of a link is its share of its side in size, orange is the query side, blue "
    "the key side, dashed is negative. Terms of different cells are not to be added or multiplied: behind the first "
    "they are of first order. Point at a box for what is known of it; click one to explain that cell instead.",
    formula="share = |term| ÷ Σ|term| of one side of one cell",
    source="The query side's cells are (h′, query, m); the key side's (h′, k, m), for every key k, times δₖⱼ − wₖ",
)
_EXPLAIN_SUMS = (
    "All pairs of paths by {}: rows are the query side, columns the key side; the entries add up to the score."
)
_HEADS = "the last head on either side (paths without heads by where they start)"


def score_section(state: PathsState) -> html.Div:
    """The tab: which score, its pairs and trace at the left, sums at the right."""
    return html.Div(
        [
            panel(ids.SCORE, "Attention score", _EXPLAIN, drawn(ids.SCORE_TOP, "score-top", "Which score")),
            html.Div(
                [
                    tabs(ids.SCORE_VIEWS, state.part, _views(), label="Pairs and trace"),
                    tabs(ids.SCORE_SUMS, state.sums, _sums(), label="Sums of pairs"),
                ],
                id=ids.SCORE_BODY,
                className="paths-body",
            ),
        ]
    )


def _views() -> dict[str, tuple[str, Any]]:
    pairs = [caption(ids.PAIRS), drawn(ids.PAIR_LINES, "pair-lines", "Largest pairs of paths")]
    # The files are the library's own drawing and page, so the browser saves no picture of the figure.
    trace = [
        caption(ids.TRACE),
        html.Div(
            [figure(ids.TRACE, "graph-layers"), drawn(ids.TRACE_LINES, "trace-lines", "The cells of the trace")],
            className="graph-trace paper-figure",
            tabIndex=0,
        ),
    ]
    return {
        "pairs": (
            "Largest pairs",
            _panel(ids.PAIRS, "Largest pairs", _EXPLAIN_PAIRS, pairs, ("csv", "json", "python")),
        ),
        "trace": ("Trace", _panel(ids.TRACE, "Trace", _EXPLAIN_TRACE, trace, ("svg", "html", "json", "python"))),
    }


def _sums() -> dict[str, tuple[str, Any]]:
    named = {
        "heads": (ids.BY_HEADS, "By last heads", _HEADS),
        "sources": (ids.BY_SOURCES, "By sources", "where their two paths start"),
        "orders": (ids.BY_ORDERS, "By numbers of heads", "how many heads their two paths pass"),
    }
    return {
        name: (title, _panel(id, title, _EXPLAIN_SUMS.format(by), [caption(id), figure(id, "graph-sums")], _FIGURES))
        for name, (id, title, by) in named.items()
    }


def _panel(id: str, title: str, explanation: Any, content: Any, exports: tuple[str, ...]) -> html.Section:
    return panel(id, title, explanation, content, exports=exports, follows=ids.SCORE_SHOWN)
