"""The glossary: each term once, every name in code is one that exists, and a source for each."""

from __future__ import annotations

import re
from pathlib import Path

from aotlens.views import FAMILIES, family

ROOT = Path(__file__).resolve().parents[1]
_TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
_BEFORE, _COLUMNS, _AFTER = re.split(r"^## (?=Columns of tables|Files)", _TEXT, flags=re.MULTILINE)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if re.match(r"\| (?!term |column |part of a name )", line)]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


ROWS = _rows(_BEFORE + _AFTER)
COLUMNS = _rows(_COLUMNS)


def test_a_term_stands_once_with_a_meaning_and_a_source() -> None:
    first = [row[0] for row in (*ROWS, *COLUMNS)]
    assert len(first) > 100 and len(set(first)) == len(first)
    assert all(row[1] and row[-2] for row in ROWS) and all(all(row) for row in COLUMNS)


def test_every_name_in_code_is_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "aotlens").rglob("*.py"))
    words = set(re.findall(r"\w+", code))
    named = {name for row in ROWS for name in re.findall(r"`([A-Za-z]\w+)[`(.=]", row[-1])}
    assert len(named) > 50 and named - words == set()


def terms(rows: list[list[str]]) -> list[str]:
    """The terms of the first cells, in small letters."""
    parts = (re.split(r",|/|→", re.sub(r"\(.*?\)", "", row[0])) for row in rows)
    return [part.strip().lower() for row in parts for part in row if part.strip()]


def test_every_control_of_a_view_names_a_term() -> None:
    patterns = [re.compile(rf"(?<!\w){re.escape(term)}(e?s)?(?!\w)") for term in terms(ROWS)]
    labels = {parameter.label for name in FAMILIES for parameter in family(name).parameters.values()}
    unknown = {label for label in labels if not any(pattern.search(label.lower()) for pattern in patterns)}
    assert len(labels) > 90 and unknown == set()
