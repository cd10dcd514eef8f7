"""The page of skip-trigrams, end to end on a bundled checkpoint and text of a few pages."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import aotlens
from analyses import _skip_trigram_page as page
from analyses import skip_trigrams
from aotlens.data import open_corpus
from aotlens.train import load_recipe
from aotlens.trigrams import read_ids

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

SCENE = 'CHAPTER I.\n\n"Thou art late," said he. "I know," she said; "but thou art not angry?"\n\n'
OTHER = "He went to the | house; and `she` was there with him, and she was not there. "


@pytest.fixture
def novels(tmp_path: Path) -> str:
    """The documents that the recipe holds out, and one that it does not."""
    folder = tmp_path / "novels"
    folder.mkdir()
    held_out = load_recipe("novels-1l-mhsa").corpus.validation
    assert isinstance(held_out, tuple)
    for name in (*held_out, "Other"):
        (folder / f"{name}.txt").write_text((SCENE * 4 + OTHER * 5) * 15, encoding="utf-8")
    return f"dir:{folder}"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.minutes
def test_every_table_is_written(novels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table.md"
    out.write_text("# Skip-trigrams\n\n<!-- skip_trigrams -->\n\n<!-- /skip_trigrams -->\n", encoding="utf-8")
    assert skip_trigrams.main(["--corpus", novels, "--quick", "--min-count", "20000", "--docs", str(out)]) == 0
    text = capsys.readouterr().out
    assert "of 3 claims hold" in out.read_text(encoding="utf-8")
    assert str(tmp_path) not in text and "Theorem 25 on held-out text" in text
    assert text.count("share of testable rows") == 2 and "share of the best rows that text confirms" in text
    assert "## novels-1l-mhsa" in text and "tokens of 5 documents" in text and "Other" not in text
    assert text.count("### Among ") == 2 and text.count("### Rows, among ") == 2
    lines, seen = text.splitlines(), 0
    for line in lines:
        if line.startswith("0.0 | ") and "of 100 (" in line:
            seen += 1
            _, where, own, testable, _, _, _, other, *_ = cells(f"| {line} |")
            confirmed = int(own.split()[0])
            assert own == f"{confirmed} of 100 ({confirmed}%)" and confirmed <= int(testable) <= 100
            assert "of 1,000" in other and where == "the token before (100%)"
    assert seen == 2
    tables = [list(rows) for is_row, rows in groupby(lines, lambda line: " | " in line) if is_row]
    assert len(tables) >= 5
    for rows in tables:
        assert len({len(cells(f"| {row} |")) for row in rows}) == 1, rows[0]


def test_the_library_says_the_same(novels: str) -> None:
    model = aotlens.load("novels-1l-mhsa", "cpu")
    ids = read_ids(model, open_corpus(novels), documents=["Other"])
    results = list(skip_trigrams.of_heads(model, [6], ids, [20_000]))
    assert [one.min_count for one in results] == [0, 20_000]
    counts = model.unigram_counts
    assert counts is not None
    assert int(counts[np.unique(results[1].found.table.source)].min()) >= 20_000
    one = results[0]
    row = next(line for line in page.share_lines(model, 0, [one]) if line.startswith("| 0.6 "))
    assert cells(row)[2].startswith(f"{one.found.n_confirmed} of 100")
    rows = [line for line in page.row_lines(model, 0, [one.found]) if line.startswith("| 0.6 ")]
    assert [cells(row)[1] for row in rows[:3]] == ["1", "2", "3"]
    assert all(cells(row)[-2] == "confirmed" for row in rows[3:])
    followed = next(e for e in one.found.examples if e.follows)
    assert page._instance(model, followed) != "–" and "\n" not in page._instance(model, followed)


def test_text_that_means_something_in_markdown() -> None:
    assert page._code('"a|b"') == '`"a\\|b"`' and page._code('"`"') == '`` "`" ``'


def test_one_layer_checkpoints_are_found() -> None:
    assert "novels-1l-mhsa" in skip_trigrams.one_layer_checkpoints()
