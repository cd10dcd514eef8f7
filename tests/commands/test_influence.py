"""``aotlens influence`` prints what the library finds, and keeps it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aotlens.cli import main
from aotlens.dynamics import Influence, influence, recipe_run
from aotlens.results import load
from aotlens.train import OBJECTIVES, train
from tests.dynamics.small_runs import recipe, text
from tests.messages import says


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of 20 steps with snapshots, and the text that it was trained on."""
    folder = tmp_path_factory.mktemp("influence")
    spec = text(folder / "texts")
    chosen = recipe(steps=20, snapshots=[0, 8, 20])
    train(chosen, OBJECTIVES["next_token"].prepare(chosen, spec), folder / "small", device="cpu")
    return folder / "small", spec


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))


def called(*options: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["influence", *map(str, options)])
    return int(ended.value.code or 0)


def test_influences_are_printed_and_kept(trained, tmp_path, capsys):
    folder, spec = trained
    out, csv = tmp_path / "found.safetensors", tmp_path / "windows.csv"
    options = ["--corpus", spec, "--measure", "induction 1.0", "--measure", "loss", "--top", 2, "--check", 4]
    assert called(folder, *options, "--remove", 0.05, "--out", out, "--csv", csv) == 0
    printed = capsys.readouterr().out
    kept = load(out, Influence)
    expected = influence(recipe_run(folder, spec), ["induction 1.0", "loss"], folder=tmp_path / "states")
    np.testing.assert_allclose(kept.per_token, expected.per_token, rtol=1e-3, atol=1e-9)
    assert len(pd.read_csv(csv)) == 120
    # The run that was trained is the one that is replayed, but for ε in the root.
    assert kept.replayed is not None and kept.replayed < 0.05
    says(printed, "120 windows of 20 steps", f"{kept.values[0]:.4g}", "Most helpful windows", "repeated bigram")
    says(printed, "Of 4 retrainings without a random 10% of the windows", "TracIn", "without the 5.0% most helpful")
    window = int(kept.helpful(1, "loss")[0])
    says(printed, f"{kept.of('loss')[window]:+.3g}  (step {kept.windows.steps[window]}")


def test_the_replay_without_eps_root_is_the_run(trained, tmp_path):
    folder, spec = trained
    found = influence(recipe_run(folder, spec), ["loss"], eps_root=0.0, folder=tmp_path)
    assert found.replayed is not None and found.replayed < 1e-5


def test_what_cannot_be_followed_is_said(trained, tmp_path, capsys):
    folder, spec = trained
    other = text(tmp_path / "texts", seed=5)
    assert called(folder, "--corpus", other, "--measure", "loss") == 2
    says(capsys.readouterr().err, "another corpus")
    assert called("novels-2l-mhsa-run", "--corpus", spec, "--measure", "loss") == 2
    assert called(folder, "--corpus", spec, "--measure", "induction") == 2
    says(capsys.readouterr().err, "L.H")
