"""Windows of documents that none of several models was trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotlens.checkpoints import CheckpointInfo, shared_held_out_windows
from aotlens.models import AttentionOnlyTransformer
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokenizer

make = maker({**SMALL, "d_vocab": 270, "n_ctx": 16})


def model(*held_out: str, n_ctx: int = 16) -> AttentionOnlyTransformer:
    made: AttentionOnlyTransformer = make(tokenizer=small_tokenizer(), n_ctx=n_ctx)
    made.card = CheckpointInfo(name="one", corpus={"validation": list(held_out)})
    return made


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    for name, word in (("a.txt", "cat"), ("b.txt", "rat"), ("c.txt", "mat")):
        (tmp_path / name).write_text(f"the {word} sat. " * 60, encoding="utf-8")
    return f"dir:{tmp_path}"


def test_windows_are_of_documents_that_all_models_held_out(corpus: str) -> None:
    models = [model("a", "b"), model("b", "c", n_ctx=12), model("x")]
    windows = shared_held_out_windows(models, corpus, 3).ids
    assert windows.shape == (3, 12)
    text = small_tokenizer().decode(windows[:, 1:].flatten().tolist())
    assert "rat" in text and "cat" not in text and "mat" not in text
    assert shared_held_out_windows(models, corpus, 3, 8).ids.shape == (3, 8)


def test_where_each_document_was_training_text_of_one_it_is_refused(corpus: str) -> None:
    with refused("none of the models was trained on", "found none"):
        shared_held_out_windows([model("a"), model("b")], corpus, 3)
