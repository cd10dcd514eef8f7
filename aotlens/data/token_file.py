"""Token files: a corpus as one memory-mapped array of token ids, document boundaries kept.

One file, little-endian, in this order: a preamble of 64 bytes (magic and sizes), the token ids (uint16 if
``d_vocab`` ≤ 65,536, else uint32), the position of each document's first token (int64), and a JSON trailer
(vocabulary size, document names, SHA-256 of the documents). What is only known at the end stands at the end,
so that a build streams.
"""

from __future__ import annotations

import json
import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int64

from aotlens.data.corpus import Document, DocumentHash
from aotlens.data.tokenizer import Tokenizer
from aotlens.files import replacing_file
from aotlens.untrusted import boundary, open_regular, require_types, strict_json

MAGIC = b"AOTLTOK1"
_MOST_IDS = 2**24  # of a vocabulary: counts have an entry for each
_MOST_TRAILER = 512 * 2**20  # bytes: names of documents, and where each begins
_PREAMBLE = struct.Struct("<8sQQQQ24x")  # magic, tokens, documents, trailer's length, bytes a token
_BATCH_CHARACTERS = 2_000_000  # text encoded at once; its encodings take some 100 bytes a token


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenFile:
    """Token ids on disk. Each document is preceded by the separator, so ``tokens[0]`` is ``eot_id``."""

    path: Path
    tokens: np.memmap[Any, Any]  # [n_tokens], uint16 or uint32, read-only
    document_starts: Int64[np.ndarray, " documents"]  # where each document's tokens begin, after its separator
    document_names: tuple[str, ...]
    d_vocab: int
    eot_id: int
    sha256: str  # of the documents, as `aotlens.data.documents_sha256` computes it

    @classmethod
    def build(cls, documents: Iterable[Document], tokenizer: Tokenizer, path: str | os.PathLike[str]) -> TokenFile:
        """Encode documents to ``path`` and open it.

        Streams: memory holds one document's text, and the encodings of a few megabytes of text. Atomic: until
        the last byte is on the disk, ``path`` is what it was before. Raises ValueError if there are no
        documents, or for a lone surrogate in one, and OSError (a full disk, say) with the path.
        """
        path = Path(path)
        with replacing_file(path) as temporary, temporary.open("wb") as file:
            _write(file, documents, tokenizer)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TokenFile:
        """Map a token file into memory. Raises ValueError if there is none, or a damaged one."""
        path = Path(path)
        if not path.exists():
            raise ValueError(f"{path}: expected a token file, found none; make it with `TokenFile.build`")
        with open_regular(path) as (file, size):
            preamble = file.read(_PREAMBLE.size)
            if len(preamble) < _PREAMBLE.size or not preamble.startswith(MAGIC):
                raise ValueError(f"{path}: expected a token file (beginning {MAGIC!r}), got {preamble[:8]!r}")
            _, n_tokens, n_documents, trailer_length, width = _PREAMBLE.unpack(preamble)
            if width not in (2, 4):
                raise ValueError(f"{path}: expected 2 or 4 bytes a token, got {width}; build the file again")
            starts_at = _PREAMBLE.size + width * n_tokens
            expected = starts_at + 8 * n_documents + trailer_length
            if max(8 * n_documents, trailer_length) > _MOST_TRAILER:
                raise ValueError(f"{path}: expected at most {_MOST_TRAILER:,} bytes about documents; build it again")
            if size != expected:
                raise ValueError(f"{path}: expected {expected} bytes, got {size}; build the file again")
            file.seek(starts_at)
            starts = np.frombuffer(file.read(8 * n_documents), dtype="<i8").astype(np.int64)
            with boundary(path, "a JSON trailer", "Build the file again."):
                trailer = strict_json(file.read(trailer_length))
                names = tuple(trailer["document_names"])
                header = {key: trailer[key] for key in ("d_vocab", "eot_id", "sha256")}
                require_types(cls, {**header, "document_names": names}, "its trailer")
                if not 0 < header["d_vocab"] <= _MOST_IDS:
                    raise ValueError(f"expected d_vocab from 1 to {_MOST_IDS:,}, got {header['d_vocab']}")
        tokens = np.memmap(path, dtype=f"<u{width}", mode="r", offset=_PREAMBLE.size, shape=(n_tokens,))
        return cls(
            path=path,
            tokens=tokens,
            document_starts=starts,
            document_names=names,
            **header,
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def counts(self) -> Int64[np.ndarray, " d_vocab"]:
        """Count the occurrences of each token id. Raises ValueError if an id is out of range."""
        total = np.zeros(self.d_vocab, dtype=np.int64)
        for begin in range(0, len(self.tokens), 1 << 20):
            part = np.bincount(self.tokens[begin : begin + (1 << 20)], minlength=self.d_vocab)
            if len(part) > self.d_vocab:
                raise ValueError(
                    f"{self.path}: expected token ids below d_vocab = {self.d_vocab}, got {len(part) - 1}; "
                    "build the file again"
                )
            total += part
        return total


def _write(file: BinaryIO, documents: Iterable[Document], tokenizer: Tokenizer) -> None:
    dtype = np.dtype("<u2" if tokenizer.d_vocab <= 65536 else "<u4")
    starts = array("q")  # compact: a streamed dataset has millions of documents
    names: list[str] = []
    digest = DocumentHash()
    n_tokens = 0
    file.write(bytes(_PREAMBLE.size))  # filled in at the end
    if tokenizer.eot_id is None:
        raise ValueError("expected a tokenizer with a token that begins or ends texts, to separate documents by.")
    separator = np.array([tokenizer.eot_id], dtype=dtype).tobytes()
    for batch in _batches(_pieces(documents, tokenizer)):
        encoded = tokenizer.encode_batch([piece for _, piece in batch])
        for (document, _), ids in zip(batch, encoded, strict=True):
            if document is not None:  # the first piece of this document
                file.write(separator)
                n_tokens += 1
                starts.append(n_tokens)
                names.append(document.name)
                digest.update(document)
            file.write(np.array(ids, dtype=dtype).tobytes())
            n_tokens += len(ids)
    if not names:
        raise ValueError("expected documents to encode, got none; is the corpus, or the side of its split, empty?")
    header = {"d_vocab": tokenizer.d_vocab, "eot_id": tokenizer.eot_id, "sha256": digest.hexdigest()}
    trailer = json.dumps({**header, "document_names": names}).encode()
    file.write(np.array(starts, dtype="<i8").tobytes())
    file.write(trailer)
    file.seek(0)
    file.write(_PREAMBLE.pack(MAGIC, n_tokens, len(names), len(trailer), dtype.itemsize))


def _pieces(documents: Iterable[Document], tokenizer: Tokenizer) -> Iterator[tuple[Document | None, str]]:
    """(document, its first piece), then (None, piece) for the further ones."""
    for document in documents:
        first, *others = tokenizer.pieces(document.text)
        yield document, first
        yield from ((None, piece) for piece in others)


def _batches(pieces: Iterable[tuple[Document | None, str]]) -> Iterator[list[tuple[Document | None, str]]]:
    """Group pieces so that each group but the last has `_BATCH_CHARACTERS` or somewhat more."""
    batch: list[tuple[Document | None, str]] = []
    characters = 0
    for document, piece in pieces:
        batch.append((document, piece))
        characters += len(piece)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
