"""The Skip-trigrams page's tables: rows, bugs, heads, bigrams, occurrences in text, the others of a row's group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aotlens.conventions import glyphs
from aotlens.views.trigram_parameters import KINDS, VERDICTS, TrigramsParameters
from app.shell.tables import height_of, link_cell, mark, number_text, pick, value_table

if TYPE_CHECKING:
    from aotlens.trigrams import (
        Bigrams,
        Example,
        ExplainedRow,
        FilteredRows,
        RowsByHead,
        TrigramRows,
    )

#: The rows of a group that are listed.
_MOST_OTHERS = 100
#: Tokens shown before the source, after it, and before the destination; what lies between is left out.
_AROUND, _MOST_BETWEEN = 12, 40

_TRIPLE = (
    ("source", "Earlier in the text; click to explain the row", "mono"),
    ("… destination", "The current token", "mono"),
    ("→ predicted token", "The token whose logit changes", "mono"),
)
#: The numbers of a row by column of its table: title, form, help.
_NUMBERS = {
    "grouped": ("grouped", "+,d", "Further rows of the group, which are listed next to the row"),
    "score": ("score", ".3f", "The score by which the rows are ranked: z + ov, or z × ov"),
    "effect": ("effect (logits)", "+.3f", "attention × ov: what the source adds to the predicted token's logit"),
    "verdict": ("verdict", "", "Whether the text bears it out"),
    "lift_within": ("lift within documents", ".2f", "How often the predicted token follows source … destination, over "
                    "what is expected within stretches of one document"),
    "lift": ("lift overall", ".2f", "P(predicted token | source … destination) ÷ P(predicted token | destination), all "
             "places. ≠: on the other side of 1 than the lift within documents; the source tells which passage it is"),
    "occurrences": ("occurrences", ",d", "Where source … destination occurs in the text"),
    "kind": ("kind", "", "By rules that read the strings; Kinds has them"),
    "attention": ("attention", ".2%", "The source's share against tokens of background"),
    "qk": ("z (nats)", ".2f", "The destination's attention score for the source, above the background"),
    "ov": ("ov (logits)", "+.2f", "The change of the predicted token's logit by all attention on the source, above the "
           "mean over all tokens"),
    "followed": ("followed", ",d", "Occurrences that the predicted token follows"),
    "measured_attention": ("attention in text", ".2%", "The head's mean attention from destination to source where "
                           "they occur"),
    "measured_effect": ("effect in text", "+.3f", "The mean change of the predicted token's logit by this attention, "
                        "in logits"),
    "ablation_change": ("without the head", "+.3f", "Mean change of the predicted token's log-probability if the head "
                        "writes nothing, nats; below 0 the head helps"),
    "q_value": ("q", ".2g", "p-value adjusted for the false discovery rate"),
    "verdict_by_document": ("whole documents", "", "The verdict with whole documents as stretches; too rare with fewer "
                            "than 5"),
}  # fmt: skip


def rows(params: TrigramsParameters, result: TrigramRows | FilteredRows) -> list[dict[str, Any]]:
    """List the matching rows; a click explains one."""
    every, frame = getattr(result, "rows", result), result.listed_frame()
    names = [name for name in _NUMBERS if name in frame and (name != "score" or params.score != "effect")]
    columns = [("", "Rank by the score", "rank"), *_TRIPLE]
    columns += [(title, help, "number" if form else "") for title, form, help in map(_NUMBERS.get, names)]  # type: ignore[misc]
    cells = [list(map(str, frame["rank"]))]
    tokens = [list(map(glyphs, frame[role])) for role in ("source", "destination", "out")]
    ranked = zip(tokens[0], frame["rank"].tolist(), strict=True)
    cells += [[pick(token, "Explain this row", {"row": rank, "beside": "one"}) for token, rank in ranked], *tokens[1:]]
    for name in names:
        form = _NUMBERS[name][1]
        cells.append([number_text(value, form) for value in frame[name]] if form else list(frame[name]))
        if name == "lift":
            signs = (" ≠" if disagrees else "" for disagrees in frame["lifts_disagree"])
            cells[-1] = [f"{lift}{sign}" for lift, sign in zip(cells[-1], signs, strict=True)]
    return [value_table(columns, list(zip(*cells, strict=True)), height="fill", marks=("row", every.first))]


def bugs(params: TrigramsParameters, result: TrigramRows) -> list[dict[str, Any]]:
    """List what pairs of confirmed rows imply, and what the text has of it."""
    columns = [
        ("source", "Of both confirmed rows", "mono"),
        ("true", "A confirmed row with this source", "mono"),
        ("followed", "How often its predicted token follows its pair", "number"),
        ("and true", "Another, with the same source", "mono"),
        ("followed", "How often its predicted token follows its pair", "number"),
        ("implied", "The one's destination with the other's predicted token: the head's score factors", "mono"),
        ("in the text", "false: enough places, and the predicted token comes less often than after the destination "
                        "anyway", ""),
        ("followed", "How often the implied token follows the pair", "number"),
        ("occurrences", "Where source … destination occurs", "number"),
        ("lift within documents", "How often the implied token follows, over what is expected within stretches of one "
                                  "document", "number"),
        ("implied effect", "attention of the one row × ov of the other, logits", "number"),
    ]  # fmt: skip
    lines = []
    for row in result.forced_frame().to_dict("records"):
        names = ("source", "destination", "out", "other_destination", "other_out")
        source, destination, out, other, other_out = (glyphs(row[name]) for name in names)
        lines.append(
            (
                source, f"… {destination} → {out}", number_text(row["followed"], ",d"), f"… {other} → {other_out}",
                number_text(row["other_followed"], ",d"), f"… {destination} → {other_out}",
                "false" if row["false"] else row["forced_verdict"], number_text(row["forced_followed"], ",d"),
                number_text(row["forced_occurrences"], ",d"), number_text(row["forced_lift_within"], ".2f"),
                number_text(row["forced_effect"], "+.3f"),
            )
        )  # fmt: skip
    return [value_table(columns, lines, height=height_of(lines))] if lines else []


def heads(params: TrigramsParameters, result: RowsByHead) -> list[dict[str, Any]]:
    """List the numbers of rows of every head."""
    frame = result.to_frame()
    names = [name for name in ("rows", *VERDICTS, *KINDS) if name in frame]
    columns = [("head", "layer.head; click to go there", "mono"), *((name, "", "number") for name in names)]
    lines = []
    for head, row in zip(result.heads, frame.to_dict("records"), strict=True):
        here = "here" if head == params.head else ""
        lines.append((pick(row["head"], "Go there", {"head": head}, here), *(f"{row[name]:,}" for name in names)))
    return [value_table(columns, lines, height=height_of(lines))]


def bigrams(params: TrigramsParameters, result: Bigrams) -> list[dict[str, Any]]:
    """List the entries of the direct path, and how often the text has them."""
    numbers = {
        "logit": ("logit", "+.2f", "Entry of the path above the mean over next tokens, in logits"),
        "predicted": ("predicted", ".2%", "P(next | last) if there were nothing but the path"),
        "probability": ("in the text", ".2%", "P(next | last) in the text"),
        "count": ("times", ",.0f", "How often next follows last in the text"),
    }
    frame = result.to_frame()
    numbers = {name: number for name, number in numbers.items() if name in frame}
    columns = [
        ("last token", "The last token of the text so far", "mono"),
        ("→ next", "The token whose logit it raises", "mono"),
        *((title, help, "number") for title, _, help in numbers.values()),
    ]
    cells = [map(glyphs, frame["first"]), map(glyphs, frame["second"])]
    cells += [[number_text(value, form) for value in frame[name]] for name, (_, form, _) in numbers.items()]
    return [value_table(columns, list(zip(*cells, strict=True)), height="fill")]


def row(params: TrigramsParameters, result: ExplainedRow) -> list[dict[str, Any]]:
    """List the places in text of a row, each with a link to Heads, and the best of the other rows of its group."""
    listed = []
    if result.examples:
        listed.append(_examples(params, result))
    others = result.row.others
    if len(others):
        columns = [*_TRIPLE, *((_NUMBERS[name][0], _NUMBERS[name][2], "number") for name in ("effect", "attention"))]
        lines = [
            (*map(glyphs, (each.source, each.destination, each.out)), number_text(each.effect, "+.3f"),
             f"{each.attention:.2%}")
            for each in others.to_frame().head(_MOST_OTHERS).itertuples()
        ]  # fmt: skip
        listed.append(value_table(columns, lines, heading=f"{len(others):,} further rows of its group", height="low"))
    return listed


def _examples(params: TrigramsParameters, result: ExplainedRow) -> dict[str, Any]:
    attention = "The head's attention from the destination to the source, and the distance in tokens"
    columns = [
        ("attention", attention, "number"),
        ("text", "Source, destination and next token are marked", "running"),
        ("", "", ""),
    ]
    lines = []
    places = zip(result.examples, result.examples_frame().itertuples(), result.tokens, strict=True)
    for example, place, tokens in places:
        opens: Any = "no text has these tokens"
        if place.prompt:
            fields = {"text": place.prompt, "position": place.position}
            opens = link_cell("Open in Heads", "This text in Heads", "heads", **fields)
        note = f"{example.attention:.1%}, {place.distance} back"
        lines.append((note, list(_parts(tokens, example)), opens))
    along = {"checkpoint": params.checkpoint, "head": params.head}
    return value_table(columns, lines, heading="Where it occurs", along=along)


def _parts(tokens: tuple[str, ...], example: Example) -> Iterator[Any]:
    """The tokens around the three marked ones, in order, as the parts of a sentence."""
    source, destination = example.source_position, example.destination_position
    out = ("predicted token: the token that came next", "role-out")
    instead = ("what came next, instead of the predicted token", "role-instead")
    marks = {
        source: ("source", "role-source"),
        destination: ("destination: the attention is this token's", "role-destination"),
        len(tokens) - 1: out if example.follows else instead,
    }
    start, stop = max(0, source - _AROUND), source + _AROUND + 1
    again = stop if destination - source <= _MOST_BETWEEN else max(0, destination - _AROUND)
    if start:
        yield "…"
    for place, token in enumerate(tokens):
        if place == stop < again:
            yield mark(f"… {again - stop} tokens …", "", "role-gap")
        text = glyphs(token)
        if place in marks:
            yield mark(text, *marks[place])
        elif start <= place < stop or place >= again:
            yield f"{text}\n" if text.endswith("⏎") else text
