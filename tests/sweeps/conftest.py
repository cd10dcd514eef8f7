"""A small checkpoint at home, a small recipe, and a sweep over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import randomise

WORDS = "the cat sat on the mat, the rat sat on the cat, and that was that "
RECIPE = """
name = "line"
description = "A test's."
objective = "regression"
seed = 3
log_prompts = 64
evaluate_prompts = 64
save_prompts = 64

[prompts]
d = 2
points = 5

[model]
n_layers = 1
d_model = 8
n_heads = 1
d_head = 8
n_ctx = 9
read_in = "vectors"
d_in = 2
read_out = "vectors"
d_out = 1

[[stages]]
prompts = 64
batch_size = 16
learning_rate = 1e-3
"""


@pytest.fixture
def small() -> AttentionOnlyTransformer:
    tokenizer = Tokenizer.train([WORDS * 3], 265)
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, d_vocab=265, n_ctx=24)
    return randomise(AttentionOnlyTransformer(cfg, tokenizer)).eval()


@pytest.fixture
def home(small: AttentionOnlyTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$AOTLENS_HOME with the checkpoint `small`; beside it recipe.toml, and a folder of text."""
    save_checkpoint(
        tmp_path / "home" / "checkpoints" / "small", small,
        CheckpointInfo(name="small", description="Small.", seed=1, metrics={"validation_loss": 5.5}), history=[],
    )  # fmt: skip
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "text").mkdir()
    for name in ("one", "two"):
        (tmp_path / "text" / f"{name}.txt").write_text(WORDS * 20, encoding="utf-8")
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    return tmp_path


def of(*analyses: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The sweep of these analyses over the checkpoint `small`."""
    return {"models": [{"checkpoints": ["small"]}], "analyses": list(analyses), "device": "cpu", **more}
