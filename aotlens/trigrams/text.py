"""Text as windows of a model's context, which `evidence` reads in one pass, and as bigrams."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int64, Integer
from torch import Tensor

from aotlens.conventions import Progress, require_shape, require_whole
from aotlens.data import Corpus, TokenFile, Tokenizer
from aotlens.data.windows import start_id, windows_of_documents
from aotlens.evaluate import BigramModel
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

#: A corpus (encoded as it is read; `aotlens.data.open_corpus` opens one by its name), a token file, ids `[tokens]` in
#: memory, or a text itself, which is one document.
Text: TypeAlias = Corpus | TokenFile | str | Integer[np.ndarray, " tokens"] | Integer[Tensor, " tokens"]
#: Sequences as the model reads them, with whatever start token they have: a batch of ids, ids of any length, or texts.
Sequences: TypeAlias = (
    Integer[np.ndarray, "sequence pos"] | Integer[Tensor, "sequence pos"]
    | Sequence[Integer[np.ndarray, " tokens"] | Integer[Tensor, " tokens"] | Sequence[int] | str]
)  # fmt: skip
_BLOCK = 1 << 20
_NO_TEXT = "expected text, got none: is the corpus empty, or max_tokens 0?"


class Windows(NamedTuple):
    """Some consecutive windows, each a start token and then text of one document."""

    tokens: Int64[np.ndarray, "windows pos"]
    """A shorter window is filled up with start tokens."""
    length: Int64[np.ndarray, " windows"]
    """The number of the window's tokens, the start token included."""
    stratum: Int64[np.ndarray, " windows"]
    """The running number of its stratum in the text: 8 consecutive windows of one document, and at the document's end
    up to 7 more."""
    document: Int64[np.ndarray, " windows"]
    """The running number of its document."""


def windows(
    model: AttentionOnlyTransformer,
    text: Text | Sequences,
    *,
    batch_size: int,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
    attention_mask: Tensor | None = None,
    progress: Progress | None = None,
) -> Iterator[Windows]:
    """Yield batches of windows without overlap: the start token, then up to n_ctx − 1 tokens of one document.

    A batch of sequences is one window each, as the model reads it, and each is a document; `attention_mask` is True (or
    1) at the ids of a batch that are no padding. With `max_tokens`, sequences are left out that begin beyond it.

    Windows begin anew at each document, so a document's last window may be shorter. A token file and a corpus know
    their documents; in ids, each separator (the tokenizer's start token) begins one, and ids for a model without a
    tokenizer are one document. `documents` chooses some of a corpus, by name. `progress(tokens, all)` is called when a
    batch has been used; how many tokens a corpus has is known at its end only, `max_tokens` is its bound until then.
    Raises `ValueError` for text of another vocabulary, a corpus where the model has no tokenizer, or no text at all.
    """
    assert model.cfg.d_vocab is not None
    start = start_id(model.tokenizer) or 0
    require_whole("batch_size", batch_size, 1)
    if model.cfg.n_ctx < 2:
        raise ValueError("evidence needs a context of at least 2 positions.")
    sequences = _sequences(model, text, attention_mask, documents)
    if sequences is None:
        blocks = _checked_ids(model, text, documents, max_tokens)
        separator = text.eot_id if isinstance(text, TokenFile) else start_id(model.tokenizer)
        cut = windows_of_documents(blocks, separator, model.cfg.n_ctx - 1)
        each = ((np.concatenate([[start], ids]), stratum, document) for ids, stratum, document in cut)
        known = None if isinstance(text, Corpus | str) else len(text)
        at_most = min((bound for bound in (known, max_tokens) if bound is not None), default=0)
    else:
        before = np.cumsum([0, *(len(ids) for ids in sequences)])
        kept = len(sequences) if max_tokens is None else int((before[:-1] < max_tokens).sum())
        each = ((ids, row, row) for row, ids in enumerate(sequences[:kept]))
        at_most = int(before[kept]) - kept
    n_tokens = 0
    while batch := list(islice(each, batch_size)):
        length = np.array([len(ids) for ids, _, _ in batch])
        tokens = np.full((len(batch), max(length.max(), 2)), start, dtype=np.int64)
        for row, (ids, _, _) in zip(tokens, batch, strict=True):
            row[: len(ids)] = ids
        _, stratum, document = zip(*batch, strict=True)
        yield Windows(tokens, length, np.array(stratum), np.array(document))
        n_tokens += int((length - 1).sum())
        if progress is not None:
            progress(n_tokens, max(n_tokens, at_most))
    if not n_tokens:
        raise ValueError(_NO_TEXT)
    if progress is not None and n_tokens < at_most:
        progress(n_tokens, n_tokens)


