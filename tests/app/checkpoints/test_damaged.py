"""A folder of checkpoints that is gone, and files that hang: shown as damaged, and everything else keeps working."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.checkpoints.service import Checkpoints


@pytest.mark.skipif(sys.platform == "win32", reason="pipes; run it on Linux or macOS")
def test_the_rest_keeps_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path / "none")
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=6)
    for place, name in (("here", "good"), ("here", "hanging"), ("drive", "away")):
        model = AttentionOnlyTransformer(cfg)
        save_checkpoint(tmp_path / place / name, model, CheckpointInfo(name=name), history=[{"step": 1, "loss": 2.0}])
    settings = Settings(checkpoints=(tmp_path / "here", tmp_path / "drive"), listing_seconds=0.0, device="cpu")
    core = Core.start(settings)
    assert {info.name for info in core.catalog.list() if info.problem is None} == {"good", "hanging", "away"}
    shutil.rmtree(tmp_path / "drive")
    (tmp_path / "here" / "hanging" / "card.md").unlink()
    os.mkfifo(tmp_path / "here" / "hanging" / "card.md")
    rows = {row["name"]: row for row in Checkpoints(core).rows()}
    assert {name: row["status"] for name, row in rows.items()} == {
        "good": "ready", "hanging": "broken", "drive": "broken"
    }  # fmt: skip
    assert "found a pipe" in rows["hanging"]["problem"] and "found no folder" in rows["drive"]["problem"]
    assert core.catalog.default() == "good"
    assert torch.isfinite(core.catalog.load("good").model(torch.tensor([[1, 2]]))).all()
    with pytest.raises(RequestError, match="can't be opened"):
        core.catalog.load("hanging")
