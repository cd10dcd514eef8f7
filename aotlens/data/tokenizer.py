"""Byte-level BPE: any text in, the same text out, and a string for every single token.

A thin wrapper over ``tokenizers.Tokenizer``. Id 0 is ``<|endoftext|>``: the start token of every prompt and
the separator of documents (GPT-2's own vocabulary has it at 50256). Nothing a user types can produce it:
typed, it becomes several ordinary tokens. There is no unknown token, because every byte is in the vocabulary.

A masked language model's vocabulary has one token more, the last: ``<|mask|>`` (`Tokenizer.with_mask`). That one can
be typed, since it is how a user asks such a model what stands there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Integer
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

from aotlens.data.byte_level import byte_of_character, escape_invalid_utf8, require_utf8
from aotlens.data.tokenizer_kinds import check_byte_level
from aotlens.untrusted import read_lines, read_regular, shown, strict_json

END_OF_TEXT = "<|endoftext|>"
MASK = "<|mask|>"
_PIECE_CHARACTERS = 1 << 16
# Before words are merged, text is cut into words by GPT-2's pattern, in which whitespace only ever begins a
# word or makes up all of one. So there is a cut wherever whitespace follows something visible.
_CERTAIN_CUT = re.compile(r"(?<=[!-~])(?=[ \n])")
SMALLEST_VOCABULARY = 257  # 256 bytes and END_OF_TEXT

TokenIds = Iterable[int] | Integer[np.ndarray, "..."] | Integer[Tensor, "..."]


class Tokenizer:
    """Byte-level BPE with one special token, ``<|endoftext|>``; made by `train` or a ``from_…`` method."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        eot_id = backend.token_to_id(END_OF_TEXT)
        if eot_id is None:
            raise ValueError(f"expected a vocabulary with {END_OF_TEXT!r}; add it as a special token")
        self.eot_id: int = eot_id
        saved = json.loads(backend.to_str())
        check_byte_level(saved, ordinary=(MASK,))
        self._plain = _cuts_as_ours(saved)
        # Not part of the saved JSON: without it, "<|endoftext|>" typed by a user becomes the separator.
        backend.encode_special_tokens = True
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self.mask_id: int | None = next((index for index, token in added.items() if token.content == MASK), None)

    # --- making one ---

    @classmethod
    def train(cls, texts: Iterable[str], d_vocab: int, *, exact: bool = True) -> Tokenizer:
        """Learn ``d_vocab`` tokens from texts, which are read once.

        Raises ValueError if ``d_vocab`` is below 257 (256 bytes and the separator), or if the texts are so
        short that there are not that many merges to learn (the message says how many tokens there are); unless
        ``exact``, there are then fewer tokens.
        """
        if d_vocab < SMALLEST_VOCABULARY:
            raise ValueError(
                f"d_vocab must be at least {SMALLEST_VOCABULARY} (256 bytes and {END_OF_TEXT}), got {d_vocab}"
            )
        backend = _untrained(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=d_vocab,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(_checked(texts), trainer)
        reached = backend.get_vocab_size()
        if exact and reached != d_vocab:
            raise ValueError(
                f"expected text with enough different words for d_vocab={d_vocab}, but all its merges give "
                f"only {reached} tokens; ask for d_vocab={reached} or less, or give more text"
            )
        return cls(backend)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Tokenizer:
        """Read a ``tokenizer.json`` (the format of Hugging Face's ``tokenizers``)."""
        try:
            return cls.from_json(read_regular(Path(path), kind="tokenizer.json").decode())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Return the tokenizer of which `to_json` gave the text."""
        expected = "expected a tokenizer's JSON as `Tokenizer.save` writes it"
        try:
            saved = strict_json(text)
        except ValueError as error:
            raise ValueError(f"{expected}: {error}") from error
        check_byte_level(saved, ordinary=(MASK,))  # before the library sees it, which panics at some settings
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{expected}: {error}") from error
        return cls(backend)

    @classmethod
    def from_gpt2_files(cls, encoder_json: str | PathLike[str], vocab_bpe: str | PathLike[str]) -> Tokenizer:
        """Return the tokenizer in GPT-2's published files: ``encoder.json`` (token to id) and ``vocab.bpe`` (merges,
        best first).

        Raises `ValueError`, which names them, for what is not that: ids are 0, 1, … without gaps.
        """
        try:
            vocabulary = strict_json(read_regular(Path(encoder_json), kind="vocabulary"))
            merges = _merges(read_lines(Path(vocab_bpe), "vocabulary"))
            ids: list[Any] = list(vocabulary.values()) if isinstance(vocabulary, dict) else [None]
            if not all(type(index) is int for index in ids) or sorted(ids) != list(range(len(ids))):
                # The library makes room for the largest one: 4·10⁹ took it 70 seconds.
                raise ValueError("a vocabulary whose ids are not 0, 1, … without gaps")
            backend = _untrained(models.BPE(vocab=vocabulary, merges=merges))
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"{encoder_json} and {vocab_bpe}: expected GPT-2's two files, got {error}") from error
        if backend.token_to_id(END_OF_TEXT) is None:
            raise ValueError(f"{encoder_json}: expected tokens and ids with {END_OF_TEXT!r}")
        backend.add_special_tokens([END_OF_TEXT])
        try:
            return cls(backend)
        except ValueError as error:
            raise ValueError(f"{encoder_json} and {vocab_bpe}: {error}") from error

    def with_mask(self) -> Tokenizer:
        """Return the same tokenizer with ``<|mask|>`` as its last id; itself, where it has one.

        All other ids stay, so token files of this one serve for it too. In a text ``<|mask|>`` is that one token.
        """
        if self.mask_id is not None:
            return self
        backend = tokenizers.Tokenizer.from_str(self.to_json())
        # Not a special token: those are encoded as ordinary text here, and users write this one.
        backend.add_tokens([tokenizers.AddedToken(MASK, special=False, normalized=False)])
        return Tokenizer(backend)

    def padded(self, d_vocab: int) -> Tokenizer:
        """Return the same tokenizer with ids up to `d_vocab` − 1, as models have whose vocabulary was rounded up;
        itself, where none lack.

        No text makes one of the ids that are added, whose strings are ``<|unused 257|>`` and so on.
        """
        if d_vocab <= self.d_vocab:
            return self
        backend = tokenizers.Tokenizer.from_str(self.to_json())
        backend.add_special_tokens([f"<|unused {index}|>" for index in range(self.d_vocab, d_vocab)])
        return Tokenizer(backend)

    # --- saving ---

    def to_json(self) -> str:
        """Return the whole tokenizer as JSON text, readable by `from_json` and by ``tokenizers``."""
        return self._backend.to_str()

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_json` to ``path``."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"Tokenizer(d_vocab={self.d_vocab}, eot_id={self.eot_id})"

    # --- using it ---

    @property
    def d_vocab(self) -> int:
        """The number of token ids, the separator included."""
        return len(self._token_bytes)

    def encode(self, text: str) -> list[int]:
        """Return token ids of ``text``, no start token added. A lone surrogate is a ValueError with its position."""
        require_utf8(text)
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return `encode` for many texts at once, in parallel threads."""
        for index, text in enumerate(texts):
            require_utf8(text, what=f"text {index}")
        return [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def pieces(self, text: str) -> list[str]:
        """Cut a long text where `encode` would cut it anyway: the pieces' ids, joined, are the text's ids.

        Keeps memory bounded, and lets `encode_batch` use every core on one long document.
        """
        return _cut(text) if self._plain else [text]

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """Return the bytes that ``ids`` stand for, separators written out. An id out of range is a ValueError."""
        return b"".join(self._token_bytes[index] for index in self._checked_ids(ids))

    def decode(self, ids: TokenIds) -> str:
        """Return the text of ``ids``, exactly as encoded; bytes of a character cut in two appear as ``<0xE2>``."""
        return escape_invalid_utf8(self.decode_bytes(ids))

    def str_tokens(self, ids: TokenIds) -> list[str]:
        """Return one string per token, whitespace as it is; bytes of a part of a character appear as ``<0xE2>``."""
        return [self._token_strings[index] for index in self._checked_ids(ids)]

    @cached_property
    def _token_bytes(self) -> tuple[bytes, ...]:
        byte_of = byte_of_character()
        added = self._backend.get_added_tokens_decoder()  # written as text, not in the byte alphabet
        token_of = {index: token for token, index in self._backend.get_vocab(with_added_tokens=True).items()}
        if token_of.keys() != set(range(len(token_of))):
            raise ValueError(f"expected token ids 0 to {len(token_of) - 1} without gaps, got others")
        return tuple(
            added[index].content.encode() if index in added else bytes(byte_of[c] for c in token_of[index])
            for index in range(len(token_of))
        )

    @cached_property
    def _token_strings(self) -> tuple[str, ...]:
        return tuple(escape_invalid_utf8(data) for data in self._token_bytes)

    def _checked_ids(self, ids: TokenIds) -> list[int]:
        listed = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        if not isinstance(listed, list) or any(isinstance(index, list) for index in listed):
            raise ValueError("expected one sequence of token ids, got a number or a batch; pass a row at a time")
        for position, index in enumerate(listed):
            if not 0 <= index < self.d_vocab:
                raise ValueError(
                    f"expected token ids from 0 to {self.d_vocab - 1}, got {index} at position {position}; "
                    "were these ids made by another tokenizer?"
                )
        return listed


def _untrained(model: models.BPE) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _merges(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs of a ``vocab.bpe``, a line each, after a line with the version."""
    pairs = []
    for number, line in enumerate(lines, 1):
        if line.startswith("#version"):
            continue
        parts = line.split(" ")
        if len(parts) != 2:
            raise ValueError(f"line {number} of the merges, which is not two tokens: {shown(line)}")
        pairs.append((parts[0], parts[1]))
    return pairs


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Pieces of texts, since the trainer holds 256 items at once; the words that it counts are the same."""
    for index, text in enumerate(texts):
        require_utf8(text, what=f"text {index}")
        yield from _cut(text)


def _cut(text: str) -> list[str]:
    pieces, begin = [], 0
    while cut := _CERTAIN_CUT.search(text, begin + _PIECE_CHARACTERS):
        pieces.append(text[begin : cut.start()])
        begin = cut.start()
    return [*pieces, text[begin:]]


def _cuts_as_ours(saved: dict[str, Any]) -> bool:
    """Whether words are cut by GPT-2's pattern and nothing else, as ours are."""
    plain = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return saved["normalizer"] is None and plain.items() <= saved["pre_tokenizer"].items()
