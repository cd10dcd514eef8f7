"""Rows of a table of skip-trigrams as they are listed: searched, filtered, sorted, a page at a time; and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aotlens.plots import glyphs
from app.core.errors import RequestError
from app.pages.trigrams.address import KINDS, VERDICTS
from app.pages.trigrams.service import Choice, Reading, Trigrams, contains, frame_of

if TYPE_CHECKING:
    from aotlens.trigrams import FoldedTrigrams

#: What a row is shown by; columns that a table lacks, because it was not checked, are null.
COLUMNS = (
    "rank", "folded", "source_shown", "destination_shown", "out_shown", "score", "effect", "attention", "qk", "ov",
    "kind", "verdict", "occurrences", "windows", "followed", "p_out_after_pair", "p_out_after_destination", "lift",
    "lift_within", "lift_within_low", "lift_within_high", "lifts_disagree", "q_value", "verdict_by_document",
    "measured_attention", "measured_effect", "ablation_change",
)  # fmt: skip

#: At most this many rows in one answer, whatever the browser asks.
_MAX_PAGE = 1000


#: Instead of a verdict, where there is no evidence.
NOT_CHECKED = "not checked"


@dataclass(frozen=True, kw_only=True, eq=False)
class KindCounts:
    """How many rows are of each kind, and what text says about them."""

    kinds: tuple[str, ...]
    verdicts: tuple[str, ...]
    """confirmed, not confirmed, too rare; or only `not checked`."""
    counts: np.ndarray
    """`[kinds, verdicts]`."""


def select(frame: pd.DataFrame, filters: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that match every filter: parts of tokens, a verdict, a kind. Empty ones match all."""
    keep = np.ones(len(frame), dtype=bool)
    for column in ("source", "destination", "out"):
        wanted = filters.get(column)
        if wanted:
            keep &= np.fromiter((contains(one, str(wanted)) for one in frame[f"{column}_shown"]), bool, len(frame))
    if filters.get("verdict"):
        keep &= frame["verdict"].eq(filters["verdict"]).to_numpy() if "verdict" in frame else False
    if filters.get("kind"):
        keep &= frame["kind"].eq(filters["kind"]).to_numpy()
    return frame[keep]


