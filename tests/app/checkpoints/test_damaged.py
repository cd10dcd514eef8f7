"""A folder of checkpoints that is gone, and files that hang: shown as damaged, and everything else keeps working."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.checkpoints.reading import snapshot_info
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.untrusted import open_regular
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.checkpoints.service import Checkpoints
from tests.app.conftest import eventually
from tests.app.training.numbers import save_run
from tests.messages import says


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


def test_a_drive_that_hangs_after_the_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread waits for it, whoever else asks is told at once, and what comes in the end is taken."""
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path / "none")
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=6)
    for name in ("good", "hanging"):
        save_checkpoint(tmp_path / name, AttentionOnlyTransformer(cfg), CheckpointInfo(name=name), history=[])
    core = Core.start(Settings(checkpoints=(tmp_path,), listing_seconds=1e6, device="cpu"))
    page, asked, back = Checkpoints(core), Counter[str](), threading.Event()
    assert {info.name for info in core.catalog.list() if info.problem is None} == {"good", "hanging"}
    listed = core.catalog.info("hanging")

    # What a mounted drive does that is gone, and no file of this machine can be made to do: a read does not return.
    @contextmanager
    def gone(path: Path, inside: Path | None = None) -> Iterator[Any]:
        if path.parent.name == "hanging":
            asked[path.name] += 1
            assert back.wait(100)
        with open_regular(path, inside) as opened:
            yield opened

    monkeypatch.setattr("aotlens.checkpoints.header.open_regular", gone)
    core.catalog.load("good")
    monkeypatch.setattr(core.catalog._reading, "_seconds", 0.5)
    with ThreadPoolExecutor(20) as users:
        waiting = [users.submit(core.catalog.load, "hanging") for _ in range(20)]
        problems = [str(one.exception()) for one in waiting]
    for problem in problems:
        says(problem, "did not come", "0.5 seconds")
    assert sum(asked.values()) == 1
    assert "did not come" in str(core.catalog.info("hanging").problem) and core.catalog.default() == "good"
    assert {row["name"]: row["status"] for row in page.rows()} == {"good": "ready", "hanging": "broken"}
    with pytest.raises(RequestError, match="did not come within"):
        page.tensors(listed)
    assert torch.isfinite(core.catalog.load("good").model(torch.tensor([[1, 2]]))).all()
    monkeypatch.setattr(core.catalog._reading, "_seconds", 100.0)
    back.set()
    eventually(lambda: core.catalog.info("hanging").problem is None)
    assert torch.isfinite(core.catalog.load("hanging").model(torch.tensor([[1, 2]]))).all()
    assert len(page.tensors(core.catalog.info("hanging"))) > 3


def test_steps_that_are_asked_for_at_once_are_each_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests for two snapshots of a run, at the same moment, got the weights of whichever was read first."""
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path / "none")
    save_run(tmp_path)
    core, both = Core.start(Settings(checkpoints=(tmp_path,), device="cpu")), threading.Barrier(2)

    def together(checkpoint: CheckpointInfo, step: int) -> CheckpointInfo:
        with suppress(threading.BrokenBarrierError):
            both.wait(2)
        return snapshot_info(checkpoint, step)

    monkeypatch.setattr("app.core.catalog.snapshot_info", together)
    with ThreadPoolExecutor(2) as users:
        models = [loaded.model for loaded in users.map(core.catalog.load, ["tiny-run@13", "tiny-run@144"])]
    end = core.catalog.load("tiny-run").model
    assert torch.equal(models[1].W_E, end.W_E) and torch.allclose(models[0].W_E, end.W_E * 7 / 12)
