"""The row of a masked model has that model's losses, and says that they are others than its neighbours'."""

from __future__ import annotations

from aotlens.checkpoints import CheckpointInfo
from app.pages.checkpoints.service import row_of


def test_a_masked_models_losses_are_marked():
    row = row_of(CheckpointInfo(name="m", metrics={"masked_loss": 4.8, "unigram_loss": 6.5}))
    assert (row["loss"], row["baseline"]) == (4.8, 6.5)
    assert "per hidden token" in row["loss_note"]


def test_so_are_those_of_images():
    metrics = {"validation_loss": 0.4, "class_share_loss": 2.3}
    row = row_of(CheckpointInfo(name="m", metrics=metrics, recipe={"objective": "classes"}))
    assert (row["loss"], row["baseline"]) == (0.4, 2.3) and "per image" in row["loss_note"]


def test_other_losses_are_not():
    row = row_of(CheckpointInfo(name="m", metrics={"validation_loss": 4.25, "bigram_loss": 4.5}))
    assert (row["loss"], row["baseline"], row["loss_note"]) == (4.25, 4.5, None)
    assert row_of(CheckpointInfo(name="m"))["loss"] is None
