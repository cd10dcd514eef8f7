"""The Skip-trigrams page's tables: the rows, and all heads."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
from dash import html

from app.pages.trigrams.address import KINDS
from app.shell.tables import grid, long_grid, number


def rows_grid(id: str) -> html.Div:
    """A table of any length: the server sends what is in view."""
    return long_grid(id, row_columns(checked=False), key="id", height=560)


def row_columns(*, checked: bool, score: str = "effect") -> list[dict[str, Any]]:
    """Rank, the three tokens, then the weights' numbers and, where there is evidence, the text's."""
    token: dict[str, Any] = {"cellClass": "mono pick", "minWidth": 76, "flex": 2}
    columns = [
        {"field": "rank", "headerName": "", "width": 46, "cellClass": "rank", "type": "rightAligned",
         "headerTooltip": "Rank by the chosen score"},
        {"field": "source_shown", "headerName": "source", "headerTooltip": "Earlier in the text", **token},
        {"field": "destination_shown", "headerName": "… destination", "headerTooltip": "The current token", **token,
         "minWidth": 86},
        {"field": "out_shown", "headerName": "→ out", "headerTooltip": "The token whose logit moves", **token},
    ]  # fmt: skip
    if score != "effect":
        columns.append(
            number(
                "score",
                {"sum": "z + ov", "product": "z × ov"}[score],
                ".3f",
                "What the rows are ranked by",
                minWidth=80,
                flex=1,
            )
        )
    columns.append(
        number("effect", "effect (logits)", "+.3f", "attention × ov: what the source adds to the out's logit",
               minWidth=66, flex=1)
    )  # fmt: skip
    if checked:
        columns += [
            {"field": "verdict", "headerName": "verdict", "minWidth": 94, "flex": 1,
             "cellClassRules": {"good": "params.value == 'confirmed'", "rank": "params.value == 'too rare'"}},
            number("lift_within", "lift within", ".2f", "How often the out follows source … destination, over what is "
                   "expected within stretches of one document", minWidth=52, flex=1),
            pooled_lift(),
            number("occurrences", "places", ",d", "Where source … destination occurs in the text", minWidth=58, flex=1),
        ]  # fmt: skip
    columns += [
        {"field": "kind", "headerName": "kind", "minWidth": 86, "flex": 1,
         "headerTooltip": "By rules that read the strings; they stand below"},
        number("attention", "attention", ".2%", "The source's share against tokens of background", minWidth=70, flex=1),
        number("qk", "z (nats)", ".2f", "What the destination scores the source, above the background", minWidth=56,
               flex=1),
        number("ov", "ov (logits)", "+.2f", "What all attention on the source would add to the out's logit, above "
               "the mean over outs", minWidth=60, flex=1),
    ]  # fmt: skip
    if checked:
        columns += [
            number("followed", "followed", ",d", "Occurrences that the out follows", minWidth=66, flex=1),
            number("measured_attention", "attention in text", ".2%", "The head's mean attention from destination to "
                   "source where they occur", minWidth=70, flex=1),
            number("measured_effect", "effect in text", "+.3f", "What this attention adds to the out's logit, mean, in "
                   "logits", minWidth=66, flex=1),
            number("ablation_change", "without the head", "+.3f", "Mean change of the out's log-probability when the "
                   "head writes nothing, nats; below 0 the head helps", minWidth=66, flex=1),
            number("q_value", "q", ".2g", "p-value adjusted for the false discovery rate", minWidth=54, flex=1),
            {"field": "verdict_by_document", "headerName": "whole documents", "minWidth": 94, "flex": 1,
             "headerTooltip": "The verdict with whole documents as stretches; too rare where there are fewer than 5"},
        ]  # fmt: skip
    return columns


def pooled_lift() -> dict[str, Any]:
    """Marked where it lies on the other side of 1 than the lift within stretches."""
    column = number("lift", "lift pooled", ".2f", "P(out | source … destination) ÷ P(out | destination), all places. "
                    "≠: on the other side of 1 than the lift within; the source tells which passage it is",
                    minWidth=60, flex=1)  # fmt: skip
    text = column["valueFormatter"]["function"]
    mark = "params.data && params.data.lifts_disagree ? ' ≠' : ''"
    return {**column, "valueFormatter": {"function": f"({text}) + ({mark})"}}


def forced_grid(id: str) -> dag.AgGrid:
    """A row a forced triple: two confirmed rows, what they force, and what the text says of that."""
    pair = {"cellClass": "mono", "minWidth": 100, "flex": 2}
    columns = [
        {"field": "source", "headerName": "source", "cellClass": "mono", "minWidth": 62, "flex": 1,
         "headerTooltip": "Of both confirmed rows"},
        {"field": "one", "headerName": "true", "headerTooltip": "A confirmed row with this source", **pair},
        number("one_followed", "followed", ",d", "How often its out follows its pair", minWidth=66, flex=1),
        {"field": "other", "headerName": "and true", "headerTooltip": "Another, with the same source", **pair},
        number("other_followed", "followed", ",d", "How often its out follows its pair", minWidth=66, flex=1),
        {"field": "forced", "headerName": "forced", "headerTooltip": "The one's destination with the other's out: the "
         "head's score factors, so it says this too", **pair},
        {"field": "judgement", "headerName": "in the text", "minWidth": 90, "flex": 1,
         "cellClassRules": {"broken": "params.value == 'false'", "good": "params.value == 'confirmed'",
                            "rank": "params.value == 'too rare'"},
         "headerTooltip": "false: enough places, and the out comes less often than after the destination anyway"},
        number("followed", "followed", ",d", "How often the forced out follows the pair", minWidth=66, flex=1),
        number("occurrences", "places", ",d", "Where source … destination occurs", minWidth=54, flex=1),
        number("lift", "lift within", ".2f", "How often the forced out follows, over what is expected within stretches "
               "of one document", minWidth=46, flex=1),
        number("effect", "forced effect", "+.3f", "attention of the one row × ov of the other, logits", minWidth=60,
               flex=1),
    ]  # fmt: skip
    return grid(id, columns, key="id", height=_height(0))


def forced_height(n_rows: int) -> dict[str, str]:
    """Of the forced triples' table: no taller than its rows, nor than a dozen of them."""
    return {"height": f"{_height(n_rows)}px"}


def _height(n_rows: int) -> int:
    return 70 + 26 * min(max(n_rows, 1), 12)


def heads_grid(id: str) -> dag.AgGrid:
    """A row a head."""
    return grid(id, head_columns(), key="head", height=300)


def head_columns() -> list[dict[str, Any]]:
    """Verdicts, then kinds."""
    return [
        {"field": "head", "headerName": "head", "flex": 1, "minWidth": 50, "cellClass": "mono pick",
         "cellClassRules": {"here": "params.data.chosen"},
         "headerTooltip": "layer.head; click or press Enter to go there"},
        number("rows", "rows", ",d", "Rows in the head's table", flex=1, minWidth=50),
        number("confirmed", "confirmed", ",d", "In the chosen text", flex=1, minWidth=76),
        number("not confirmed", "not confirmed", ",d", "In the chosen text", flex=1, minWidth=76),
        number("too rare", "too rare", ",d", "In the chosen text", flex=1, minWidth=50),
        *(number(kind, kind, ",d", "Rows of this kind", flex=1, minWidth=84) for kind in KINDS),
    ]  # fmt: skip
