"""Our tokenizer as the Hugging Face one that a bridge expects, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from aotlens.data import Tokenizer
from aotlens.data.tokenizer import END_OF_TEXT
from aotlens.untrusted import read_regular, strict_json


def to_hugging_face(tokenizer: Tokenizer, n_ctx: int) -> Any:
    """Return a `transformers` tokenizer with the same ids for every text.

    It puts the start token first by itself, and a special token typed in a text stays text, as in ours.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.to_json()),
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        # TransformerLens looks a tokenizer without these two up on the Hugging Face hub.
        name_or_path="aotlens",
        add_bos_token=True,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        padding_side="right",
        model_max_length=n_ctx,
    )


def from_hugging_face(tokenizer: Any) -> Tokenizer:
    """Return the `Tokenizer` of a `transformers` tokenizer, as `to_hugging_face` makes it. Raises `ValueError` for what
    is not a byte-level BPE with `<|endoftext|>`."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"expected a fast Hugging Face tokenizer, got {type(tokenizer).__name__}")
    return _without_habits(backend.to_str())


def read_hugging_face(path: Path) -> Tokenizer:
    """Return the `Tokenizer` of a `tokenizer.json` beside a model that somebody else saved. Raises `ValueError`."""
    try:
        return _without_habits(read_regular(path, kind="tokenizer.json").decode())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _without_habits(text: str) -> Tokenizer:
    """Return the tokenizer without what a call left behind (padding, truncation), and without the start token, which
    our models add themselves."""
    saved = strict_json(text)
    if isinstance(saved, dict):
        saved.update(padding=None, truncation=None, post_processor=None)
    return Tokenizer.from_json(json.dumps(saved, ensure_ascii=False))
