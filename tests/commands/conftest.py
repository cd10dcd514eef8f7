"""A home with one small checkpoint, `small`, and the command run in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.cli import main
from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import randomise

Run = Callable[..., tuple[int, str, str]]
D_VOCAB = 265


@pytest.fixture(scope="session")
def small() -> AttentionOnlyTransformer:
    """Two layers of MSSA, two heads each, biases, a tokenizer."""
    tokenizer = Tokenizer.train(["the cat sat on the mat, the rat sat on the cat, and that was that " * 3], D_VOCAB)
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, d_vocab=D_VOCAB, n_ctx=6, attention="mssa", bias=True)
    model = AttentionOnlyTransformer(cfg, tokenizer)
    return randomise(model).eval()


@pytest.fixture(scope="session")
def saved(small: AttentionOnlyTransformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "small"
    save_checkpoint(folder, small, CheckpointInfo(name="small", description="Small.", seed=1), history=[])
    return folder


@pytest.fixture
def home(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of checkpoints in $AOTLENS_HOME; nothing is bundled."""
    folder = tmp_path / "home" / "checkpoints"
    shutil.copytree(saved, folder / "small")
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path / "none")
    return folder


@pytest.fixture
def run(home: Path, capsys: Any) -> Run:
    """`run("circuits", "small", …)`: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and "\x1b" not in captured.out + captured.err
        return int(stopped.value.code or 0), captured.out, captured.err

    return run
