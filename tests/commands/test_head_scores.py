"""`aotlens head-scores` prints what the library finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from aotlens.checkpoints import load
from aotlens.heads import head_scores
from tests.messages import says

Run = Callable[..., tuple[int, str, str]]


def test_the_table_has_every_head_beside_chance(run: Run, tmp_path: Path) -> None:
    found = head_scores(load("small", "cpu"), scores="anti_induction", seed=3)
    code, out, err = run("head-scores", "small", "--score", "anti_induction", "--seed", "3")
    assert (code, err) == (0, "")
    value, chance = found.values[0, 1, 1], found.chance[0, 1, 1]
    assert out.splitlines()[0].split() == ["head", "anti", "induction"]
    assert out.splitlines()[4].split() == ["1.1", f"{value:.3f}", f"({chance:.3f})"]
    file = tmp_path / "scores.csv"
    assert run("head-scores", "small", "--score", "anti_induction", "--seed", "3", "--csv", str(file))[0] == 0
    np.testing.assert_allclose(pd.read_csv(file)["excess"], found.excess.ravel())
    code, _, err = run("head-scores", "small", "--score", "fuzzy")
    assert code == 2
    says(err, "'fuzzy'", "anti_induction")
