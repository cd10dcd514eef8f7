"""The table of explained variance: who is in it, and that it says what the library says of each head on each text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlens
from analyses import score_groups
from analyses._texts import windows
from aotlens.data import open_corpus
from aotlens.paths import expand, explained_variance

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def test_a_row_is_of_every_head_that_reads_heads_on_every_text(tmp_path: Path, capsys: Any) -> None:
    text = tmp_path / "novel.txt"
    text.write_text("The captain bowed to the lady, and the lady bowed to the captain. " * 30, encoding="utf-8")
    spec = f"file:{text}"
    options = ["--corpus", spec, "--checkpoint", "novels-2l-gpt", "--texts", "2", "--length", "12"]
    assert score_groups.main(options) == 0
    out = capsys.readouterr().out
    model = aotlens.load("novels-2l-gpt", "cpu")
    (rows,) = windows(model, open_corpus(spec), 12, 2, 1)
    units = [explained_variance(expand(model, tokens), (1, head)) for tokens in rows for head in range(4)]
    cells = [cell.strip() for cell in out.splitlines()[-1].split("|")]
    assert cells[:4] == ["`novels-2l-gpt`", "MHSA and MLPs", "8", f"{units[0].n_groups}"]
    for k, cell in zip((1, 5, 20), cells[4:7], strict=True):
        low, middle, high = np.quantile([unit.explained(k) for unit in units], [0.25, 0.5, 0.75])
        assert cell == f"{middle:.2f} ({low:.2f} to {high:.2f})"
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", cells[7])
    firsts = [" × ".join(unit.groups[0]) for unit in units]
    name, share = cells[8].rsplit(", ", 1)
    assert firsts.count(name) == max(map(firsts.count, firsts)) and share == f"{firsts.count(name) / 8:.0%}"


def test_novels_are_left_out_without_a_corpus_and_said_to_be(capsys: Any) -> None:
    assert score_groups.main(["--quick", "--checkpoint", "novels-2l-mhsa"]) == 0
    captured = capsys.readouterr()
    assert "novels-2l-mhsa: left out" in captured.err and "Nothing was measured" in captured.out
    names = score_groups.bundled_language_models()
    assert "novels-12l-mssa" in names and not {"novels-1l-mhsa", "fashion-vit"} & set(names)
