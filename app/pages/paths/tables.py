"""The Paths page's tokens and tables: paths, heads, what is left without one of them, pairs of paths, a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from aotlens.conventions import head_name, percent, signed
from aotlens.plots import glyphs
from aotlens.views.paths import PathsParameters
from app.shell.score_lines import pair_table
from app.shell.tables import bar, chips, height_of, link_cell, pick, value_table

if TYPE_CHECKING:
    from aotlens.paths import (
        LogitByHead,
        LogitBySource,
        Path,
        RemovalEffect,
        ScoreExpansion,
        TopPairs,
        TopPaths,
        Trace,
    )
    from aotlens.paths.score import TraceEdge, TraceNode

_RANK = ("", "With a question mark not proven: a path that was not computed may be larger", "rank")
_BAR = ("", "", "")
#: Tokens with less than this share of the largest value have no number.
_NUMBERED = 0.04


def sources(params: PathsParameters, result: LogitBySource) -> list[dict[str, Any]]:
    """Return the text's tokens, shaded by what all paths from them add; a click explains what is predicted there."""
    return [
        _strip(result.str_tokens, result.of_tokens.tolist(), result.unit, lambda position: {"position": position},
               selected=result.position)
    ]  # fmt: skip


def _strip(str_tokens: Sequence[str], values: list[float], unit: str, what: Callable[[int], Any], **rest: Any) -> Any:
    tips = [f"all paths from here: {signed(value)} {unit}" for value in values]
    return chips(str_tokens, values, tips, what=what, form="+.1f", least=_NUMBERED, **rest)


def sides(params: PathsParameters, score: ScoreExpansion) -> list[dict[str, Any]]:
    """Return the text's tokens twice: a click chooses the query, and the key."""

    def query(position: int) -> dict[str, Any]:
        hides = params.key is not None and position < params.key and not params.config.sees_later_keys
        return {"query": position, **({"key": None} if hides else {})}

    strips = []
    for side, selected, what in (("query", score.query, query), ("key", score.key, lambda place: {"key": place})):
        values = score.by_source_position(side).sum(0).double().tolist()
        strips.append(
            _strip(score.words.str_tokens, values, score.words.unit, what, selected=selected, heading=side.capitalize())
        )
    return strips


def paths(params: PathsParameters, top: TopPaths) -> list[dict[str, Any]]:
    """List one path per row: its sentence, in which heads lead to their maps, its contribution, and its removal."""
    columns = [_RANK, ("path", "", "sentence"), (top.unit, "", "number"), _BAR, ("", "", "")]
    largest = max(map(abs, top.values), default=1.0) or 1.0
    rows = [
        (
            f"{rank + 1}{'' if rank < top.n_proven else '?'}",
            _sentence(path, sentence, top),
            signed(value),
            bar(value / largest),
            pick("without", f"The model without {sentence}", {"without": path.key, "beside": "without"}),
        )
        for rank, (path, sentence, value) in enumerate(zip(top.paths, top.descriptions, top.values, strict=True))
    ]
    return [value_table(columns, rows, height=height_of(rows), along=_prompt(params))]


def _prompt(params: PathsParameters) -> dict[str, Any]:
    return {"checkpoint": params.checkpoint, "text": params.text}


def _sentence(path: Path, sentence: str, top: TopPaths) -> list[Any]:
    """The last head is opened at the target's position, the first one at the source's, seen from there."""
    after = "".join(f" → {layer}.{head}" for layer, head in path.heads) + f" → {top.end}"
    parts: list[Any] = [sentence.removesuffix(after)]
    for index, head in enumerate(path.heads):
        place: dict[str, Any] = {}
        name = head_name(head)
        tip = f"Open head {name} on this text"
        if index == len(path.heads) - 1:
            place = {"position": top.position}
            tip += f", where position {top.position} attends"
        elif index == 0 and path.source_position is not None:
            place = {"position": path.source_position, "direction": "from"}
            tip += f", what attends to position {path.source_position}"
        parts += [" → ", link_cell(name, tip, "heads", head=head, **place)]
    return [*parts, f" → {top.end}"]


