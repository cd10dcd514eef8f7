"""The measurements of scoring and of a training step compare equal numbers, from the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from aotlens.models import AttentionOnlyTransformer
from aotlens.train.optimiser import make_optimiser
from benchmarks import scoring, training_step

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def test_scoring_runs_from_the_command_line(tmp_path: Path):
    path = tmp_path / "figures.json"
    assert scoring.main(["--quick", "--pairs", "1", "--json", str(path)]) == 0
    row = json.loads(path.read_text())["scoring"]["rows"][0]
    assert row["passages"] == 40 and row["one at a time ÷ ours"] > 0 and row["largest difference (nats)"] < 1e-3


def test_the_training_step_runs_from_the_command_line(tmp_path: Path):
    path = tmp_path / "figures.json"
    assert training_step.main(["--quick", "--pairs", "1", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["training_step"]["rows"]
    assert [row["ours"] for row in rows] == ["MHSA", "MSSA"] and all(row["backward (ms)"] > 0 for row in rows)


def test_both_sides_of_the_training_step_learn_the_same():
    """Steps from the same weights on the same rows; without weight decay, which plain AdamW applies to gains too."""
    recipe = dataclasses.replace(training_step.recipe_of("mhsa", quick=True), weight_decay=0.0)
    model = AttentionOnlyTransformer(recipe.model_config(recipe.corpus.d_vocab))
    plain = training_step.PlainMHSA(model)
    rows = torch.randint(recipe.corpus.d_vocab, (8, 256))
    trainable = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trainable, lr=1e-3, betas=recipe.betas, weight_decay=0.0)
    ours = make_optimiser(model, recipe)
    losses = [
        (training_step.our_step(model, ours, rows, recipe), training_step.plain_step(plain, optimiser, rows))
        for _ in range(3)
    ]
    assert losses[2][0] < losses[0][0] and all(a == pytest.approx(b, rel=1e-5) for a, b in losses)
