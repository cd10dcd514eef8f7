"""A small checkpoint, saved once, and copies of it to damage."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data.tokenizer import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig

D_VOCAB = 270


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on the mat, the rat sat on the cat, and that was that " * 3], D_VOCAB)


@pytest.fixture(scope="session")
def model(tokenizer: Tokenizer) -> AttentionOnlyTransformer:
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, d_vocab=D_VOCAB, n_ctx=6, bias=True)
    model = AttentionOnlyTransformer(cfg, tokenizer)
    model.unigram_counts = torch.arange(D_VOCAB)
    return model


@pytest.fixture(scope="session")
def info() -> CheckpointInfo:
    return CheckpointInfo(
        name="small",
        description="A model for tests.",
        recipe={"learning_rate": 1e-3, "stages": [{"tokens": 100}]},
        command="aotlens train small",
        corpus={
            "name": "cats",
            "source": "here",
            "sha256": "0" * 64,
            "license": "CC0",
            "validation": ["rats"],
        },
        seed=3,
        device="a CPU",
        tokens_seen=1234,
        seconds=1.5,
        metrics={"validation_loss": 4.25, "bigram_loss": 4.5},
    )


@pytest.fixture(scope="session")
def saved(model: AttentionOnlyTransformer, info: CheckpointInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read it, don't write to it."""
    folder = tmp_path_factory.mktemp("checkpoints") / "small"
    save_checkpoint(folder, model, info, history=[{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.5}])
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """One to damage."""
    return Path(shutil.copytree(saved, tmp_path / "small"))


@pytest.fixture(scope="session")
def edit_config() -> Callable[..., None]:
    """edit_config(folder, key=value, ...) changes config.json as a careless person would."""

    def edit(folder: Path, **changes: Any) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


@pytest.fixture(scope="session")
def rewrite_weights(edit_config: Callable[..., None]) -> Callable[..., None]:
    """rewrite_weights(folder, change, metadata=None): well-formed weights, a matching hash."""

    def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any], metadata: Any = None) -> None:
        path = folder / "model.safetensors"
        tensors = safetensors.torch.load(path.read_bytes())
        change(tensors)
        data = safetensors.torch.save(tensors, metadata=metadata)
        path.write_bytes(data)
        edit_config(folder, weights_sha256=hashlib.sha256(data).hexdigest())

    return rewrite