def sort(frame: pd.DataFrame, model: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """By the grid's columns, stable, what is missing last."""
    known = [one for one in model if one.get("colId") in frame]
    if not known:
        return frame
    return frame.sort_values(
        [str(one["colId"]) for one in known],
        ascending=[one.get("sort") != "desc" for one in known],
        kind="stable",
        na_position="last",
    )


def page(frame: pd.DataFrame, start: int, end: int) -> list[dict[str, Any]]:
    """Rows `start` to `end` as the grid takes them; null for NaN, which JSON doesn't have."""
    start = max(start, 0)
    return _records(frame.iloc[start : min(end, start + _MAX_PAGE)])


def unfolded(
    frame: pd.DataFrame, trigrams: Trigrams, choice: Choice, opened: Sequence[int]
) -> list[tuple[int, dict[str, Any]]]:
    """The rows beneath the opened ones, best first, each with where in `frame` the row is that it is folded beneath.

    They have no rank and no verdict of their own.
    """
    folded = trigrams.folded(choice)
    records: list[tuple[int, dict[str, Any]]] = []
    if folded is None:
        return records
    for place in np.flatnonzero(frame["rank"].isin(list(opened))):
        rank = int(frame["rank"].iloc[place])
        members = folded.members(int(folded.best[rank - 1]))[1 : trigrams.settings.members_shown + 1]
        for record in _records(frame_of(folded.table.take(members), None)):
            records.append((int(place), {**record, "id": f"{rank}.{record['id']}", "rank": None}))
    return records


def with_unfolded(
    frame: pd.DataFrame, members: Sequence[tuple[int, dict[str, Any]]], start: int, end: int
) -> list[dict[str, Any]]:
    """Rows `start` to `end` of the frame with what `unfolded` gives after the rows that it is folded beneath."""
    if not members:
        return page(frame, start, end)
    # Of several with one key the order stays: the row of the frame, then its members.
    listed = [*((place, None) for place in range(len(frame))), *members]
    listed = sorted(listed, key=lambda entry: entry[0])[max(start, 0) : min(end, max(start, 0) + _MAX_PAGE)]
    return [record or _records(frame.iloc[[place]])[0] for place, record in listed]


def with_folded(frame: pd.DataFrame, folded: FoldedTrigrams) -> pd.DataFrame:
    """The listed rows, and after each all that are folded beneath it; `group` is the rank of the row that is listed.

    Those beneath have no rank and no verdict of their own.
    """
    group = np.searchsorted(folded.best, folded.beneath) + 1
    beneath = np.flatnonzero((group <= len(frame)) & (folded.beneath != np.arange(len(group))))
    members = frame_of(folded.table.take(beneath), None).drop(columns="rank").assign(group=group[beneath])
    # Integers stay integers where some are missing.
    whole = {str(name): "Int64" for name in frame.select_dtypes("integer")}
    listed = frame.assign(group=frame["rank"]).astype(whole)
    return pd.concat([listed, members]).sort_values("group", kind="stable", ignore_index=True)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    present = [column for column in COLUMNS if column in frame]
    records = frame[present].to_dict(orient="records")
    return [{"id": str(record["rank"]), **{key: _json(value) for key, value in record.items()}} for record in records]


def _json(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def count(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> KindCounts:
    """Kinds of the whole table. Raises RequestError until it is found."""
    frame = found_frame(trigrams, choice, reading)
    verdicts = VERDICTS if "verdict" in frame else (NOT_CHECKED,)
    words = frame["verdict"] if "verdict" in frame else [NOT_CHECKED] * len(frame)
    counts = np.zeros((len(KINDS), len(verdicts)), dtype=np.int64)
    for kind, word in zip(frame["kind"], words, strict=True):
        counts[KINDS.index(kind), verdicts.index(word)] += 1
    return KindCounts(kinds=KINDS, verdicts=verdicts, counts=counts)


def heads(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> list[dict[str, Any]]:
    """A record for every head of the model: how many rows of each kind and verdict, for tables that are there."""
    records, cfg = [], trigrams.core.catalog.load(choice.checkpoint).model.cfg
    for layer in range(cfg.n_layers):
        for head in range(cfg.n_heads):
            here = choice.at(layer, head)
            record: dict[str, Any] = {
                "head": f"{layer}.{head}", "goto": [layer, head],
                "chosen": (layer, head) == (choice.layer, choice.head),
            }  # fmt: skip
            if trigrams.table(here) is not None:
                counts = count(trigrams, here, reading)
                record["rows"] = int(counts.counts.sum())
                record.update({one: int(n) for one, n in zip(counts.kinds, counts.counts.sum(1), strict=True)})
                if len(counts.verdicts) > 1:
                    record.update({one: int(n) for one, n in zip(counts.verdicts, counts.counts.sum(0), strict=True)})
            records.append(record)
    return records


def forced_rows(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> list[dict[str, Any]]:
    """What pairs of confirmed rows force, as the table lists it; nothing before the check."""
    bugs = trigrams.bugs(choice, reading)
    if bugs is None:
        return []
    names = ("source", "destination", "out", "other_destination", "other_out")
    records = []
    for i, bug in enumerate(bugs.to_frame().to_dict(orient="records")):
        source, destination, out, other, other_out = (glyphs(bug[name]) for name in names)
        records.append(
            {
                "id": str(i),
                "source": source,
                "one": f"… {destination} → {out}",
                "one_followed": bug["followed"],
                "other": f"… {other} → {other_out}",
                "other_followed": bug["other_followed"],
                "forced": f"… {destination} → {other_out}",
                "judgement": "false" if bug["false"] else bug["forced_verdict"],
                "effect": _json(bug["forced_effect"]),
                "occurrences": bug["forced_occurrences"],
                "followed": bug["forced_followed"],
                "lift": _json(bug["forced_lift_within"]),
            }
        )
    return records


def found_frame(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> pd.DataFrame:
    """The frame. Raises RequestError until it is found."""
    frame = trigrams.frame(choice, reading)
    if frame is None:
        raise RequestError("The table is still being searched for.")
    return frame
