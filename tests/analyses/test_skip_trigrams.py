"""The table of skip-trigrams, end to end on a bundled checkpoint and text of a few pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyses import skip_trigrams
from aotlens.data import open_corpus
from aotlens.train import load_recipe

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

SCENE = 'CHAPTER I.\n\n"Thou art late," said he. "I know," she said; "but thou art not angry?"\n\n'


@pytest.fixture
def novels(tmp_path: Path) -> str:
    """The documents that the recipe holds out, and one that it does not."""
    folder = tmp_path / "novels"
    folder.mkdir()
    held_out = load_recipe("novels-1l-mhsa").corpus.validation
    assert isinstance(held_out, tuple)
    for name in (*held_out, "Other"):
        (folder / f"{name}.txt").write_text(SCENE * 60, encoding="utf-8")
    return f"dir:{folder}"


def test_both_tables_are_written(novels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table.md"
    assert skip_trigrams.main(["--corpus", novels, "--quick", "--out", str(out)]) == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "## novels-1l-mhsa" and "of 5 documents" in lines[2]
    rows = [line for line in lines if line.startswith("| 0.0 |")]
    assert 2 <= len(rows) <= 1 + skip_trigrams.N_SHOWN
    counts = [cell.strip() for cell in rows[0].split("|")[2:-1]]
    share, *_ = counts
    assert int(share.rstrip("%")) + int(counts[1]) + int(counts[2]) == skip_trigrams.N_ROWS
    assert capsys.readouterr().out == ""


def test_only_held_out_documents_are_read(novels: str) -> None:
    corpus = open_corpus(novels)
    assert "Other" not in skip_trigrams.held_out("novels-1l-mhsa", corpus)
    assert skip_trigrams.held_out("somebody-elses", corpus) == corpus.names()
    assert skip_trigrams.one_layer_checkpoints() == ["novels-1l-mhsa"]
