"""The hooks that keep one path, which the expansion's time is compared with, do keep it."""

from __future__ import annotations

import itertools

import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.paths import expand
from benchmarks import paths


@torch.inference_mode()
def test_the_batch_of_forward_passes_keeps_one_path_a_row() -> None:
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=6, d_vocab=11, positions="qk")
    model = AttentionOnlyTransformer(cfg).double().requires_grad_(False)
    tokens = torch.tensor([3, 1, 4, 1, 5, 9])
    sequences = list(itertools.product(range(3), repeat=2))
    batch, hooks = paths.only_path_hooks(model, tokens, sequences)
    kept = model.run_with_hooks(batch, fwd_hooks=hooks)[:, -1, 7]
    torch.testing.assert_close(kept, expand(model, tokens).all_paths(-1, 7).values[0])
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


def test_all_paths_runs_quickly() -> None:
    row = paths.measure_all_paths(quick=True, pairs=1)
    assert row["sequences"] == 25 and row["times faster"] > 0