def token_strings(model: AttentionOnlyTransformer, ids: Int64[np.ndarray, " tokens"]) -> tuple[str, ...]:
    """Return the strings of tokens; empty ones for a model without a tokenizer."""
    return ("",) * len(ids) if model.tokenizer is None else tuple(model.tokenizer.str_tokens(ids.tolist()))


def _sequences(
    model: AttentionOnlyTransformer, text: Any, attention_mask: Tensor | None, documents: Collection[str] | None
) -> list[Int64[np.ndarray, " tokens"]] | None:
    """The ids of each sequence of a batch, without padding; None for one text."""
    is_batch = isinstance(text, list | tuple) and len(text) > 0 and not isinstance(text[0], int | np.integer)
    if not is_batch and not (isinstance(text, Tensor | np.ndarray) and text.ndim == 2):
        if attention_mask is not None:
            raise ValueError("attention_mask: expected it with a batch of ids [sequence, pos], got one text.")
        return None
    if documents is not None:
        raise ValueError("documents: only a corpus has named documents to choose from.")
    if attention_mask is not None:
        shape = list(getattr(text, "shape", [len(text)]))
        require_shape("attention_mask", attention_mask, shape)
        text = [torch.as_tensor(ids).cpu()[mask.cpu().bool()] for ids, mask in zip(text, attention_mask, strict=True)]
    rows = [model.to_tokens(ids)[0] if isinstance(ids, str) else torch.as_tensor(ids) for ids in text]
    for number, ids in enumerate(rows):
        whole = ids.ndim == 1 and not ids.is_floating_point() and ids.dtype != torch.bool
        if (
            not whole
            or not 1 <= len(ids) <= model.cfg.n_ctx
            or not 0 <= int(ids.min()) <= int(ids.max()) < model.W_E.shape[0]
        ):
            raise ValueError(
                f"sequence {number}: expected 1 to {model.cfg.n_ctx} token ids (n_ctx) 0 to {model.W_E.shape[0] - 1}, "
                f"got {list(ids.shape)} of {ids.dtype}."
            )
    return [ids.cpu().numpy().astype(np.int64) for ids in rows]


def _tokenizer(model: AttentionOnlyTransformer) -> Tokenizer:
    if not isinstance(model.tokenizer, Tokenizer):
        raise ValueError("text needs a model with a tokenizer; give a TokenFile or token ids instead.")
    return model.tokenizer


def read_ids(
    model: AttentionOnlyTransformer,
    text: Text,
    *,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
) -> Int64[np.ndarray, " tokens"]:
    """Return text as ids in memory, 8 bytes a token: encoded once, it can be read any number of times.

    The same tokens, in the same order, as `windows` cuts up, with the separators between documents. Raises
    `ValueError` as `windows` does.
    """
    require_ours(model, "read_ids")
    blocks, n = [np.empty(0, dtype=np.int64)], 0
    for ids in _checked_ids(model, text, documents, max_tokens):
        blocks.append(ids)
        n += len(ids)
    if not n:
        raise ValueError(_NO_TEXT)
    return np.concatenate(blocks)


