"""Byte-level BPE of our own, and every other tokenizer that the library `tokenizers` reads.

A thin wrapper over ``tokenizers.Tokenizer``. In ours id 0 is ``<|endoftext|>``: the start token of every prompt and
the separator of documents (GPT-2's own vocabulary has it at 50256); in others it is what their file puts first. A
special token that is typed in a text stays text, several ordinary tokens, unless `special=True` asks for what Hugging
Face does. Byte-level tokenizers have every byte in their vocabulary: any text comes back. Others may be `lossy`.

A masked language model's vocabulary has one token more, the last: ``<|mask|>`` (`Tokenizer.with_mask`). That one can
be typed, since it is how a user asks such a model what stands there.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Integer
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.data.tokenizer_kinds import (
    MOST_GROWTH,
    byte_of_character,
    check_tokenizer,
    escape_invalid_utf8,
    require_utf8,
    special_start,
    without_habits,
)
from aotlens.models.text import TextInterface
from aotlens.untrusted import excerpt, read_lines, read_regular, strict_json

END_OF_TEXT = "<|endoftext|>"
MASK = "<|mask|>"
_PIECE_CHARACTERS = 1 << 16
# Before words are merged, text is cut into words by GPT-2's pattern, in which whitespace only ever begins a
# word or makes up all of one. So there is a cut wherever whitespace follows something visible.
_CERTAIN_CUT = re.compile(r"(?<=[!-~])(?=[ \n])")
_BYTES, _BYTE = byte_of_character(), re.compile("<0x([0-9A-F]{2})>")
#: Names of the mask, ours first; values of a tokenizer.json, of which a merge may be three.
_MASKS, _MOST_VALUES = (MASK, "[MASK]", "<mask>"), 2_100_000
_EXPECTED = "expected a tokenizer's JSON as `Tokenizer.save` writes it"
#: A text with capitals, spaces in a row, a tab, a new line, digits, punctuation, and characters of 2, 3 and 4 bytes.
_PROBE = "Aa  b\n\té — 😀 don't 12,345 <x>"
SMALLEST_VOCABULARY = 257  # 256 bytes and END_OF_TEXT

TokenIds = Iterable[int] | Integer[np.ndarray, "..."] | Integer[Tensor, "..."]


class Tokenizer:
    """A tokenizer of the library `tokenizers`; made by `train`, `of` or a ``from_…`` method."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        saved = json.loads(backend.to_str())
        self._grows = check_tokenizer(saved)
        self.start = special_start(saved)
        self.eot_id: int | None = None if self.start is None else backend.token_to_id(self.start)
        self._plain = _cuts_as_ours(saved)
        self._suffix = saved["model"].get("end_of_word_suffix") or ""
        decoder = json.dumps(saved["decoder"])
        self._in_bytes, self._bytes_as_tokens = '"ByteLevel"' in decoder, '"ByteFallback"' in decoder
        # Not part of the saved JSON: without it, "<|endoftext|>" typed by a user becomes the separator.
        backend.encode_special_tokens = True
        self._backend = backend
        ids = {token.content: index for index, token in backend.get_added_tokens_decoder().items()}
        self.mask_id: int | None = next((ids[name] for name in _MASKS if name in ids), None)

    @classmethod
    def train(cls, texts: Iterable[str], d_vocab: int, *, exact: bool = True) -> Tokenizer:
        """Learn ``d_vocab`` tokens from texts, which are read once.

        Raises ValueError if ``d_vocab`` is below 257 (256 bytes and the separator), or if the texts are too
        short for that many merges (the message says how many tokens they give); unless
        ``exact``, there are then fewer tokens.
        """
        require_whole("d_vocab", d_vocab, SMALLEST_VOCABULARY, 2**31)
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
        return cls._of_saved(_read(text))

    @classmethod
    def of(cls, tokenizer: Any, *names: str | None, d_vocab: int | None = None) -> Tokenizer:
        """Return a tokenizer of the libraries `tokenizers` or `transformers`, or the text of a ``tokenizer.json``, as
        ours.

        A text begins with the token that it puts first, else with its `bos_token`, or one of `names`. Padding and
        truncation, which a call leaves behind, are dropped. Added tokens beyond `d_vocab`, the model's, which has no
        row for them, are left out with a warning; ids that it has besides get strings (`padded`). So does a `lossy`
        one warn. Raises `ValueError` for anything else, and for one whose cost is not bounded (`tokenizer_kinds.py`).
        """
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(backend, str | tokenizers.Tokenizer):
            kind = type(tokenizer).__name__
            raise ValueError(f"expected a tokenizer of `tokenizers`, or a fast Hugging Face tokenizer, got {kind}")
        names = *names, *(getattr(tokenizer, f"{kind}_token", None) for kind in ("bos", "cls"))
        saved = without_habits(_read(backend if isinstance(backend, str) else backend.to_str()), *names)
        check_tokenizer(saved)
        vocab, added = saved["model"]["vocab"], saved["added_tokens"]
        beyond = [
            token["content"] for token in added if token["content"] not in vocab and token["id"] >= (d_vocab or inf)
        ]
        if beyond:
            saved["added_tokens"] = [token for token in added if token["content"] not in beyond]
            warnings.warn(f"the model has no row for the tokens {excerpt(beyond)}, which are left out.", stacklevel=2)
        ours = cls._of_saved(without_habits(saved, *names))
        if ours.lossy:
            again = ours.decode(ours.encode(_PROBE))
            warnings.warn(f"the tokenizer is lossy: it reads {_PROBE!r} as {again!r}.", stacklevel=2)
        return ours if d_vocab is None else ours.padded(d_vocab)

    @classmethod
    def _of_saved(cls, saved: Any) -> Tokenizer:
        check_tokenizer(saved)  # before the library sees it, which panics at some settings
        with _library(_EXPECTED):
            ours = cls(tokenizers.Tokenizer.from_str(json.dumps(saved, ensure_ascii=False)))
            _ = ours.lossy  # or it fails with the first text
        for token in saved["added_tokens"] or ():
            if ours._backend.token_to_id(token["content"]) != token["id"]:
                raise ValueError(f"added_tokens: expected ids in order, found another for {excerpt(token['content'])}.")
        return ours

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
        try:
            if (start := special_start({"model": {"vocab": vocabulary}})) is None:
                raise ValueError(f"expected tokens and ids with {END_OF_TEXT!r}")
            backend.add_special_tokens([start])
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

    def to_json(self) -> str:
        """Return the whole tokenizer as JSON text, readable by `from_json` and by ``tokenizers``."""
        return self._backend.to_str()

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_json` to ``path``."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"Tokenizer(d_vocab={self.d_vocab}, eot_id={self.eot_id}{', lossy=True' * self.lossy})"

    @property
    def d_vocab(self) -> int:
        """The number of token ids, the separator included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @cached_property
    def lossy(self) -> bool:
        """Whether text comes back as another one: in lower case, with single spaces, or with an unknown token. A
        tokenizer that only composes accents (NFC) is not called lossy."""
        return self.decode(self.encode(_PROBE)) != _PROBE

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return token ids of ``text``, no start token added. A lone surrogate is a ValueError with its position.

        ``special`` reads special tokens that are typed in it, such as ``<|endoftext|>``, as Hugging Face does.
        """
        self._require_short(text, "text")
        with _library("this tokenizer cannot encode the text"):
            ids: list[int] = (self._parsing if special else self._backend).encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return `encode` for many texts at once, in parallel threads."""
        for index, text in enumerate(texts):
            self._require_short(text, f"text {index}")
        with _library("this tokenizer cannot encode the texts"):
            return [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _require_short(self, text: str, what: str) -> None:
        """Raise `ValueError` for half a character, and where the normalizer makes a text more than 8 times as long."""
        require_utf8(text, what=what)
        n_normal = 0
        for begin in range(0, len(text) if self._grows else 0, 1000):
            with _library(f"this tokenizer cannot encode the {what}"):
                n_normal += len(self._backend.normalizer.normalize_str(text[begin : begin + 1000]))
            if n_normal > MOST_GROWTH * max(begin, 1000):
                raise ValueError(f"{what}: expected a tokenizer that makes it at most {MOST_GROWTH} times as long.")

    def pieces(self, text: str) -> list[str]:
        """Cut a long text where `encode` would cut it anyway: the pieces' ids, joined, are the text's ids.

        Keeps memory bounded, and lets `encode_batch` use every core on one long document.
        """
        return _cut(text) if self._plain else [text]

    def decode_bytes(self, ids: TokenIds) -> bytes:
        """Return the bytes that ``ids`` stand for, separators written out. An id out of range is a ValueError."""
        return b"".join(self._token_bytes[index] for index in self._checked_ids(ids))

    def decode(self, ids: TokenIds) -> str:
        """Return the text of ``ids``, without a space that the tokenizer puts before each text; bytes of a character
        cut in two appear as ``<0xE2>``."""
        listed = self._checked_ids(ids)
        text = escape_invalid_utf8(self.decode_bytes(listed))
        if self._in_bytes:
            return text.rstrip(" ") if self._suffix else text
        with _library("this tokenizer cannot decode the ids"):
            theirs = self._backend.decode(listed, skip_special_tokens=False)
        if "\ufffd" not in theirs:
            return theirs
        return text[text.startswith(" ") and not theirs.startswith(" ") :]

    def str_tokens(self, ids: TokenIds) -> list[str]:
        """Return one string per token, whitespace as it is; bytes of a part of a character appear as ``<0xE2>``."""
        return [self._token_strings[index] for index in self._checked_ids(ids)]

    @cached_property
    def _parsing(self) -> tokenizers.Tokenizer:
        """The same tokenizer, which reads special tokens in a text."""
        return tokenizers.Tokenizer.from_str(self.to_json())

    @cached_property
    def _token_bytes(self) -> tuple[bytes, ...]:
        added = self._backend.get_added_tokens_decoder()  # written as text, not in the byte alphabet
        with _library("this tokenizer cannot decode its tokens"):
            return tuple(
                added[index].content.encode()
                if index in added
                else self._bytes_of(self._backend.id_to_token(index) or "")
                for index in range(self.d_vocab)
            )

    def _bytes_of(self, token: str) -> bytes:
        """What a token adds to a text in the midst of it: the bytes that it writes, or what the decoder makes of it."""
        if self._in_bytes:
            if self._suffix and token.endswith(self._suffix):
                return self._bytes_of(token.removesuffix(self._suffix)) + b" "
            try:
                return bytes(map(_BYTES.__getitem__, token))
            except KeyError:
                return token.encode()
        if self._bytes_as_tokens and (match := _BYTE.fullmatch(token)):
            return bytes([int(match[1], 16)])
        decode = " ".join if self._backend.decoder is None else self._backend.decoder.decode
        behind, before, between = (decode(words)[1:] for words in (["a", "a"], ["a", token], ["a", token, "a"]))
        if between.startswith(before) and between.endswith(behind):  # a space that the token's end writes
            before += between[len(before) : len(between) - len(behind)]
        return before.encode()

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
            raise ValueError(f"line {number} of the merges, which is not two tokens: {excerpt(line)}")
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
    across = any(token["rstrip"] or _CERTAIN_CUT.search(token["content"]) for token in saved["added_tokens"])
    return saved["normalizer"] is None and plain.items() <= (saved["pre_tokenizer"] or {}).items() and not across


def _read(text: str) -> Any:
    try:
        return strict_json(text, most=_MOST_VALUES)
    except ValueError as error:
        raise ValueError(f"{_EXPECTED}: {error}") from error


@contextmanager
def _library(expected: str) -> Iterator[None]:
    """What the library raises, which are bare exceptions and Rust's panics, as `ValueError`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{expected}: {error}") from error


TextInterface.adapt_tokenizer = staticmethod(Tokenizer.of)