def heads(params: PathsParameters, result: LogitByHead) -> list[dict[str, Any]]:
    """List what passes through each head."""
    columns = [
        ("head", "layer.head; click to see the model without it", "mono"),
        ("all paths through it", f"Sum of all paths that pass this head, {result.unit}. A path through two heads "
         "counts for both. Click to list them.", "number"),
        ("it is the last", f"Of these, the paths on which it is the last head, {result.unit}: its direct effect. These "
         "sums, and the paths without heads, add up to the logit.", "number"),
        ("by later heads", f"Of these, the paths that later heads carry on, {result.unit}", "number"),
    ]  # fmt: skip
    rows = [
        (
            pick(row["head"], "The model without it", {"without": row["head"], "beside": "without"}),
            pick(signed(row["through"]), "List the paths through it", {"through": row["head"], "view": "top"}),
            signed(row["direct"]),
            signed(row["later"]),
        )
        for row in result.to_frame().to_dict("records")
    ]
    return [value_table(columns, rows, height=height_of(rows))]


def effect(params: PathsParameters, effect: RemovalEffect) -> list[dict[str, Any]]:
    """Return the model, and the model without the head or path in two ways; and what it expects next."""
    titles = ("", "model", "without it: forward pass", "change", "without it: linear estimate", "change")
    rows = []
    for row in effect.to_frame().to_dict("records"):
        parts = [_value(row, "clean")]
        for how in ("forward", "linear"):
            parts += [_value(row, how), _change(row, how)]
        rows.append((row["name"], *parts))
    expected = [
        [part for each in pair for part in (("", "") if each is None else (glyphs(each[0]), percent(each[1])))]
        for pair in zip_longest(effect.before, effect.after)
    ]
    kinds = [("The model expects next", "mono"), ("", "number"), ("Without it", "mono"), ("", "number")]
    return [
        value_table([(title, "", "number" if title else "sentence") for title in titles], rows),
        value_table([(title, "", kind) for title, kind in kinds], expected),
    ]


def _value(row: dict[str, Any], how: str) -> str:
    value = float(row[how])
    if row["unit"] == "probability":
        return percent(value)
    return signed(value) if row["unit"] == "logits" else f"{value:.3f} nats"


def _change(row: dict[str, Any], how: str) -> str:
    change = float(row[how]) - float(row["clean"])
    if row["unit"] == "probability":
        # A small probability would read as nothing in points.
        small = float(row["clean"]) < 0.01 and row["clean"]
        return f"× {float(row[how]) / float(row['clean']):.2g}" if small else f"{signed(100 * change, 1)} points"
    return signed(change)


def pairs(params: PathsParameters, top: TopPairs) -> list[dict[str, Any]]:
    """List one pair of paths per row."""
    return [pair_table(params, top, height_of(top.pairs))]


def trace(params: PathsParameters, trace: Trace) -> list[dict[str, Any]]:
    """List one edge per row: the cell, its side, and the source or cell that the term is of."""
    columns = [
        ("cell", "head query → key; click to see its map", "mono"),
        ("nats", "What either side of the cell adds up to", "number"),
        ("side", "", ""),
        ("Σ|term| ÷ |Σ term|", "1 where all terms of the side agree, large where they cancel", "number"),
        ("from", "", "mono"),
        ("nats", "", "number"),
        ("share", "Of the side, in size", "number"),
    ]
    rows: list[Sequence[Any]] = []
    for node in trace.nodes:
        for edge in node.edges:
            size = node.cancellation[edge.side == "key"]
            rows.append(
                (
                    _cell(trace, node), signed(node.contrast, 2), edge.side, f"{size:.1f}", _cell(trace, edge),
                    signed(edge.nats, 2), f"{edge.share:.0%}",
                )
            )  # fmt: skip
    return [value_table(columns, rows, height="low", along=_prompt(params))]


def _cell(trace: Trace, each: TraceEdge | TraceNode) -> Any:
    """A cell's name, which leads to its entry on Heads; a source's alone."""
    name = trace.name(each)
    if each.cell is None:
        n = getattr(each, "n_terms", 1)
        return name if n == 1 else f"{name} ({n:,} terms)"
    head, query, key = each.cell
    return link_cell(name, f"The map of {name}", "heads", head=head, cell=(query, key), position=query)
