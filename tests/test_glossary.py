"""The glossary: each term once, every name in code is one that exists, and a source for each."""

from __future__ import annotations

import re
from pathlib import Path

from aotlens.views import FAMILIES, family

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


def _terms() -> list[str]:
    parts = (re.split(r",|/|→", re.sub(r"\(.*?\)", "", row[0])) for row in ROWS)
    return [part.strip().lower() for row in parts for part in row if part.strip()]


def test_every_control_of_a_view_names_a_term() -> None:
    terms = [re.compile(rf"(?<!\w){re.escape(term)}(e?s)?(?!\w)") for term in _terms()]
    labels = {parameter.label for name in FAMILIES for parameter in family(name).parameters.values()}
    unknown = {label for label in labels if not any(term.search(label.lower()) for term in terms)}
    assert len(labels) > 90 and unknown == set()
