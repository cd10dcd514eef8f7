from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aotlens.data import Document, TokenFile, Tokenizer, open_corpus
from aotlens.data.sources import HuggingFaceCorpus
from tests.messages import refused

pytest.importorskip("datasets", reason="needs datasets: pip install 'aotlens[hf]'")


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset on disk: `datasets` reads a folder as it would read one of the hub's repositories."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [{"text": f"story {n}", "title": f"Title {n}", "words": n} for n in range(4)]
    rows[2]["text"] = ""
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.mark.parametrize(
    ("spec", "name", "config", "field"),
    [
        ("hf:user/data", "user/data", None, "text"),
        ("hf:data:v1", "data", "v1", "text"),
        ("hf:data:v1:body", "data", "v1", "body"),
        ("hf:data::body", "data", None, "body"),
        ("hf:data::", "data", None, "text"),
    ],
)
def test_spec(spec: str, name: str, config: str | None, field: str) -> None:
    corpus = open_corpus(spec)
    assert isinstance(corpus, HuggingFaceCorpus)
    assert (corpus.spec, corpus.name, corpus.config, corpus.field) == (spec, name, config, field)


def test_rows_are_documents(dataset: Path) -> None:
    corpus = open_corpus(f"hf:{dataset}")
    expected = [Document("0", "story 0"), Document("1", "story 1"), Document("3", "story 3")]
    assert list(corpus.documents()) == expected  # a row without text is none
    assert corpus.names() == ("0", "1", "3")
    assert list(corpus.documents(["3", "0"])) == [expected[0], expected[2]]
    titles = open_corpus(f"hf:{dataset}:default:title")
    assert next(titles.documents()) == Document("0", "Title 0")
    assert titles.sha256() != corpus.sha256()
    assert corpus.split(["1"]).train == ("0", "3")


def test_rows_become_a_token_file(dataset: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train([], 257)
    corpus = open_corpus(f"hf:{dataset}")
    tokens = TokenFile.build(corpus.documents(), tokenizer, tmp_path / "train.bin")
    assert tokenizer.decode(tokens.tokens) == "".join(f"<|endoftext|>story {n}" for n in (0, 1, 3))
    assert tokens.sha256 == corpus.sha256()


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("::words", "expected text in field 'words', got int in row 0"),
        ("::body", "expected a field 'body', got 'text', 'title', 'words'; name one of these"),
        (":v9", "cannot read the dataset: .*v9"),
        ("-missing", "cannot read the dataset"),
    ],
)
def test_what_cannot_be_read(dataset: Path, rest: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(open_corpus(f"hf:{dataset}{rest}").documents())


def test_rows_that_are_not_there(dataset: Path) -> None:
    with refused("2, 7", "it has 3"):
        list(open_corpus(f"hf:{dataset}").documents(["7", "0", "2"]))
    (dataset / "train.jsonl").write_text('{"text": ""}')
    with refused("text", "none"):
        list(open_corpus(f"hf:{dataset}").documents())


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    corpus = open_corpus("hf:user/data")  # opening needs nothing
    with refused("datasets", "pip install 'aotlens[hf]'"):
        list(corpus.documents())
