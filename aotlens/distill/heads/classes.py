"""Kinds of token, so that an error can be told apart: where in the text, and what it looks like."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.heads.inputs import special_ids, vocabulary
from aotlens.heads.reader import HeadReader

#: The classes of tokens, in this order everywhere. A token at position 0 is `first`, whatever it is.
CLASSES = ("first", "separator", "newline", "punctuation", "number", "word", "word part")


def classes_of(reader: HeadReader, windows: Int64[Tensor, "windows pos"]) -> Int64[Tensor, "windows pos"]:
    """Return the index in `CLASSES` of every token; every token but the first is a `word` for a model without a
    tokenizer.

    separator: special tokens; newline: whitespace only; word: begins with a space (in WordPiece, anything not beginning
    with ##); word part: what continues a word.
    """
    kinds = _table(reader)[windows]
    kinds[:, 0] = CLASSES.index("first")
    return kinds


def _table(reader: HeadReader) -> Int64[Tensor, " d_vocab"]:
    tokenizer: Any = reader.model.tokenizer
    table = torch.full((reader.d_vocab,), CLASSES.index("word"), dtype=torch.int64)
    if tokenizer is None:
        return table
    special, strings = special_ids(tokenizer), vocabulary(tokenizer, reader.d_vocab)
    wordpiece = any(text.startswith("##") for text in strings) and not any(text.startswith(" ") for text in strings)
    for index, text in enumerate(strings):
        if text:
            table[index] = CLASSES.index("separator" if index in special else _kind(text, wordpiece))
    return table


def _kind(text: str, wordpiece: bool) -> str:
    inner = text.removeprefix("##").strip()
    if not inner:
        return "newline"
    if inner[0].isdigit():
        return "number"
    if not any(character.isalnum() for character in inner):
        return "punctuation"
    if wordpiece:
        return "word part" if text.startswith("##") else "word"
    return "word" if text[:1].isspace() else "word part"
