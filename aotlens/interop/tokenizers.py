"""Our tokenizer as the Hugging Face one that a bridge expects, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers

from aotlens.data import Tokenizer
from aotlens.untrusted import read_regular, strict_json


def to_hugging_face(tokenizer: Tokenizer, n_ctx: int) -> Any:
    """Return a `transformers` tokenizer with the same ids for every text.

    It puts the start token first by itself, and a special token typed in a text stays text, as in ours.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.to_json()),
        bos_token=tokenizer.start,
        eos_token=tokenizer.start,
        pad_token=tokenizer.start,
        # TransformerLens looks a tokenizer without these two up on the Hugging Face hub.
        name_or_path="aotlens",
        add_bos_token=tokenizer.start is not None,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        padding_side="right",
        model_max_length=n_ctx,
    )


def read_hugging_face(path: Path, d_vocab: int | None = None) -> Tokenizer:
    """Return the `Tokenizer` of a `tokenizer.json` next to a model of `d_vocab` tokens that somebody else saved, with
    the start token that a `tokenizer_config.json` there names. Raises `ValueError`."""
    beside = path.with_name("tokenizer_config.json")
    try:
        said = strict_json(read_regular(beside, kind="config.json")) if beside.is_file() else {}
        named = [said.get(f"{kind}_token") for kind in ("bos", "cls")] if isinstance(said, dict) else []
        names = [name.get("content") if isinstance(name, dict) else name for name in named]
        return Tokenizer.of(read_regular(path, kind="tokenizer.json").decode(), *names, d_vocab=d_vocab)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
