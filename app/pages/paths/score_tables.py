"""A score as elements that the browser draws (app/shell/drawn.py): which one, and its trace in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.paths.score.words import Piece
from aotlens.views.paths import signed
from aotlens.views.scores import BY_HEADS, ScoreParameters, cancellation, cell_says, counted
from app.pages.paths.service import Paths, head_names
from app.pages.paths.tables import source_strip
from app.shell.score_lines import head_link

if TYPE_CHECKING:
    from aotlens.paths import ScoreExpansion, Trace
    from aotlens.paths.score import TraceEdge, TraceNode


def target(paths: Paths, chosen: ScoreParameters, score: ScoreExpansion) -> list[Any]:
    """Return the form, the tokens of either side, and what is explained."""
    heads, sums = head_names(paths.expanded(chosen)), paths.workshop.result(BY_HEADS, chosen).values
    against = "plain" if chosen.against is None else str(chosen.against)
    form = [
        *_choice("head", "Head", dict(zip(heads, heads, strict=True)), f"{chosen.head[0]}.{chosen.head[1]}"),
        *_choice("against", "Compared with", paths.compared_with(chosen), against),
    ]
    sentences = [chosen.said, f"Head {score.words.cell}.", *cell_says(score, chosen.reason)]
    adds_up = [_proof(score), cancellation(float(sums.abs().sum()), float(sums.sum()))]
    return [
        html.Div(form, className="score-form"),
        *(_strip(score, side, position) for side, position in (("query", chosen.query), ("key", chosen.key))),
        *(html.P(" ".join(text for text in texts if text), className="score-says") for texts in (sentences, adds_up)),
    ]


def _proof(score: ScoreExpansion) -> str:
    residual = score.residual()
    trust = "" if residual.within_tolerance else " This is above the tolerance: don't trust the pairs of this score."
    return (
        f"{counted(score.n_pairs)} pairs of paths; their sum differs from the model's own score by "
        f"{residual.largest:.1e} nats (tolerance {residual.tolerance:.1e}).{trust}"
    )


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


def _strip(score: ScoreExpansion, side: str, position: int) -> html.Div:
    words, values = score.words, score.by_source_position(side).sum(0).double().cpu().numpy()
    group = {"role": "group", "aria-label": f"Tokens: the {side} and where it comes from", "data-side": side}
    chips = html.Div(
        source_strip(words.str_tokens, values, position, words.unit), className="strip score-strip", **group
    )  # fmt: skip
    return html.Div([html.Span(side.capitalize(), className="field-label"), chips], className="score-strip-row")


def trace_lines(paths: Paths, chosen: ScoreParameters, trace: Trace) -> list[Any]:
    """Return the trace in words: each cell with what either side is made of, largest first."""
    from aotlens.paths.score.trace_layout import cancelling

    def cell(each: TraceEdge | TraceNode) -> Any:
        """A cell's name, which leads to its entry on Heads; a source's alone."""
        name = trace.name(each)
        if each.cell is None:
            return name if getattr(each, "n_terms", 1) == 1 else f"{name} ({each.n_terms:,} terms)"  # type: ignore[union-attr]
        head, query, key = each.cell
        return head_link(paths.core.links, chosen, Piece(text=name, head=head, cell=(query, key), position=query))

    lines: list[Any] = []
    for node in trace.nodes:
        sides = []
        for side, size in zip(("query", "key"), node.cancellation, strict=True):
            parts: list[Any] = []
            for edge in node.edges:
                if edge.side == side:
                    parts += ["; " if parts else f"{side} side ({cancelling(size)}): ", cell(edge)]
                    parts.append(f" {signed(edge.nats, 2)}, {edge.share:.0%}")
            sides.append(html.Li(parts))
        lines += [html.P([cell(node), f": {node.contrast:+.2f} nats"]), html.Ul(sides)]
    return lines
