"""A trace as a layered graph: sources at the left, then cells by layer, the cell asked for at the right."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotlens.paths.score.trace import Trace, TraceEdge, TraceNode


@dataclass(frozen=True, kw_only=True)
class Box:
    """A cell or a source."""

    title: str
    detail: str
    """Of a cell its tokens; of a source the token that stands there."""
    column: int
    row: float
    """From 0 at the top to 1."""
    kind: str
    """cell or source."""


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
    """What there is to draw; rests are not."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    n_columns: int


def token_at(trace: Trace, position: int) -> str:
    """`" Mr"@3`, or `@3` without a tokenizer."""
    if not trace.str_tokens:
        return f"@{position}"
    return f"{json.dumps(trace.str_tokens[position], ensure_ascii=False)}@{position}"


def layout_of(trace: Trace) -> Layout:
    """Boxes in columns of layers, in a column in the order in which the trace came by them."""
    cells = [each for node in trace.nodes for each in (node.cell, *(edge.cell for edge in node.edges))]
    layers = sorted({cell[0][0] for cell in cells if cell is not None})
    found: dict[str, tuple[str, str, int, str]] = {}

    def place(each: TraceNode | TraceEdge) -> str:
        name = trace.name(each)
        if each.cell is not None:
            (layer, head), query, key = each.cell
            detail = f"{token_at(trace, query)} → {token_at(trace, key)}"
            found.setdefault(name, (f"{layer}.{head}", detail, 1 + layers.index(layer), "cell"))
        else:
            position = getattr(each, "position", None)
            detail = "" if position is None else token_at(trace, position)
            found.setdefault(name, (getattr(each, "start", ""), detail, 0, "source"))
        return name

    ends = []
    for node in trace.nodes:
        end = place(node)
        ends += [(place(edge), end, edge) for edge in node.edges if edge.kind != "rest"]
    names = [*found]
    columns = [column for _, _, column, _ in found.values()]
    boxes = []
    for i, (title, detail, column, kind) in enumerate(found.values()):
        place_in_column, n_in_column = columns[:i].count(column), columns.count(column)
        row = (place_in_column + 0.5) / n_in_column
        boxes.append(Box(title=title, detail=detail, column=column, row=row, kind=kind))
    links = [
        Link(start=names.index(start), end=names.index(end), side=edge.side, nats=edge.nats, share=edge.share)
        for start, end, edge in ends
    ]
    return Layout(boxes=tuple(boxes), links=tuple(links), n_columns=1 + len(layers))
