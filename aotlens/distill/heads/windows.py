"""Text as windows of tokens, spread evenly over documents; only what is read is encoded.

A window is the start token and `length − 1` tokens (a bridge of a BERT-like model: [CLS], `length − 2` tokens, [SEP]).
It begins at a space or line end and runs on into the next document, after a separator, where its own ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.data import Corpus, TailHeldOut, Tokenizer
from aotlens.distill.heads.reader import HeadReader

_FEW = 30  # documents, of which a tenth by hash may be none
_CHARACTERS_A_TOKEN = 6  # read per token at first; English has some 4


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a model's text begins, ends and is encoded."""

    encode: Callable[[str], list[int]]
    start: int
    separator: int
    end: int | None
    """What every window ends with, or None."""

    @classmethod
    def of(cls, reader: HeadReader) -> Encoding:
        """Raises `ValueError` for a model without a tokenizer."""
        tokenizer: Any = reader.model.tokenizer
        if tokenizer is None:
            raise ValueError(
                "a corpus needs a model with a tokenizer; give (training, held-out) windows of ids instead."
            )
        if isinstance(tokenizer, Tokenizer):
            return cls(encode=tokenizer.encode, start=tokenizer.eot_id, separator=tokenizer.eot_id, end=None)

        def encode(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

        start = next((i for i in (tokenizer.cls_token_id, tokenizer.bos_token_id) if i is not None), None)
        separator = next((i for i in (tokenizer.sep_token_id, tokenizer.eos_token_id) if i is not None), None)
        if start is None or separator is None:
            raise ValueError("this tokenizer has no start or no separator token; give windows of ids instead.")
        return cls(encode=encode, start=start, separator=separator, end=None if reader.causal else separator)


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Windows to train on, to choose by, and to be judged by: the last from other documents."""

    train: Int64[Tensor, "train pos"]
    validation: Int64[Tensor, "validation pos"]
    held_out: Int64[Tensor, "held_out pos"]
    held_out_documents: tuple[str, ...]
    """Names; `()` where windows were given."""


def spread(n: int, wanted: int) -> Int64[Tensor, " chosen"]:
    """Up to `wanted` of the places 0, …, n − 1, evenly."""
    wanted = min(n, wanted)
    return torch.arange(wanted) * n // wanted


def sides(
    reader: HeadReader, corpus: Corpus, held_out: Collection[str] | float | None
) -> tuple[Corpus, tuple[str, ...], tuple[str, ...]]:
    """The corpus, training and held-out documents. None takes those that the model's own card held out of training
    where the corpus has all of them, and a tenth otherwise: the last of few documents, the end of a single one."""
    if held_out is None:
        card = getattr(reader.model, "card", None)
        named = () if card is None else card.held_out(corpus.names())
        held_out = named if 0 < len(named) < len(corpus.names()) else 0.1
        if held_out == 0.1 and 1 < len(corpus.names()) < _FEW:
            held_out = corpus.names()[-1:]
    if isinstance(held_out, float) and len(corpus.names()) == 1:
        corpus = TailHeldOut(corpus, held_out)
        held_out = (corpus.tail,)
    split = corpus.split(held_out)
    return corpus, split.train, split.validation


def sample(
    corpus: Corpus, names: tuple[str, ...], encoding: Encoding, n_windows: int, length: int
) -> Int64[Tensor, "windows pos"]:
    """Up to `n_windows` windows, whose beginnings are spread evenly over the documents' characters.

    Fewer where the text is too short for that many without much overlap. Raises `ValueError` where it is too short for
    one.
    """
    width = length - 1 - (encoding.end is not None)
    total = sum(len(document.text) + 1 for document in corpus.documents(names))
    stride = max(total / n_windows, _characters_a_token(corpus, names, encoding) * width)
    rows: list[list[int]] = []
    open_rows: list[list[int]] = []
    offset, following = 0, 0  # characters before this document; the next window's number
    for document in corpus.documents(names):
        text = document.text
        for row in open_rows:
            row.append(encoding.separator)
            row.extend(_first_tokens(encoding, text, 0, width - len(row)))
        while following * stride < offset + len(text) and following < n_windows:
            at = _next_space(text, max(0, int(following * stride) - offset))
            open_rows.append(_first_tokens(encoding, text, at, width))
            following += 1
        rows += [row[:width] for row in open_rows if len(row) >= width]
        open_rows = [row for row in open_rows if len(row) < width]
        offset += len(text) + 1
    if not rows:
        raise ValueError(
            f"{corpus.spec}: expected text for a window of {length} tokens, got {total:,} characters; give more text "
            "or a shorter sequence_length."
        )
    ids = torch.tensor(rows, dtype=torch.int64)
    parts = [torch.full((len(ids), 1), encoding.start, dtype=torch.int64), ids]
    if encoding.end is not None:
        parts.append(torch.full((len(ids), 1), encoding.end, dtype=torch.int64))
    return torch.cat(parts, dim=1)


def _characters_a_token(corpus: Corpus, names: tuple[str, ...], encoding: Encoding) -> float:
    """On the beginning of the first document."""
    for document in corpus.documents(names):
        if document.text:
            beginning = document.text[:20_000]
            return len(beginning) / max(1, len(encoding.encode(beginning)))
    return 1.0


def _next_space(text: str, at: int) -> int:
    if at == 0:
        return 0
    found = [position for position in (text.find(" ", at), text.find("\n", at)) if position >= 0]
    return min(found, default=len(text))


def _first_tokens(encoding: Encoding, text: str, at: int, n: int) -> list[int]:
    """The first `n` tokens of `text[at:]`, or all; encodes no more of it than it must."""
    characters = _CHARACTERS_A_TOKEN * n + 64
    while True:
        end = min(len(text), at + characters)
        ids = encoding.encode(text[at:end])
        if end == len(text):
            return ids[:n]
        if len(ids) > n:  # the last token may be half a word
            return ids[:n]
        characters *= 2


def check_windows(reader: HeadReader, windows: Tensor, name: str) -> Int64[Tensor, "windows pos"]:
    """Raises `ValueError` for windows that are not `[windows, pos]` ids of the model, within its context."""
    if windows.ndim != 2 or not len(windows) or windows.is_floating_point():
        raise ValueError(f"{name}: expected token ids [windows, pos], got {windows.dtype} {list(windows.shape)}.")
    if not 2 <= windows.shape[1] <= reader.n_ctx:
        raise ValueError(f"{name}: expected 2 to {reader.n_ctx} positions (n_ctx), got {windows.shape[1]}.")
    low, high = int(windows.min()), int(windows.max())
    if low < 0 or high >= reader.d_vocab:
        raise ValueError(f"{name}: expected token ids 0 to {reader.d_vocab - 1}, got {low} to {high}.")
    return windows.cpu().long()


def shuffled(windows: Int64[Tensor, "windows pos"], seed: int) -> Int64[Tensor, "windows pos"]:
    return windows[torch.from_numpy(np.random.default_rng([seed, 17]).permutation(len(windows)))]
