"""A BERT of a few thousand weights, saved as Hugging Face saves one, and read as it would be from its hub."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "far", ".", ",", "he", "she", "it", "was"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS) + len(SPECIAL), hidden_size=24, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    return folder
