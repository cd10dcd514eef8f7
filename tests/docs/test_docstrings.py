"""A docstring as the site shows it: no character is lost or turned into markup, and names become links."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.test_structure import ROOT

pytest.importorskip("sphinx", reason="Sphinx is not installed; make docs installs it")

Markup = Callable[[list[str]], Iterator[str]]


@pytest.fixture(scope="module")
def markup() -> Iterator[Markup]:
    """`docs/_ext/docstrings.py`'s, imported as the build imports it, with the one role that it uses."""
    from docutils import nodes
    from docutils.parsers.rst import roles

    roles.register_local_role("py:obj", roles.GenericRole("py:obj", nodes.literal))
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    import docstrings

    yield docstrings.markup
    sys.path.remove(str(ROOT / "docs" / "_ext"))


def parsed(lines: Iterator[str]) -> object:
    """What docutils makes of the markup; anything that it complains of is an error."""
    from docutils.core import publish_doctree

    settings = {"halt_level": 2, "report_level": 2, "syntax_highlight": "none", "smart_quotes": False}
    return publish_doctree("\n".join(lines), settings_overrides=settings)


def docstrings_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (docstring := ast.get_docstring(node)):
            yield docstring


@pytest.mark.parametrize("package", ["circuits", "denoise", "distill", "heads", "models", "paths", "trigrams"])
def test_no_character_of_a_docstring_is_lost(markup: Markup, package: str) -> None:
    """Beside the docstring less blanks, the marks of code and emphasis, and bullets."""

    def bare(text: str) -> str:
        return re.sub(r"[\s`*]|^- ", "", re.sub(r"^(- |\d+\. )", "", text, flags=re.MULTILINE))

    count = 0
    for path in sorted((ROOT / "aotlens" / package).rglob("*.py")):
        for docstring in docstrings_of(path):
            shown = parsed(markup(docstring.splitlines()))
            assert bare(shown.astext()) == bare(docstring), path  # type: ignore[attr-defined]
            count += 1
    assert count > 20


def test_formulas_stay_text_and_code_becomes_code(markup: Markup) -> None:
    line = "W_ and *aot* and |x_i| <= *y* of `a_`, `aotlens.heads.ablate` and ``b * c``: :name:`x`."
    shown = re.sub("\x00 ?", "", str(parsed(markup([line]))))  # docutils' own sign of what was escaped
    assert "W_ and <emphasis>aot</emphasis> and |x_i| <= <emphasis>y</emphasis>" in shown
    assert shown.count("<literal") == 4 and "<problematic" not in shown


def test_blocks_keep_their_columns(markup: Markup) -> None:
    lines = [
        "Text:",
        "",
        "    y = A x",
        "      + b",
        "",
        "one.py   says one",
        "two.py   says two",
        "",
        "- an item",
        "  goes on",
        "- another",
    ]
    shown = str(parsed(markup(lines)))
    assert "y = A x\n  + b</literal_block>" in shown and "one.py   says one\ntwo.py   says two</literal_block>" in shown
    assert shown.count("<list_item>") == 2 and "an item goes on" in shown
