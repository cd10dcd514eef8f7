"""Rows of a table of skip-trigrams as they are listed: searched, sorted, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from app.pages.trigrams.service import with_glyphs

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.trigrams import TrigramRows

#: The columns that a row is shown by; those that a table lacks, because it was not checked, are null.
COLUMNS = (
    "rank", "grouped", "source_shown", "destination_shown", "out_shown", "score", "effect", "attention", "qk", "ov",
    "kind", "verdict", "occurrences", "windows", "followed", "p_out_after_pair", "p_out_after_destination", "lift",
    "lift_within", "lift_within_low", "lift_within_high", "lifts_disagree", "q_value", "verdict_by_document",
    "measured_attention", "measured_effect", "ablation_change",
)  # fmt: skip
#: At most this many rows in one answer, whatever the browser asks.
_MAX_PAGE = 1000


def select(frame: pd.DataFrame, filters: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return the rows that match every filter: parts of tokens, a verdict, a kind."""
    from aotlens.trigrams.find import is_like

    keep = np.ones(len(frame), dtype=bool)
    for column, wanted in filters:
        if column in ("verdict", "kind"):
            keep &= frame[column].eq(wanted).to_numpy() if column in frame else False
        else:
            keep &= np.fromiter((is_like(token, wanted) for token in frame[f"{column}_shown"]), bool, len(frame))
    return frame[keep]


def sort(frame: pd.DataFrame, model: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Sort by the grid's columns, stable, what is missing last."""
    known = [each for each in model if each.get("colId") in frame]
    if not known:
        return frame
    return frame.sort_values(
        [str(each["colId"]) for each in known],
        ascending=[each.get("sort") != "desc" for each in known],
        kind="stable",
        na_position="last",
    )


def page(
    frame: pd.DataFrame, rows: TrigramRows, opened: Sequence[int], start: int, end: int, *, most: int
) -> tuple[list[dict[str, Any]], int]:
    """Return rows `start` to `end` as the grid takes them, and how many there are, with at most so many others of the
    group of each row in `opened` after it. They have no rank and no verdict of their own."""
    places = list(range(len(frame)))
    others: dict[int, dict[str, Any]] = {}
    if opened and rows.groups is not None:
        places = []
        for place, rank in enumerate(frame["rank"].tolist()):
            places.append(place)
            if rank not in opened:
                continue
            members = rows.members(rank)
            table = members.take(np.arange(min(len(members), most)))
            for record in records(with_glyphs(type(rows)(table=table).listed_frame())):
                others[len(places)] = {**record, "id": f"{rank}.{record['id']}", "rank": None}
                places.append(place)
    start = max(start, 0)
    listed = range(len(places))[start : min(end, start + _MAX_PAGE)]
    own = iter(records(frame.iloc[[places[index] for index in listed if index not in others]]))
    return [others[index] if index in others else next(own) for index in listed], len(places)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as the grid takes them; null for NaN, which JSON doesn't have."""
    present = [column for column in COLUMNS if column in frame]
    rows = frame[present].to_dict(orient="records")
    return [{"id": str(row["rank"]), **{key: exact(value) for key, value in row.items()}} for row in rows]


def exact(value: Any) -> Any:
    """Return the value; None for what is no number."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
