"""A trace as a layered graph: sources at the left, then cells by layer, the cell asked for at the right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.paths.words import place_words

if TYPE_CHECKING:
    from aotlens.paths.score.traced import Cell, Traced, TraceEdge, TraceNode


@dataclass(frozen=True, kw_only=True)
class Box:
    """A cell or a source."""

    title: str
    detail: str
    """The tokens of a cell; of a source the token that stands there."""
    column: int
    row: float
    """The height, from 0 at the top to 1."""
    kind: str
    """`cell` or `source`."""
    cell: Cell | None = None
    """The cell that it is; None for a source."""
    notes: tuple[str, ...] = ()
    """The facts about it, in sentences: of a cell that was followed its score and how much either side cancels; then
    each side that it is a term of, with its share there."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """An edge of the trace, from the box that it comes from to the cell that it is a term of."""

    start: int
    end: int
    side: str
    nats: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The parts to draw; rests are not."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    n_columns: int


def layout_of(trace: Traced) -> Layout:
    """Lay out boxes in columns of layers, in a column in the order in which the trace came by them."""
    cells = [each for node in trace.nodes for each in (node.cell, *(edge.cell for edge in node.edges))]
    layers = sorted({cell[0][0] for cell in cells if cell is not None})
    contents: dict[str, tuple[str, str, int, Cell | None]] = {}
    notes: dict[str, list[str]] = {}

    def place(each: TraceNode | TraceEdge) -> str:
        name = trace.name(each)
        if each.cell is not None:
            (layer, head), query, key = each.cell
            detail = f"{place_words(trace.str_tokens, query)} → {place_words(trace.str_tokens, key)}"
            contents.setdefault(name, (f"{layer}.{head}", detail, 1 + layers.index(layer), each.cell))
        else:
            position = getattr(each, "position", None)
            detail = "" if position is None else place_words(trace.str_tokens, position)
            contents.setdefault(name, (getattr(each, "start", ""), detail, 0, None))
        return name

    ends = []
    for node in trace.nodes:
        end = place(node)
        notes.setdefault(end, [])[:0] = _of_node(node)
        for edge in node.edges:
            if edge.kind != "rest":
                start = place(edge)
                ends.append((start, end, edge))
                notes.setdefault(start, []).append(
                    f"{edge.nats:+.3f} nats, {edge.share:.0%} of the {edge.side} side of {end}"
                )
    names = [*contents]
    columns = [column for _, _, column, _ in contents.values()]
    boxes = []
    for i, (name, (title, detail, column, cell)) in enumerate(contents.items()):
        place_in_column, n_in_column = columns[:i].count(column), columns.count(column)
        row = (place_in_column + 0.5) / n_in_column
        kind = "source" if cell is None else "cell"
        boxes.append(
            Box(title=title, detail=detail, column=column, row=row, kind=kind, cell=cell, notes=tuple(notes[name]))
        )
    links = [
        Link(start=names.index(start), end=names.index(end), side=edge.side, nats=edge.nats, share=edge.share)
        for start, end, edge in ends
    ]
    return Layout(boxes=tuple(boxes), links=tuple(links), n_columns=1 + len(layers))


def _of_node(node: TraceNode) -> list[str]:
    softmax = ", of the softmax before the threshold" if node.before_threshold else ""
    sides = zip(("query", "key"), node.cancellation, strict=True)
    return [
        f"score {node.score:+.3f}, contrast {node.contrast:+.3f} nats{softmax}",
        *(f"{side} side: {cancelling(value)}" for side, value in sides),
    ]


def cancelling(value: float) -> str:
    """Say Σ|term| ÷ |Σ term| of a side in words."""
    if not math.isfinite(value):
        return "its terms cancel altogether"
    return f"its terms are {value:.1f} times in size what they add up to"
