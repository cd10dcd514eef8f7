"""The Skip-trigrams page's tables: the rows, and all heads."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
from dash import html

from app.pages.trigrams.address import KINDS
from app.shell.tables import grid, long_grid, number

_EVIDENCE = (
    "verdict", "lift_within", "lift", "occurrences", "followed", "measured_attention", "measured_effect",
    "ablation_change", "q_value", "verdict_by_document",
)  # fmt: skip


def rows_grid(id: str) -> html.Div:
    """Return a table of any length: the server sends what is in view."""
    return long_grid(id, row_columns(), key="id", height=560)


def hidden_columns(*, grouped: bool, scored: bool, checked: bool) -> list[str]:
    """Return the columns that say nothing of rows that are not grouped, that are ranked by their effect, or not
    checked."""
    own = {"grouped": grouped, "score": scored, **dict.fromkeys(_EVIDENCE, checked)}
    return [name for name, there in own.items() if not there]


def row_columns() -> list[dict[str, Any]]:
    """Return columns: rank, the group's size, the three tokens, the weights' numbers and the text's."""
    token: dict[str, Any] = {"cellClass": "mono pick"}
    return [
        {"field": "rank", "headerName": "", "width": 46, "cellClass": "rank", "type": "rightAligned",
         "headerTooltip": "Rank by the chosen score"},
        _grouped(),
        {"field": "source_shown", "headerName": "source", "headerTooltip": "Earlier in the text", **token},
        {"field": "destination_shown", "headerName": "… destination", "headerTooltip": "The current token", **token},
        {"field": "out_shown", "headerName": "→ predicted token", "headerTooltip": "The token whose logit moves",
         **token},
        number("score", "score", ".3f", "The score by which the rows are ranked: z + ov, or z × ov"),
        number("effect", "effect (logits)", "+.3f", "attention × ov: what the source adds to the predicted token's "
               "logit"),
        {"field": "verdict", "headerName": "verdict",
         "cellClassRules": {"good": "params.value == 'confirmed'", "rank": "params.value == 'too rare'"}},
        number("lift_within", "lift within documents", ".2f", "How often the predicted token follows source … "
               "destination, over what is expected within stretches of one document"),
        _lift_overall(),
        number("occurrences", "places", ",d", "Where source … destination occurs in the text"),
        {"field": "kind", "headerName": "kind", "headerTooltip": "By rules that read the strings; Kinds has them"},
        number("attention", "attention", ".2%", "The source's share against tokens of background"),
        number("qk", "z (nats)", ".2f", "The destination's attention score for the source, above the background"),
        number("ov", "ov (logits)", "+.2f", "The change of the predicted token's logit by all attention on the "
               "source, above the mean over all tokens"),
        number("followed", "followed", ",d", "Occurrences that the predicted token follows"),
        number("measured_attention", "attention in text", ".2%", "The head's mean attention from destination to source "
               "where they occur"),
        number("measured_effect", "effect in text", "+.3f", "The change of the predicted token's logit by this "
               "attention, mean, in logits"),
        number("ablation_change", "without the head", "+.3f", "Mean change of the predicted token's log-probability "
               "when the head writes nothing, nats; below 0 the head helps"),
        number("q_value", "q", ".2g", "p-value adjusted for the false discovery rate"),
        {"field": "verdict_by_document", "headerName": "whole documents",
         "headerTooltip": "The verdict with whole documents as stretches; too rare where there are fewer than 5"},
    ]  # fmt: skip


def _grouped() -> dict[str, Any]:
    """Return the column of how many further rows a row's group has; a click lists them, or hides them again."""
    help = "Further rows of the group, which say nearly the same: click or press Enter to list them"
    column = number("grouped", "grouped", ",d", help, cellClass="pick ag-right-aligned-cell")
    text = column["valueFormatter"]["function"]
    return {**column, "valueFormatter": {"function": f"params.value ? '+ ' + ({text}) : ''"}}


