"""`aotlens ablate` against the library."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from aotlens.checkpoints import load
from aotlens.heads import ablate
from tests.commands.conftest import Run
from tests.messages import says

TEXT = "the cat sat"


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    for place, name in enumerate(("one", "two", "three")):
        text = "the cat sat on the mat, the rat sat on the cat, and that was that. " * (3 + place)
        (tmp_path / f"{name}.txt").write_text(text[7 * place :])
    return f"dir:{tmp_path}"


def test_a_prompt_without_heads(run: Run) -> None:
    code, out, _ = run("ablate", "small", "--text", TEXT, "--head", "1.0", "--head", "0.1")
    expected = ablate(load("small", "cpu"), TEXT, ["1.0", "0.1"])
    row = out.splitlines()[-1].split()
    assert code == 0 and row[:3] == ["1.0", "+", "0.1"]
    assert row[3:5] == [f"{expected.ablated_mean:.4g}", f"{expected.change:.4g}"] and len(row) == 5


def test_every_head_alone_on_a_corpus(run: Run, corpus: str, tmp_path: Path) -> None:
    code, out, _ = run("ablate", "small", "--corpus", corpus, "--how", "position_mean", "--sequences", "9")
    rows = [line.split() for line in out.splitlines()[3:]]
    assert code == 0 and "9 windows of 6 tokens" in out and [row[0] for row in rows] == ["0.0", "0.1", "1.0", "1.1"]
    assert all(float(row[3]) <= float(row[2]) <= float(row[4]) for row in rows)
    csv = tmp_path / "out.csv"
    arguments = ("--corpus", corpus, "--how", "position_mean", "--sequences", "9", "--csv", str(csv))
    assert run("ablate", "small", *arguments)[0] == 0
    frame = pd.read_csv(csv, dtype={"head": str})
    assert (
        len(frame) == 36
        and frame.cluster.nunique() == 3
        and frame.groupby("head").change.mean()["1.0"] == pytest.approx(float(rows[2][2]), rel=1e-3)
    )


def test_a_prompt_against_the_means_of_a_corpus(run: Run, corpus: str) -> None:
    code, out, _ = run("ablate", "small", "--text", TEXT, "--corpus", corpus, "--how", "resample", "--head", "1.0")
    assert code == 0
    says(out, "prompt", "64 windows", corpus)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--text TEXT, --ids IDS or --corpus SPEC"),
        (("--text", TEXT, "--how", "mean"), "a single sequence has no others"),
        (("--text", TEXT, "--how", "none"), "how='none'"),
        (("--text", TEXT, "--head", "9.9"), "head 9.9: this model has layers 0 to 1"),
        (("--head", "one"), "--head one: expected a layer and a head"),
    ],
)
def test_errors_are_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, _, error = run("ablate", "small", *arguments)
    assert code == 2 and message in error and error.count("\n") == 1
