"""`aotlens evaluate` prints the library's figures, several checkpoints below each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from aotlens.checkpoints import load
from aotlens.evaluate import evaluate_zero_shot

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lambada(tmp_path: Path) -> str:
    path = tmp_path / "lambada.txt"
    path.write_text("the cat sat on the mat\nthat was that and the cat\n")
    return str(path)


def test_two_checkpoints_side_by_side(run: Run, home: Path, lambada: str, tmp_path: Path) -> None:
    shutil.copytree(home / "small", home / "other")
    config = home / "other" / "config.json"
    config.write_text(config.read_text().replace('"name": "small"', '"name": "other"'))
    code, out, err = run("evaluate", "small", "other", "--suite", "zero-shot", "--lambada", lambada)
    assert (code, err) == (0, "")
    model = load("small", "cpu")
    result = evaluate_zero_shot({"small": model}, lambada=lambada)
    figures, differences, notes = out.strip().split("\n\n")
    of_small = [line for line in figures.splitlines() if "  small " in line]
    assert len(of_small) == len(result.measures) == 6
    for line, each in zip(of_small, result.measures, strict=True):
        value = f"{each.value:.2%}" if each.unit == "share" else f"{each.value:.3f}"
        assert each.measure in line and each.unit in line and f" {value} " in line
    assert "McNemar's p = 1" in differences and "+0.000" in differences
    assert notes.splitlines() == list(result.notes)
    file = tmp_path / "figures.csv"
    assert run("evaluate", "small", "other", "--lambada", lambada, "--csv", str(file)) == (0, f"{file}: 12 rows\n", "")
    assert list(pd.read_csv(file).value[:6]) == pytest.approx([each.value for each in result.measures])


def test_baselines_stand_beside_them(run: Run, lambada: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and that was that. " * 20)
    code, out, _ = run("evaluate", "small", "--lambada", lambada, "--baselines", f"file:{text}", "--limit", "1")
    assert code == 0 and "  unigram " in out and "  bigram " in out and "1 passages" in out


def test_what_cannot_be_is_one_line(run: Run, lambada: str) -> None:
    code, _, err = run("evaluate", "small", "--lambada", "none.txt")
    assert (
        code == 2
        and err == "aotlens: none.txt: there is no such file; give the file's path, or hf:NAME for the hub's.\n"
    )
    code, _, err = run("evaluate", "small", "--lambada", lambada, "--protocol", "aot")
    assert code == 2 and "LAMBADA needs a context of more than 11 tokens, got 6" in err
