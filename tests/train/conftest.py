"""A recipe and a corpus small enough to train on within a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotlens.train import TrainingData, load_recipe, prepare

RECIPE = """
name = "tiny"
description = "A test's."
seed = 5
log_tokens = 256
evaluate_tokens = 2048
save_tokens = 1024

[corpus]
d_vocab = 280
validation = ["c"]

[model]
n_layers = 2
d_model = 16
n_heads = 2
d_head = 8
n_ctx = 32

[[stages]]
tokens = 2560
batch_size = 8
sequence_length = 32
warmup_tokens = 512
repeat_fraction = 1.0

[[stages]]
tokens = 5120
batch_size = 8
sequence_length = 32
warmup_tokens = 512
repeat_fraction = 0.25
repeat_source = "text"
"""
N_STEPS = 30


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("corpus")
    for index, name in enumerate("abc"):
        sentences = [
            f"The {colour} {animal} number {i + index} ran. "
            for i in range(60)
            for colour, animal in (("grey", "cat"), ("red", "fox"))
        ]
        (folder / f"{name}.txt").write_text("".join(sentences))
    return f"dir:{folder}"


@pytest.fixture(scope="session")
def recipe_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def data(recipe_path: Path, corpus: str, home: Path) -> TrainingData:
    return prepare(load_recipe(recipe_path).corpus, corpus, home=home)
