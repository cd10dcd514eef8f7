"""What of a score is drawn on the Paths page: which one, sums of pairs, and its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.plots import Theme, matrix_map, plot
from app.core import Core
from app.core import score_words as words
from app.core.address_values import dotted
from app.core.score_words import Piece
from app.core.scores import Explained, ScoreQuestion
from app.pages.paths import score_service as service
from app.pages.paths.tables import source_strip
from app.shell.score_lines import head_link

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.paths.score import Trace, TraceEdge, TraceNode


def target(core: Core, explained: Explained, said: str) -> list[Any]:
    """The form, the tokens of either side, and what is explained; the browser draws them."""
    question, score = explained.question, explained.score
    shape = explained.expanded.expansion.frozen.patterns.shape
    heads = [f"{layer}.{head}" for layer in range(shape[0]) for head in range(shape[1])]
    against = {str(value): name for value, name in core.scores.choices(question)}
    form = html.Div(
        [
            *_choice("head", "Head", dict(zip(heads, heads, strict=True)), dotted(score.head)),
            *_choice("against", "Compared with", against, str(explained.against)),
        ],
        className="score-form",
    )
    size, total = core.scores.cancellation(question)
    sentences = [said, words.cell(explained).join(("Head ", ".")), *words.about(explained)]
    return [
        form,
        *(_strip(core, explained, side) for side in ("query", "key")),
        html.P(" ".join(text for text in sentences if text), className="score-says"),
        html.P(" ".join(_sum(explained, size, total)), className="score-says"),
    ]


def _sum(explained: Explained, size: float, total: float) -> list[str]:
    residual = explained.score.residual()
    trust = "" if residual.within_tolerance else " This is above the tolerance: don't trust the pairs of this score."
    pairs = (
        f"{words.counted(explained.score.n_pairs)} pairs of paths; their sum differs from the model's own score by "
        f"{residual.largest:.1e} nats (tolerance {residual.tolerance:.1e}).{trust}"
    )
    return [pairs, words.cancellation(size, total)]


def _choice(name: str, label: str, options: dict[str, str], chosen: str) -> list[Any]:
    """A choice that the browser draws; paths.js hears it."""
    entries = [
        html.Option(text, value=value, **({"selected": "selected"} if value == chosen else {}))  # type: ignore[call-arg]
        for value, text in options.items()
    ]
    return [
        html.Span(label, className="field-label"),
        html.Select(entries, **{"data-score": name, "aria-label": label}),
    ]


def _strip(core: Core, explained: Explained, side: str) -> html.Div:
    question = explained.question
    at = question.query if side == "query" else question.key
    chips = source_strip(
        explained.expanded.expansion.str_tokens, service.positions(core, question, side), at, words.unit(explained)
    )
    group = {"role": "group", "aria-label": f"Tokens: the {side} and where it comes from", "data-side": side}
    return html.Div(
        [
            html.Span(side.capitalize(), className="field-label"),
            html.Div(chips, className="strip score-strip", **group),
        ],
        className="score-strip-row",
    )


def sums_figure(core: Core, question: ScoreQuestion, by: str, theme: Theme) -> go.Figure:
    """All pairs in groups, query side down and key side across."""
    names, values = service.sums(core, question, by)
    explained = core.scores.explain(question)
    title = "heads on the" if by == "orders" else "last head," if by == "heads" else "source,"
    figure = matrix_map(
        values, names, names, quantity=words.unit(explained), row_title=f"{title} query side",
        column_title=f"{title} key side", theme=theme,
    )  # fmt: skip
    return _named(figure, explained, f"pairs by {by}")


def trace_figure(core: Core, question: ScoreQuestion, theme: Theme) -> go.Figure:
    """The layered graph."""
    return _named(plot(core.scores.trace(question), theme=theme), core.scores.explain(question), "trace")


def trace_lines(core: Core, question: ScoreQuestion) -> list[Any]:
    """The same in words: each cell with what either side is made of, largest first."""
    trace, explained = core.scores.trace(question), core.scores.explain(question)
    lines: list[Any] = []
    for node in trace.nodes:
        lines.append(html.P([_cell(core, explained, trace, node), f": {node.contrast:+.2f} nats"]))
        sides = zip(("query", "key"), node.cancellation, strict=True)
        lines.append(html.Ul([_side(core, explained, trace, node, side, value) for side, value in sides]))
    return lines


def _side(core: Core, explained: Explained, trace: Trace, node: TraceNode, side: str, cancellation: float) -> html.Li:
    from aotlens.paths.score.trace_layout import cancelling

    parts: list[Any] = []
    for edge in node.edges:
        if edge.side == side:
            parts += [
                "; " if parts else f"{side} side ({cancelling(cancellation)}): ",
                _cell(core, explained, trace, edge),
                f" {words.signed(edge.nats)}, {edge.share:.0%}",
            ]
    return html.Li(parts)


def _cell(core: Core, explained: Explained, trace: Trace, each: TraceEdge | TraceNode) -> Any:
    """A cell's name, which leads to its entry on Heads; a source's alone."""
    name = trace.name(each)
    if each.cell is None:
        return name if each.cell is None and getattr(each, "n_terms", 1) == 1 else f"{name} ({each.n_terms:,} terms)"
    head, query, key = each.cell
    return head_link(core.links, explained, Piece(text=name, head=head, cell=(query, key), position=query))


def _named(figure: go.Figure, explained: Explained, what: str) -> go.Figure:
    name = f"{explained.question.checkpoint} · {words.cell(explained)} · {what}"
    return figure.update_layout(meta={"key": explained.expanded.key, "name": name})
