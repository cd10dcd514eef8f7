"""Heads by their scores: "induction > 0.4 and layer = 1" among the columns of a table of heads.

    search := all { "or" all }
    all    := term { "and" term }
    term   := COLUMN (> | >= | < | <= | = | !=) VALUE   |   WORDS, which the head's label contains

A column's name is that of the table, with "_" or spaces. Numbers are compared as numbers, texts by = and != without
regard to case. A head that lacks a number is not found by it, whatever the comparison. "and" binds before "or"; there
are no parentheses. `head = 1.0`, or 1.0 alone, is that head. Nothing is evaluated but these comparisons.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from aotlens.conventions import head_name

if TYPE_CHECKING:
    import pandas as pd

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "=": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_TERM = re.compile(r"(?P<column>[^<>=!]+?)\s*(?P<sign>>=|<=|!=|==|=|>|<)\s*(?P<value>[^<>=!]+)")
_MOST_CHARACTERS = 300


def rows_where(frame: pd.DataFrame, search: str) -> Bool[np.ndarray, " row"]:
    """Find the rows of a table of heads that match a search; all for an empty one.

    Raises `ValueError`, which names the term, for a column that the table does not have (with the nearest ones), for a
    value that is no number where numbers are compared, and for a line that cannot be read.
    """
    if not search.strip():
        return np.ones(len(frame), dtype=bool)
    if len(search) > _MOST_CHARACTERS:
        raise ValueError(f"expected a search of at most {_MOST_CHARACTERS} characters, got {len(search)}.")
    matches = np.zeros(len(frame), dtype=bool)
    for alternative in re.split(r"\s+or\s+", search.strip(), flags=re.IGNORECASE):
        rows = np.ones(len(frame), dtype=bool)
        for term in re.split(r"\s+and\s+", alternative, flags=re.IGNORECASE):
            rows &= _rows_of_term(frame, term.strip())
        matches |= rows
    return matches


def _rows_of_term(frame: pd.DataFrame, term: str) -> Bool[np.ndarray, " row"]:
    if not re.search(r"[<>=!]", term):
        return _rows_of_words(frame, term)
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError(
            f"{term!r}: expected a column, one of > >= < <= = != and a value, as induction > 0.4; or words of a label. "
            "Join terms with and, alternatives with or."
        )
    sign = "=" if match["sign"] == "==" else match["sign"]
    written, value = match["column"].strip(), match["value"].strip()
    if _plain(written) == "head" and sign in ("=", "!=") and re.fullmatch(r"\d+\.\d+", value):
        return _COMPARISONS[sign](_names(frame), value)
    name = _column(frame, written, term)
    column = frame[name]
    if column.dtype.kind not in "biuf":
        if sign not in ("=", "!="):
            raise ValueError(f"{term!r}: {name} is a text, so expected = or !=, got {sign}.")
        texts = np.array([_plain(text) for text in column])
        return _COMPARISONS[sign](texts, _plain(value))
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{term!r}: {name} is a number, so expected one after {sign}, got {value!r}.") from None
    values = column.to_numpy(dtype=np.float64)
    return _COMPARISONS[sign](values, number) & np.isfinite(values)


def _rows_of_words(frame: pd.DataFrame, words: str) -> Bool[np.ndarray, " row"]:
    wanted = _plain(words)
    if re.fullmatch(r"\d+\.\d+", wanted):
        return _names(frame) == wanted
    matches = np.array([wanted in _plain(label) for label in frame["label"]], dtype=bool)
    if not matches.any():  # a motif is a label and a column: where heads have the label, that is meant
        if wanted in map(_plain, frame.columns):
            raise ValueError(f"{words!r} is a column: compare it with something, as {words} > 0.4.")
        labels = sorted({_plain(label) for label in frame["label"]})
        raise ValueError(f"{words!r}: no head has such a label; there are {', '.join(labels)}.")
    return matches


def _names(frame: pd.DataFrame) -> np.ndarray:
    return np.array(list(map(head_name, zip(frame["layer"], frame["head"], strict=True))))


def _column(frame: pd.DataFrame, written: str, term: str) -> str:
    known = {_plain(name): str(name) for name in frame.columns}
    wanted = _plain(written)
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, 4, 0.5)
        instead = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(known)}."
        raise ValueError(f"{term!r}: there is no column {written!r}. {instead}")
    return known[wanted]


def _plain(text: object) -> str:
    return re.sub(r"[\s_]+", " ", str(text).strip().casefold())
