"""The glossary: each term once, every name in code is one that exists, and a source for each."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]


def test_a_term_stands_once_with_a_meaning_and_a_source() -> None:
    terms = [row[0] for row in ROWS]
    assert len(terms) > 60 and len(set(terms)) == len(terms)
    assert all(row[1] and row[-2] for row in ROWS)


def test_every_name_in_code_is_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "aotlens").rglob("*.py"))
    words = set(re.findall(r"\w+", code))
    named = {name for row in ROWS for name in re.findall(r"`([A-Za-z]\w+)[`(.=]", row[-1])}
    assert len(named) > 50 and named - words == set()
