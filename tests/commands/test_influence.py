"""``aotlens influence`` prints what the library finds, and keeps it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aotlens.checkpoints import find_checkpoint
from aotlens.cli import main
from aotlens.dynamics import influence, recipe_run, stored_influence
from aotlens.dynamics.influence_files import stored_check
from aotlens.results import save_stored
from aotlens.train import OBJECTIVES, train
from aotlens.views.training import CHECK, FAMILY, INFLUENCE, WINDOWS
from tests.dynamics.small_runs import made_check, made_influence, recipe, text
from tests.messages import refused, says


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of 20 steps with snapshots, and the text that it was trained on."""
    folder = tmp_path_factory.mktemp("influence")
    spec = text(folder / "texts")
    chosen = recipe(steps=20, snapshots=[0, 8, 20])
    train(chosen, OBJECTIVES["next_token"].prepare(chosen, spec), folder / "checkpoints" / "small", device="cpu")
    return folder / "checkpoints" / "small", spec


@pytest.fixture(autouse=True)
def home(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(trained[0].parents[1]))


def called(*options: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["influence", *map(str, options)])
    return int(ended.value.code or 0)


@pytest.mark.long
def test_influences_are_printed_kept_and_shown(trained, tmp_path, capsys):
    folder, spec = trained
    csv = tmp_path / "windows.csv"
    shown = FAMILY.parse(find_checkpoint(folder))
    with refused("aotlens influence small --corpus SPEC"):
        INFLUENCE.result(shown)
    for view in (WINDOWS, CHECK):
        with refused("No influences"):
            view.result(shown)
    options = ["--corpus", spec, "--measure", "induction 1.0", "--measure", "loss", "--top", 2]
    assert called(folder, *options, "--csv", csv) == 0
    printed = capsys.readouterr().out
    kept = stored_influence(folder)
    expected = influence(recipe_run(folder, spec), ["induction 1.0", "loss"], folder=tmp_path / "states")
    np.testing.assert_allclose(kept.per_token, expected.per_token, rtol=1e-3, atol=1e-9)
    assert len(pd.read_csv(csv)) == 120
    # The run that was trained is the one that is replayed, but for ε in the root.
    assert kept.replayed is not None and kept.replayed < 0.05
    says(printed, "120 windows of 20 steps", f"{kept.values[0]:.4g}", "Most helpful windows", "repeated bigram")
    window = int(kept.helpful(1, "loss")[0])
    where = f"(step {kept.windows.steps[window]}, {kept.windows.document(window)})"
    says(printed, f"{kept.of('loss')[window]:+.3g}  {where}")
    with refused("--check 40"):
        CHECK.result(shown)
    # Again: what is kept is read, and checked.
    assert called(folder, *options, "--check", 8) == 0
    printed = capsys.readouterr()
    assert "40 steps" not in printed.err
    says(printed.out, "Of 8 retrainings without a random 10% of the windows", "TracIn")
    for view in (INFLUENCE, CHECK):
        result = view.result(shown)
        assert view.figure(shown, result).data and view.caption(shown, result) and "stored_" in view.python(shown)
    shown = FAMILY.parse(find_checkpoint(folder), influence_on="loss")
    ends = WINDOWS.result(shown)
    assert ends.windows[0] == window and ends.helps == (True,) * 10 + (False,) * 10
    assert ends.documents[0] == kept.windows.document(window)
    plain = ends.texts[0].replace("[", "").replace("]", "")
    tokenizer = recipe_run(folder, spec).objective.data.tokenizer
    assert plain == "".join(tokenizer.decode(ids) for _, ids in kept.windows.spans(window))
    # Others are not written over.
    assert called(folder, "--corpus", spec, "--measure", "loss") == 2
    says(capsys.readouterr().err, "induction 1.0, loss", "--again")
    assert called(folder, *options, "--check", 7) == 2
    says(capsys.readouterr().err, "check=7")
    assert called(folder, *options, "--eps-root", 1e-6) == 2
    says(capsys.readouterr().err, "--eps-root 1e-08", "--again")
    assert called(folder, "--corpus", spec, "--measure", "loss", "--again", "--top", 0, "--remove", 0.05) == 0
    says(capsys.readouterr().out, "without the 5.0% most helpful")
    assert stored_influence(folder).measures == ("loss",)
    with refused("--check 40"):
        CHECK.result(FAMILY.parse(find_checkpoint(folder)))


def test_the_replay_without_eps_root_is_the_run(trained, tmp_path):
    folder, spec = trained
    found = influence(recipe_run(folder, spec), ["loss"], eps_root=0.0, folder=tmp_path)
    assert found.replayed is not None and found.replayed < 1e-5


def test_a_checkpoint_that_was_trained_otherwise_is_refused(trained, tmp_path):
    """On a GPU, on several processes, or not to its end; and influences of the weights before are not its own."""
    folder, spec = trained
    for name, value, said in (
        ("device", "NVIDIA H100 80GB HBM3", "bfloat16"),
        ("device", "2 × CPU", "one process"),
        ("tokens_seen", 144, "144 tokens of its recipe's 2,880"),
    ):
        other = shutil.copytree(folder, tmp_path / f"{name}-{len(str(value))}")
        config = json.loads((other / "config.json").read_text())
        config[name] = value
        (other / "config.json").write_text(json.dumps(config))
        with refused(said):
            recipe_run(other, spec)
    other = shutil.copytree(folder, tmp_path / "retrained")
    kept = dataclasses.replace(made_influence(), weights_sha256="0" * 64)
    save_stored("influence", other, kept)
    save_stored("influence-check", other, dataclasses.replace(made_check(), weights_sha256="0" * 64))
    for stored in (stored_influence, stored_check):
        with refused("had before", "--again"):
            stored(other)


def test_what_cannot_be_followed_is_said(trained, tmp_path, capsys):
    folder, spec = trained
    other = text(tmp_path / "texts", seed=5)
    assert called(folder, "--corpus", other, "--measure", "loss") == 2
    says(capsys.readouterr().err, "another corpus")
    assert called("novels-2l-mhsa-run", "--corpus", spec, "--measure", "loss") == 2
    assert called(folder, "--corpus", spec, "--measure", "induction") == 2
    says(capsys.readouterr().err, "L.H")