def _lift_overall() -> dict[str, Any]:
    """Return the column, marked where it lies on the other side of 1 than the lift within documents."""
    column = number("lift", "lift overall", ".2f", "P(predicted token | source … destination) ÷ P(predicted token | "
                    "destination), all places. ≠: on the other side of 1 than the lift within documents; the source "
                    "tells which passage it is")  # fmt: skip
    text = column["valueFormatter"]["function"]
    mark = "params.data && params.data.lifts_disagree ? ' ≠' : ''"
    return {**column, "valueFormatter": {"function": f"({text}) + ({mark})"}}


def forced_grid(id: str) -> dag.AgGrid:
    """Return a row a forced triple: two confirmed rows, what they force, and what the text says of that."""
    pair = {"cellClass": "mono"}
    columns = [
        {"field": "source", "headerName": "source", "cellClass": "mono",
         "headerTooltip": "Of both confirmed rows"},
        {"field": "one", "headerName": "true", "headerTooltip": "A confirmed row with this source", **pair},
        number("one_followed", "followed", ",d", "How often its predicted token follows its pair"),
        {"field": "other", "headerName": "and true", "headerTooltip": "Another, with the same source", **pair},
        number("other_followed", "followed", ",d", "How often its predicted token follows its pair"),
        {"field": "forced", "headerName": "forced", "headerTooltip": "The one's destination with the other's predicted "
         "token: the head's score factors, so it says this too", **pair},
        {"field": "judgement", "headerName": "in the text",
         "cellClassRules": {"broken": "params.value == 'false'", "good": "params.value == 'confirmed'",
                            "rank": "params.value == 'too rare'"},
         "headerTooltip": "false: enough places, and the predicted token comes less often than after the destination "
         "anyway"},
        number("followed", "followed", ",d", "How often the forced token follows the pair"),
        number("occurrences", "places", ",d", "Where source … destination occurs"),
        number("lift", "lift within documents", ".2f", "How often the forced token follows, over what is expected "
               "within stretches of one document"),
        number("effect", "forced effect", "+.3f", "attention of the one row × ov of the other, logits"),
    ]  # fmt: skip
    return grid(id, columns, key="id", height=_height(0))


def forced_height(n_rows: int) -> dict[str, str]:
    """Return the height of the forced triples' table: no taller than its rows, nor than a dozen of them."""
    return {"height": f"{_height(n_rows)}px"}


def _height(n_rows: int) -> int:
    return 70 + 26 * min(max(n_rows, 1), 12)


def heads_grid(id: str) -> dag.AgGrid:
    """Return a row a head."""
    return grid(id, head_columns(), key="head", height=300)


def head_columns() -> list[dict[str, Any]]:
    """Return columns: verdicts, then kinds."""
    return [
        {"field": "head", "headerName": "head", "cellClass": "mono pick",
         "cellClassRules": {"here": "params.data.chosen"},
         "headerTooltip": "layer.head; click or press Enter to go there"},
        number("rows", "rows", ",d", "Rows in the head's table"),
        number("confirmed", "confirmed", ",d", "In the chosen text"),
        number("not confirmed", "not confirmed", ",d", "In the chosen text"),
        number("too rare", "too rare", ",d", "In the chosen text"),
        *(number(kind, kind, ",d", "Rows of this kind") for kind in KINDS),
    ]  # fmt: skip


def bigrams_grid(id: str) -> dag.AgGrid:
    """Return a row a bigram of the direct path."""
    return grid(id, bigram_columns(counted=False), key="id", height=520)


def bigram_columns(*, counted: bool) -> list[dict[str, Any]]:
    """Return the two tokens, what the path says and, where a text was read, how often it is so there."""
    token = {"cellClass": "mono"}
    columns = [
        {"field": "first", "headerName": "last token", "headerTooltip": "The last token of the text so far", **token},
        {"field": "second", "headerName": "→ next", "headerTooltip": "The token whose logit it raises", **token},
        number("logit", "logit", "+.2f", "Entry of the path above the mean over next tokens, in logits"),
        number("predicted", "predicted", ".2%", "P(next | last) if there were nothing but the path"),
    ]
    if counted:
        columns += [
            number("probability", "in the text", ".2%", "P(next | last) in the chosen text"),
            number("count", "times", ",d", "How often next follows last in the chosen text"),
        ]
    return columns
