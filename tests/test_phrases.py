"""Phrases that stood for a term of the field are retired: no label, caption, message, help or page says one again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.conventions import minus

ROOT = Path(__file__).resolve().parents[1]

#: What was said → what the field says (docs/glossary.md has its meaning).
RETIRED = {
    "off means nothing": "ablate by zero",
    "every head is on": "no heads ablated",
    "in a head's place": "replace head output with",
    "the whole model": "the full model",
    "plain score": "raw score",
    "query: who looks": "query (destination)",
    "key: where it looks": "key (source)",
    "who attends to it": "attention to this token",
    "to the key;": "moved X into the key",
    "ranks are proven": "exact top 20",
    "what true rows force": "skip-trigram bugs",
    "forced skip-trigrams": "skip-trigram bugs",
    "training count from": "min token frequency",
    "lift within": "lift within documents",
    "constancy": "pattern consistency",
    "loss with its mean pattern": "Δ loss, mean pattern",
    "reads most": "strongest input composition",
    "feeds most": "strongest output composition",
    "drawn tokens": "synthetic tokens",
    "looked into": "inspected model",
    "even attention": "uniform attention",
    "dossier": "head summary",
    "that know nothing": "under the null",
    "this can't be shown": "cannot run",
    "folded, varied": "grouped, distinct",
}
#: Not where it is a name in code: quoted, behind a dot, called.
_PATTERN = re.compile(
    "|".join(rf"(?<![\w\"'._`#]){re.escape(phrase)}(?! documents)(?![\w\"'(`])" for phrase in RETIRED), re.IGNORECASE
)


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string of two words or more; docstrings only of commands, whose help they are."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    in_commands = "commands" in path.relative_to(ROOT).parts
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and not in_commands}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            text = " ".join(node.value.split()).replace("’", "'")
            if " " in text:
                yield node.lineno, text


def retired_in(path: Path) -> list[str]:
    """Places of a file that say a retired phrase, and what the field says instead."""
    if path.suffix == ".py":
        lines = list(_strings(path))
    else:
        text = path.read_text(encoding="utf-8").replace("’", "'")
        lines = [
            (text.count("\n", 0, at.start()) + 1, " ".join(at[0].split())) for at in re.finditer(r"(?:.+\n?)+", text)
        ]
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: say {RETIRED[match[0].lower()]!r}"
        for number, text in lines
        for match in _PATTERN.finditer(text)
    ]


def unlike_a_plus(path: Path) -> list[str]:
    """Places of a file that write a number with its sign and leave a hyphen for the minus."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    replaced = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "replace"
        for part in ast.walk(node.value)
    }
    numbers = (each for each in ast.walk(tree) if isinstance(each, ast.FormattedValue) and id(each) not in replaced)
    signed = (each for each in numbers if each.format_spec is not None and "'+" in ast.unparse(each.format_spec))
    return [f"{path.relative_to(ROOT)}:{each.lineno}" for each in signed]


def test_captions_and_figures_write_a_minus_as_long_as_a_plus() -> None:
    folders = ("aotlens/views", "aotlens/plots", "app")
    said = [place for folder in folders for path in (ROOT / folder).rglob("*.py") for place in unlike_a_plus(path)]
    assert not said, f"{said}: write aotlens.conventions.minus(number, form)"
    assert minus(-0.4, "+.3f") == "−0.400"


def test_no_label_message_or_page_says_a_retired_phrase() -> None:
    files = [*(ROOT / "aotlens").rglob("*.py"), *(ROOT / "app").rglob("*.py"), *(ROOT / "app").rglob("*.js")]
    files += [
        *(ROOT / "aotlens").rglob("*.js"),
        *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
        ROOT / "README.md",
    ]
    files = [path for path in files if path.name not in ("CHANGELOG.md", "glossary.md", "changelog.md")]
    assert len(files) > 500
    said = [place for path in files for place in retired_in(path)]
    if said:
        pytest.fail("\n".join(said))


def test_a_phrase_is_found_in_a_label_and_not_in_a_docstring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "page.py"
    path.write_text('"""What reads most."""\nLABEL = f"it Reads  most of {1}"\nKEY = "constancy"\n', encoding="utf-8")
    assert [place.split(": ")[0] for place in retired_in(path)] == ["page.py:2"]
