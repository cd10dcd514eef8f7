"""Recipes and texts of runs that take a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from aotlens.dynamics import Influence, InfluenceCheck, TrainingWindows
from aotlens.train import Recipe

WORDS = ("the", "cat", "sat", "on", "mat", "dog", "ran", "far")


def text(folder: Path, n: int = 4, seed: int = 0, **more: str) -> str:
    """A corpus of random words, as a spec."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for place in range(n):
        (folder / f"doc{place}.txt").write_text(" ".join(rng.choice(WORDS, 400)))
    for name, content in more.items():
        (folder / f"{name}.txt").write_text(content)
    return f"dir:{folder}"


def recipe(**more: Any) -> Recipe:
    n_steps, rows, length = more.pop("steps", 12), more.pop("rows", 6), more.pop("length", 24)
    stage = {"tokens": n_steps * rows * length, "batch_size": rows, "sequence_length": length, "learning_rate": 3e-3}
    stage |= {"repeat_fraction": 0.5, "warmup_tokens": 3 * rows * length, **more.pop("stage", {})}
    model = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "n_ctx": length, **more.pop("model", {})}
    corpus = {"d_vocab": 270, "validation": ["doc3"]}
    return Recipe.from_dict({"name": "small", "corpus": corpus, "model": model, "stages": [stage], **more})


def made_influence() -> Influence:
    """Influences of 9 steps of 4 windows, drawn at random."""
    rng = np.random.default_rng(0)
    windows = TrainingWindows(
        steps=np.repeat(np.arange(9), 4), documents=rng.integers(-1, 2, 36), offsets=rng.integers(0, 90_000, 36),
        lengths=np.full(36, 8), tokens=rng.integers(0, 4, 288), names=("a", "b"),
    )  # fmt: skip
    per_token = rng.normal(size=(2, 288)) * (np.arange(288) % 8 > 0)
    return Influence(
        run="r", identity="i", weights_sha256=None, measures=("loss", "induction 1.0"), values=np.array([4.0, 0.5]),
        windows=windows, per_token=per_token, undone=1e-12, replayed=None, eps_root=0.0, dtype="float32",
    )  # fmt: skip


def made_check() -> InfluenceCheck:
    """Six retrainings, drawn at random."""
    subsets = np.random.default_rng(1).normal(size=(3, 2, 6))
    return InfluenceCheck(
        run="r", weights_sha256=None, measures=("loss", "induction 1.0"), drop=0.1, seed=0,
        predicted=subsets[0], tracin=subsets[1], found=subsets[2],
    )  # fmt: skip
