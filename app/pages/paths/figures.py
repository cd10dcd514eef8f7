"""What of an expansion is drawn: the bar of orders, the flow, and the tables' records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.plots import FlowNode, Theme, describe, flow_graph, glyphs, order_bars
from app.pages.paths import words
from app.pages.paths.service import Expanded, Paths, Question, format_path

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.paths import Path, Sankey


@dataclass(frozen=True, kw_only=True)
class Step:
    """A head of a path, and where to see it."""

    head: str
    href: str
    help: str


@dataclass(frozen=True, kw_only=True)
class PathRow:
    """A path as the table has it."""

    rank: int
    key: str
    """As in an address."""
    start: str
    steps: tuple[Step, ...]
    end: str
    sentence: str
    value: float
    proven: bool


def orders_figure(paths: Paths, question: Question, theme: Theme) -> go.Figure:
    """The bar of orders."""
    values, counts = paths.orders(question)
    figure = order_bars(values, counts, quantity=words.quantity(question), theme=theme)
    return _named(figure, paths, question, "by number of heads")


def flow_figure(paths: Paths, question: Question, theme: Theme) -> go.Figure:
    """The Sankey diagram."""
    expanded, found = paths.asked(question), paths.flow(question)
    figure = flow_graph(
        flow_nodes(paths, expanded, question, found),
        found.sources.tolist(),
        found.targets.tolist(),
        found.values,
        quantity=words.quantity(question),
        theme=theme,
    )
    return _named(figure, paths, question, "flow")


def flow_nodes(paths: Paths, expanded: Expanded, question: Question, found: Sankey) -> list[FlowNode]:
    """The nodes of a flow, named for people."""
    expansion, unit = expanded.expansion, words.quantity(question)
    nodes = []
    for node, through in zip(found.nodes, found.through.tolist(), strict=True):
        if node.head is not None:
            label, column, kind = f"{node.head[0]}.{node.head[1]}", 1 + node.head[0], "head"
            note = f"all paths through this head: {words.signed(through)} {unit}"
        elif node.position is not None:
            label, column, kind = f"{glyphs(expansion.str_tokens[node.position])} @{node.position}", 0, "source"
            note = f"all paths from here: {words.signed(through)} {unit}"
        elif node.layer is not None:
            label, column, kind = f"MLP {node.layer}", 1 + node.layer, "source"
            note = f"all paths from what this MLP writes: {words.signed(through)} {unit}"
        elif node.kind == "bias":
            label, column, kind, note = "biases", 0, "source", f"all paths from biases: {words.signed(through)} {unit}"
        else:
            label, column, kind = words.logit(paths, expanded, question), expansion.n_layers + 1, "end"
            note = f"{words.signed(through)} {unit}"
        nodes.append(FlowNode(label=label, column=column, kind=kind, note=note))
    return nodes


def top_rows(paths: Paths, question: Question) -> list[PathRow]:
    """The largest paths, each head with a link to itself on this text."""
    expanded, found = paths.asked(question), paths.top(question)
    end = words.logit(paths, expanded, question)
    return [
        PathRow(
            rank=rank,
            key=format_path(path),
            start=_start(expanded, path),
            steps=_steps(paths, question, path),
            end=end,
            sentence=expanded.expansion.describe(path, question.logit),
            value=value,
            proven=rank <= found.n_proven,
        )
        for rank, (path, value) in enumerate(zip(found.paths, found.values, strict=True), start=1)
    ]


def head_rows(paths: Paths, question: Question) -> list[dict[str, Any]]:
    """One record a head: what it adds itself, and what passes through it; the largest first."""
    direct, through = paths.heads(question)
    n_layers, n_heads = direct.shape
    records = [
        {
            "head": f"{layer}.{head}",
            "through": float(through[layer, head]),
            "direct": float(direct[layer, head]),
            # The last layer's heads reach the logit directly only; rounding would show as −0.000.
            "later": float(through[layer, head] - direct[layer, head]) if layer < n_layers - 1 else 0.0,
        }
        for layer in range(n_layers)
        for head in range(n_heads)
    ]
    return sorted(records, key=lambda record: -abs(record["through"]))


def _start(expanded: Expanded, path: Path) -> str:
    at = path.source_position
    if path.source == "token" and at is not None:
        return f"{describe(expanded.expansion.str_tokens[at])}@{at}"
    return path.start if at is None else f"{path.start}@{at}"


def _steps(paths: Paths, question: Question, path: Path) -> tuple[Step, ...]:
    """The last head is opened at the target's position, the first one at the source's, seen from there."""
    steps = []
    for index, head in enumerate(path.heads):
        place: dict[str, Any] = {}
        name = f"{head[0]}.{head[1]}"
        help = f"Open head {name} on this text"
        if index == len(path.heads) - 1:
            place = {"position": question.position}
            help += f", where position {question.position} attends"
        elif index == 0 and path.source_position is not None:
            place = {"position": path.source_position, "direction": "from"}
            help += f", what attends to position {path.source_position}"
        href = paths.links.to("heads", checkpoint=question.checkpoint, text=question.text, head=head, **place)
        steps.append(Step(head=name, href=href, help=help))
    return tuple(steps)


def _named(figure: go.Figure, paths: Paths, question: Question, what: str) -> go.Figure:
    """`layout.meta.name` is a picture's title and file name when it is saved."""
    expanded = paths.asked(question)
    name = f"{question.checkpoint} · {words.logit(paths, expanded, question)} after {question.position} · {what}"
    return figure.update_layout(meta={"key": expanded.key, "name": name})
