from __future__ import annotations

import errno
import re
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from aotlens.data import Document, TokenFile, Tokenizer, documents_sha256
from aotlens.data import token_file as token_file_module
from aotlens.data import tokenizer as tokenizer_module
from tests.messages import refused

DOCUMENTS = [
    Document("one", "the cat sat on the mat — 😀\n" * 30),
    Document("two", ""),
    Document("three", "<|endoftext|> typed by hand" + " " * 300),
    Document("four", "the theory of the other"),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([document.text for document in DOCUMENTS], 280)


def naive_tokens(tokenizer: Tokenizer) -> list[int]:
    return [index for document in DOCUMENTS for index in [0, *tokenizer.encode(document.text)]]


def test_tokens_are_the_documents_each_after_a_separator(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = TokenFile.build(iter(DOCUMENTS), tokenizer, tmp_path / "new" / "tokens.bin")
    expected = naive_tokens(tokenizer)
    assert file.tokens.tolist() == expected and len(file) == len(expected)
    assert file.document_names == ("one", "two", "three", "four")
    ends = [*(file.document_starts[1:] - 1), len(file)]
    for document, begin, end in zip(DOCUMENTS, file.document_starts, ends, strict=True):
        assert file.tokens[begin - 1] == 0
        assert tokenizer.decode(file.tokens[begin:end]) == document.text
    assert (file.d_vocab, file.eot_id, file.sha256) == (280, 0, documents_sha256(DOCUMENTS))
    counted = Counter(expected)
    assert file.counts().dtype == np.int64
    assert file.counts().tolist() == [counted[index] for index in range(280)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tokens.bin"]


def test_tokens_stay_on_the_disk(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    TokenFile.build(DOCUMENTS, tokenizer, path)
    file = TokenFile.open(path)
    assert isinstance(file.tokens, np.memmap) and file.tokens.dtype == np.uint16
    assert not file.tokens.flags.writeable
    assert file.tokens.tolist() == naive_tokens(tokenizer)


def test_pieces_and_batches_change_nothing(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TokenFile.build(DOCUMENTS, tokenizer, tmp_path / "whole.bin")
    largest = 0

    class Watched(Tokenizer):
        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            nonlocal largest
            largest = max(largest, sum(map(len, texts)))
            return super().encode_batch(texts)

    monkeypatch.setattr(tokenizer_module, "_PIECE_CHARACTERS", 20)
    monkeypatch.setattr(token_file_module, "_BATCH_CHARACTERS", 50)
    watched = Watched.from_json(tokenizer.to_json())
    pieces = TokenFile.build(DOCUMENTS, watched, tmp_path / "pieces.bin")
    assert (tmp_path / "pieces.bin").read_bytes() == (tmp_path / "whole.bin").read_bytes()
    assert pieces.tokens.tolist() == whole.tokens.tolist()
    assert largest < 400  # of 1,100 characters; the 300 spaces are one word and cannot be cut


def test_documents_are_not_gathered(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_file_module, "_BATCH_CHARACTERS", 100)
    alive = most = 0

    class Counted(str):
        def __new__(cls, text: str) -> Counted:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, text)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    documents = (Document(str(n), Counted("some text of thirty characters")) for n in range(200))
    TokenFile.build(documents, tokenizer, tmp_path / "tokens.bin")
    assert most <= 10  # two batches of four, and the one being made


def test_large_vocabularies_take_four_bytes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    class Wide(Tokenizer):
        d_vocab = property(lambda self: 70_000)  # type: ignore[assignment]

        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            return [[69_999, 65_536, len(text)] for text in texts]

    file = TokenFile.build(DOCUMENTS[2:], Wide.from_json(tokenizer.to_json()), tmp_path / "tokens.bin")
    assert file.tokens.dtype == np.uint32
    assert file.tokens.tolist() == [0, 69_999, 65_536, 327, 0, 69_999, 65_536, 23]
    assert file.counts()[69_999] == 2


def test_nothing_to_build_from(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with refused("documents", "none"):
        TokenFile.build([], tokenizer, tmp_path / "tokens.bin")
    with pytest.raises(ValueError, match="lone surrogate"):
        TokenFile.build([Document("bad", "\ud800")], tokenizer, tmp_path / "tokens.bin")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_build_leaves_the_old_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    TokenFile.build(DOCUMENTS, tokenizer, path)
    before = path.read_bytes()

    def interrupted() -> Iterator[Document]:
        yield DOCUMENTS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenFile.build(interrupted(), tokenizer, path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    TokenFile.build(DOCUMENTS[:1], tokenizer, path)
    assert TokenFile.open(path).document_names == ("one",)


def test_a_disk_without_room_leaves_the_old_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    TokenFile.build(DOCUMENTS, tokenizer, path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the kernel refuses larger files, as if full
    try:
        with refused("nothing was replaced", "tokens.bin", error=OSError) as raised:
            TokenFile.build([Document("large", "x" * 200_000)], tokenizer, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.errno == errno.EFBIG
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_damaged_files_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    TokenFile.build(DOCUMENTS, tokenizer, path)
    good = path.read_bytes()
    for damaged, message in [
        (b"", "expected a token file"),
        (b"PK\x03\x04" + bytes(200), r"expected a token file \(beginning b'AOTLTOK1'\), got b'PK"),
        (good[:-1], rf"expected {len(good)} bytes, got {len(good) - 1}; build the file again"),
        (good[: len(good) // 2], "bytes, got"),
        (good + b"x", "bytes, got"),
        (good[:32] + (3).to_bytes(8, "little") + good[40:], "expected 2 or 4 bytes a token, got 3"),
        (good[:-1] + b"x", "expected a JSON trailer"),
        (good.replace(b'"d_vocab"', b'"d_vocax"'), "expected a JSON trailer.*KeyError: 'd_vocab'"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=re.escape(str(path)) + ": .*" + message):
            TokenFile.open(path)
    path.unlink()
    with refused("token file", "none"):
        TokenFile.open(path)


def test_ids_out_of_range_are_counted_as_an_error(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    TokenFile.build(DOCUMENTS, tokenizer, path)
    data = bytearray(path.read_bytes())
    data[66:68] = (4321).to_bytes(2, "little")
    path.write_bytes(data)
    with refused("d_vocab = 280", 4321):
        TokenFile.open(path).counts()
