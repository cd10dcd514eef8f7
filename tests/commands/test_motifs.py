"""`aotlens motifs` prints what the library finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from aotlens.checkpoints import load
from aotlens.heads import motif_scores
from tests.messages import says

Run = Callable[..., tuple[int, str, str]]


def test_the_table_has_every_head_and_says_what_was_not_measured(run: Run) -> None:
    code, out, err = run("motifs", "small", "--half-length", "2", "--sequences", "3", "--seed", "1")
    scores = motif_scores(load("small", "cpu"), n_sequences=3, half_length=2, seed=1)
    assert (code, err) == (0, "")
    first, empty, head, *rows = out.splitlines()
    assert first == f"Mean attention on {scores.about}." and "the start token 0" in first and empty == ""
    measured = [name for name in scores.motifs if name not in scores.reasons]
    assert head.split("  ")[0] == "head" and all(name.replace("_", " ") in head for name in measured)
    assert rows[3].split()[: 1 + len(measured)] == ["1.1", *(f"{scores[name][1, 1]:.3f}" for name in measured)]
    uniform = [f"{scores.uniform[scores.motifs.index(name)].mean():.3f}" for name in measured]  # type: ignore[index]
    assert rows[4].split()[: 1 + len(measured)] == ["uniform", *uniform]
    assert rows[5:] == [f"{name.replace('_', ' ')}: not measured, {why}." for name, why in scores.reasons.items()]


def test_csv_has_the_motifs_that_were_asked_for(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    options = ("--motif", "induction", "--motif", "first_token", "--start", "none", "--half-length", "3")
    assert run("motifs", "small", *options, "--csv", str(file)) == (0, f"{file}: 4 rows\n", "")
    scores = motif_scores(load("small", "cpu"), motifs=("induction", "first_token"), start=None, half_length=3)
    np.testing.assert_allclose(pd.read_csv(file).to_numpy(), scores.to_frame().to_numpy())


def test_what_cannot_be_is_one_line(run: Run) -> None:
    code, _, err = run("motifs", "small", "--motif", "copying")
    assert code == 2 and err.startswith("aotlens: no motif 'copying'; there are previous_token")
    code, _, err = run("motifs", "small", "--start", "first")
    assert code == 2
    says(err, "--start", "expected a token id", "first")
