"""Text as windows of a model's context: what `evidence` reads, in one pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TypeAlias

import numpy as np
from jaxtyping import Int64, Integer
from torch import Tensor

from aotlens.data import Corpus, TokenFile, Tokenizer
from aotlens.models import AttentionOnlyTransformer

#: A corpus (encoded as it is read), a token file, or ids `[tokens]` in memory.
Text: TypeAlias = Corpus | TokenFile | Integer[np.ndarray, " tokens"] | Integer[Tensor, " tokens"]
_BLOCK = 1 << 20
_NO_TEXT = "expected text, got none: is the corpus empty, or max_tokens 0?"


def windows(
    model: AttentionOnlyTransformer,
    text: Text,
    *,
    batch_size: int,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
) -> Iterator[Int64[np.ndarray, "windows pos"]]:
    """Batches of windows without overlap: the start token, then n_ctx − 1 tokens, as the models were trained.

    What is left over at the end is one shorter window. Documents follow each other, each after its separator.
    `documents` chooses some of a corpus, by name. Raises `ValueError` for text of another vocabulary, a corpus where
    the model has no tokenizer, or no text at all.
    """
    assert model.cfg.d_vocab is not None
    start = 0 if model.tokenizer is None else model.tokenizer.eot_id
    width = model.cfg.n_ctx - 1
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: expected at least 1.")
    if width < 1:
        raise ValueError("evidence needs a context of at least 2 positions.")
    held, n = np.empty(0, dtype=np.int64), 0
    for ids in _checked_ids(model, text, documents, max_tokens):
        n += len(ids)
        held = np.concatenate([held, ids])
        whole = len(held) // (width * batch_size) * (width * batch_size)
        for begin in range(0, whole, width * batch_size):
            yield _with_start(held[begin : begin + width * batch_size].reshape(batch_size, width), start)
        held = held[whole:]
    if not n:
        raise ValueError(_NO_TEXT)
    whole = len(held) // width * width
    if whole:
        yield _with_start(held[:whole].reshape(-1, width), start)
    if len(held) > whole:
        yield _with_start(held[None, whole:], start)


def read_ids(
    model: AttentionOnlyTransformer,
    text: Text,
    *,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
) -> Int64[np.ndarray, " tokens"]:
    """Text as ids in memory, 8 bytes a token: encoded once, it can be read any number of times.

    The same tokens, in the same order, as `windows` cuts up. Raises `ValueError` as `windows` does.
    """
    blocks, n = [np.empty(0, dtype=np.int64)], 0
    for ids in _checked_ids(model, text, documents, max_tokens):
        blocks.append(ids)
        n += len(ids)
    if not n:
        raise ValueError(_NO_TEXT)
    return np.concatenate(blocks)


def _with_start(rows: np.ndarray, start: int) -> np.ndarray:
    return np.concatenate([np.full((len(rows), 1), start, dtype=np.int64), rows], axis=1)


def _checked_ids(
    model: AttentionOnlyTransformer, text: Text, documents: Collection[str] | None, max_tokens: int | None
) -> Iterator[Int64[np.ndarray, " tokens"]]:
    """Blocks of ids of the model's vocabulary, `max_tokens` in all."""
    assert model.cfg.d_vocab is not None
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens}: expected at least 1, or None for all.")
    n = 0
    for ids in _ids(model, text, documents):
        if max_tokens is not None:
            ids = ids[: max_tokens - n]
        n += len(ids)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < model.cfg.d_vocab:
            raise ValueError(
                f"expected token ids 0 to {model.cfg.d_vocab - 1}, got {int(ids.min())} to {int(ids.max())}; was the "
                "text encoded with another tokenizer?"
            )
        yield ids.astype(np.int64)
        if max_tokens is not None and n >= max_tokens:
            return


def _ids(
    model: AttentionOnlyTransformer, text: Text, documents: Collection[str] | None
) -> Iterator[Int64[np.ndarray, " tokens"]]:
    """The text's ids, block by block, without the first separator (every window begins with one)."""
    if documents is not None and not isinstance(text, Corpus):
        raise ValueError("documents: only a corpus has named documents to choose from.")
    if isinstance(text, Corpus):
        tokenizer = model.tokenizer
        if not isinstance(tokenizer, Tokenizer):
            raise ValueError("a corpus needs a model with a tokenizer; give a TokenFile or token ids instead.")
        separator: list[int] = []
        for document in text.documents(documents):
            pieces = iter(tokenizer.pieces(document.text))
            while batch := list(islice(pieces, 32)):  # some 2 MB of text at once
                encoded = tokenizer.encode_batch(batch)
                yield np.array([*separator, *(index for ids in encoded for index in ids)], dtype=np.int64)
                separator = []
            separator = [tokenizer.eot_id]
        return
    if isinstance(text, TokenFile):
        ids, begin = np.asarray(text.tokens), 1
    else:
        ids, begin = (text.cpu().numpy() if isinstance(text, Tensor) else np.asarray(text)), 0
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"expected token ids as whole numbers in one dimension, got {ids.dtype} {list(ids.shape)}.")
    for block in range(begin, len(ids), _BLOCK):
        yield ids[block : block + _BLOCK].astype(np.int64)
