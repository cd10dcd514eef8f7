"""`aotlens subspaces` prints what the library finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from aotlens.checkpoints import load
from aotlens.heads import subspaces
from tests.messages import says

Run = Callable[..., tuple[int, str, str]]


def test_the_tables(run: Run) -> None:
    code, out, err = run("subspaces", "small", "--top", "2")
    assert (code, err) == (0, "")
    result = subspaces(load("small", "cpu"))
    first, _, head, *rows = out.splitlines()
    says(first, "7 dimensions", "8 dimensions cannot be orthogonal", "16 of all layers cannot")
    assert head.split()[:3] == ["head", "rank", "effective"]
    heads = result.head_frame().iloc[3]
    overlaps = (heads.overlap, heads.random_mean, heads.behind_gain_mean)
    assert rows[3].split()[:2] == ["1.1", "4"]
    says(rows[3], *(f"{value:.4g}" for value in (heads.effective_rank, *overlaps)))
    assert rows[4] == "" and rows[5].startswith("first") and len(rows) == 8
    best = result.to_frame().iloc[0]
    names = (
        "overlap",
        "random_mean",
        "random_std",
        "z",
        "behind_gain_mean",
        "largest_cosine",
        "random_largest",
        "p_largest",
    )
    says(rows[6], *(f"{best[name]:.4g}" for name in names))


def test_csv_has_every_pair(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    assert run("subspaces", "small", "--csv", str(file)) == (0, f"{file}: 6 rows\n", "")
    pd.testing.assert_frame_equal(pd.read_csv(file), subspaces(load("small", "cpu")).to_frame())
    assert "exists already" in run("subspaces", "small", "--csv", str(file))[2]
