"""A run of a small model with a few snapshots, made without training."""

from __future__ import annotations

import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, Run, save_checkpoint
from aotlens.checkpoints.snapshots import SnapshotWriter
from aotlens.models import AttentionOnlyTransformer, ModelConfig

STEPS = (0, 1, 4, 10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run") / "small"
    cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_head=4, n_ctx=24, d_vocab=30, bias=True)
    model = AttentionOnlyTransformer(cfg).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    writer = SnapshotWriter(folder, 0)
    for step in STEPS:
        writer.add(step, 100 * step, model.state_dict())
        if step == STEPS[-1]:
            break
        for tensor in model.parameters():
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
    save_checkpoint(folder, model, CheckpointInfo(name="small"))
    return aotlens.load_run(folder, device="cpu")


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(30, (6, 20), generator=torch.Generator().manual_seed(1))