def _checked_ids(
    model: AttentionOnlyTransformer, text: Any, documents: Collection[str] | None, max_tokens: int | None
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
        tokenizer = _tokenizer(model)
        separator: list[int] = []
        for document in text.documents(documents):
            pieces = iter(tokenizer.pieces(document.text))
            while batch := list(islice(pieces, 32)):  # some 2 MB of text at once
                encoded = tokenizer.encode_batch(batch)
                yield np.array([*separator, *(index for ids in encoded for index in ids)], dtype=np.int64)
                separator = []
            separator = [] if tokenizer.eot_id is None else [tokenizer.eot_id]
        return
    if isinstance(text, str):
        text = np.array(_tokenizer(model).encode(text), dtype=np.int64)
    if isinstance(text, TokenFile):
        ids, begin = np.asarray(text.tokens), 1
    else:
        ids, begin = (text.cpu().numpy() if isinstance(text, Tensor) else np.asarray(text)), 0
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"expected token ids as whole numbers in one dimension, got {ids.dtype} {list(ids.shape)}.")
    for block in range(begin, len(ids), _BLOCK):
        yield ids[block : block + _BLOCK].astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusBigrams(Result):
    """Every pair seen, sorted by first, then second."""

    first: Int64[np.ndarray, " pairs"]
    second: Int64[np.ndarray, " pairs"]
    count: Int64[np.ndarray, " pairs"]
    totals: Float64[np.ndarray, " d_vocab"]
    """The number of times that anything follows the token."""
    keys: Int64[np.ndarray, " pairs"]
    """first · d_vocab + second."""

    @property
    def headline(self) -> str:
        return f"{self.n:,} bigrams, {len(self.count):,} different"

    @property
    def d_vocab(self) -> int:
        return len(self.totals)

    @property
    def n(self) -> int:
        """The number of bigrams that were counted."""
        return int(self.count.sum())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair that occurs, the most frequent first: first_id, second_id, count."""
        frame = data_frame({"first_id": self.first, "second_id": self.second, "count": self.count})
        return frame.sort_values("count", ascending=False, kind="stable", ignore_index=True)

    def of(self, first: Int64[np.ndarray, " n"], second: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Return the count of each of these pairs."""
        wanted = first * self.d_vocab + second
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[places] == wanted, self.count[places], 0)


#: Text to count, or bigrams that are counted already.
BigramSource: TypeAlias = Text | BigramModel | CorpusBigrams


def count_bigrams(
    model: AttentionOnlyTransformer,
    corpus: BigramSource,
    *,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
) -> CorpusBigrams:
    """Return the bigrams of a text or a `BigramModel`. Raises `ValueError` for another vocabulary, or no pair."""
    require_ours(model, "count_bigrams")
    if isinstance(corpus, BigramModel | CorpusBigrams):
        if max_tokens is not None or documents is not None:
            raise ValueError("max_tokens and documents choose text to count; these bigrams are counted already.")
        _check(model, corpus.d_vocab)
        return corpus if isinstance(corpus, CorpusBigrams) else _of(corpus)
    if isinstance(corpus, TokenFile):
        _check(model, corpus.d_vocab)
    ids = read_ids(model, corpus, max_tokens=max_tokens, documents=documents)
    # The first document begins after a separator as well.
    if isinstance(corpus, TokenFile):
        ids = np.append(corpus.eot_id, ids)
    elif isinstance(corpus, Corpus | str) and model.tokenizer is not None:
        start = model.tokenizer.eot_id
        ids = ids if start is None else np.append(start, ids)
    return _of(BigramModel.fit(ids, model.cfg.d_vocab or 0))


def _check(model: AttentionOnlyTransformer, d_vocab: int) -> None:
    if d_vocab != model.cfg.d_vocab:
        raise ValueError(f"corpus: expected a vocabulary of {model.cfg.d_vocab} tokens, got {d_vocab}.")


def _of(counted: BigramModel) -> CorpusBigrams:
    keys, count, n = counted.pair_keys, counted.pair_counts, counted.d_vocab
    first, second = keys // n, keys % n
    return CorpusBigrams(
        first=first, second=second, count=count, totals=np.bincount(first, count, minlength=n), keys=keys
    )
