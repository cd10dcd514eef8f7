from __future__ import annotations

import hashlib
import json
import re
import sys
import sysconfig
from pathlib import Path

import pytest

from aotlens.checkpoints import find_checkpoint
from aotlens.data import Corpus, Document, TailHeldOut, TokenFile, Tokenizer, documents_sha256, open_corpus
from aotlens.data.sources import BundledNovels, HuggingFaceCorpus, TextFiles
from tests.messages import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "books"
    (root / "old").mkdir(parents=True)
    (root / "b.txt").write_bytes("second — 😀".encode())
    (root / "a.txt").write_bytes("\ufefffirst\r\nline\rend\n".encode())
    (root / "old" / "v1.0.txt").write_bytes(b"third")
    (root / "empty.txt").write_bytes(b"")
    (root / "notes.md").write_bytes(b"not text to us")
    return root


def test_a_folder_is_its_text_files_in_order(folder: Path) -> None:
    corpus = open_corpus(f"dir:{folder}")
    assert corpus.names() == ("a", "b", "old/v1.0")
    assert list(corpus.documents()) == [
        Document("a", "first\nline\nend\n"),  # no byte-order mark, and one kind of line end
        Document("b", "second — 😀"),
        Document("old/v1.0", "third"),
    ]
    assert [document.name for document in corpus.documents(["old/v1.0", "a"])] == ["a", "old/v1.0"]
    with refused("'c'", 3, "'a', 'b'"):
        list(corpus.documents(["c"]))


def test_a_file_is_one_document_and_root_is_where_paths_begin(folder: Path) -> None:
    assert list(open_corpus(f"file:{folder}/b.txt").documents()) == [Document("b", "second — 😀")]
    assert open_corpus("file:books/b.txt", root=folder.parent).sha256() == open_corpus(f"file:{folder}/b.txt").sha256()
    assert open_corpus("dir:old", root=folder).names() == ("v1.0",)
    assert open_corpus(f"dir:{folder}/old", root="/elsewhere").names() == ("v1.0",)


def test_sha256_is_over_lengths_names_and_text(folder: Path) -> None:
    naive = hashlib.sha256()
    for part in (b"a", b"first\nline\nend\n", b"b", "second — 😀".encode(), b"old/v1.0", b"third"):
        naive.update(len(part).to_bytes(8, "little") + part)
    before = open_corpus(f"dir:{folder}").sha256()
    assert before == naive.hexdigest()
    (folder / "b.txt").rename(folder / "c.txt")
    assert open_corpus(f"dir:{folder}").sha256() != before
    # what the lengths are for: the same bytes in all, cut otherwise
    assert documents_sha256([Document("a", "bc")]) != documents_sha256([Document("ab", "c")])
    assert documents_sha256([Document("caf\udce9", "x")]) != documents_sha256([Document("caf", "x")])


def test_documents_are_read_one_at_a_time(folder: Path) -> None:
    corpus = open_corpus(f"dir:{folder}")
    documents = corpus.documents()
    assert next(documents).name == "a"
    (folder / "b.txt").write_bytes(b"changed meanwhile")
    assert next(documents).text == "changed meanwhile"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("poems", "expected a corpus 'novels', 'stdlib', .* got 'poems'"),
        ("dir:", "expected a corpus"),
        ("file:", "expected a corpus"),
        ("hf:", "expected a corpus"),
        ("hf::x", "expected 'hf:NAME"),
        ("hf:a:b:c:d", "expected 'hf:NAME"),
        ("dir:nowhere", "expected a folder at /.*/nowhere, but it does not exist"),
        ("file:nowhere", "expected a text file at /.*/nowhere, but it does not exist"),
        ("dir:books/a.txt", "but it is a file: use file:PATH"),
        ("file:books", "but it is a folder: use dir:PATH"),
        ("file:books/empty.txt", r"empty\.txt is empty"),
        ("dir:hollow", r"expected non-empty \*\.txt files below .*hollow, found no files"),
        ("dir:other", r"found files ending in \.md, \.rst"),
    ],
)
def test_what_cannot_be_opened_is_named(folder: Path, spec: str, message: str) -> None:
    (folder.parent / "hollow").mkdir()
    (folder.parent / "other").mkdir()
    for suffix in ("md", "rst"):
        (folder.parent / "other" / f"x.{suffix}").write_text("text")
    with pytest.raises(ValueError, match=message):
        open_corpus(spec, root=folder.parent)


def test_a_file_not_in_utf8_is_named_with_the_offset(folder: Path) -> None:
    (folder / "b.txt").write_bytes("Größe".encode("latin-1"))
    corpus = open_corpus(f"dir:{folder}")
    with refused("books/b.txt", "UTF-8", "0xF6", "offset 2", "iconv -f latin1 "):
        corpus.sha256()
    assert len(list(corpus.documents(["a"]))) == 1  # the other documents can be read all the same


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be"])
@pytest.mark.parametrize(
    "text", ["Größe — the captain bowed.\r\n", "the captain bowed.\n", "Все счастливые семьи похожи.\n"]
)
def test_the_encoding_that_is_advised_reads_the_text(folder: Path, encoding: str, text: str) -> None:
    (folder / "b.txt").write_bytes((text * 3).encode(encoding))
    with pytest.raises(ValueError, match="expected UTF-8") as error:
        open_corpus(f"dir:{folder}").sha256()
    advised = re.search(r"iconv -f (\S+) ", str(error.value))
    assert advised is not None and (folder / "b.txt").read_bytes().decode(advised[1]) == text * 3


def test_names_in_capitals_are_text_too(tmp_path: Path) -> None:
    for name in ("a.txt", "B.TXT", "c.Txt", "c.txt", "d.md"):
        (tmp_path / name).write_text(name)
    corpus = open_corpus(f"dir:{tmp_path}")
    assert corpus.names() == ("B", "a", "c.Txt", "c.txt") and [each.text for each in corpus.documents(["c.Txt"])] == [
        "c.Txt"
    ]


def numbered(count: int) -> Corpus:
    return TextFiles("numbered", {f"document {n}": Path("unread") for n in range(count)})


def test_split_by_name(folder: Path) -> None:
    corpus = open_corpus(f"dir:{folder}")
    train, validation = corpus.split(["old/v1.0", "a"])
    assert (train, validation) == (("b",), ("a", "old/v1.0"))
    with pytest.raises(ValueError, match="has no document 'x', 'y'"):
        corpus.split(["y", "a", "x"])
    for everything_or_nothing in (["a", "b", "old/v1.0"], []):
        with refused("training", "validation"):
            corpus.split(everything_or_nothing)
    with pytest.raises(ValueError, match="got the string 'a'"):
        corpus.split("a")


def test_split_by_fraction_is_about_that_and_stays_when_documents_come() -> None:
    split = numbered(2000).split(0.1)
    assert sorted(split.train + split.validation) == sorted(numbered(2000).names())
    assert 150 < len(split.validation) < 250  # 200 ± 13
    larger = numbered(3000).split(0.1)
    assert set(split.train) <= set(larger.train) and set(split.validation) <= set(larger.validation)
    assert set(split.validation) < set(numbered(2000).split(0.2).validation)
    for wrong in (0.0, 1.0, -0.5, 3.0):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            numbered(10).split(wrong)
    with pytest.raises(ValueError, match="of its 1 gives 1 and 0"):
        numbered(1).split(0.01)


def test_standard_library_is_always_there_without_its_tests() -> None:
    corpus = open_corpus("stdlib")
    names = corpus.names()
    assert list(names) == sorted(names) and len(names) > 300
    assert {"json/decoder", "dataclasses", "collections/__init__"} <= set(names)
    parts = {part for name in names for part in name.split("/")}
    assert parts.isdisjoint({"test", "tests", "idle_test", "site-packages", "__pycache__"})
    assert not any("sysconfigdata" in name for name in names)
    [document] = corpus.documents(["json/decoder"])
    assert "class JSONDecoder" in document.text


def test_standard_library_skips_and_counts_what_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(ValueError, match="stdlib: expected Python source"):
        open_corpus("stdlib")
    for name in (
        "good",
        "_sysconfigdata__linux",
        "test/x",
        "xml/tests/x",
        "site-packages/p/m",
        "config-3.11/c",
    ):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("pass\n")
    (tmp_path / "bad.py").write_bytes(b"# caf\xe9")
    corpus = open_corpus("stdlib")
    assert isinstance(corpus, TextFiles)
    assert [document.name for document in corpus.documents()] == ["good"]
    assert corpus.skipped == ("bad",)


def test_one_file_is_cut_at_a_line_end_and_nothing_is_lost(tmp_path: Path) -> None:
    text = "".join(f"line {i}\n" for i in range(100))
    (tmp_path / "one.txt").write_text(text)
    corpus = TailHeldOut(open_corpus(f"file:{tmp_path / 'one.txt'}"), 0.1)
    head, tail = corpus.documents()
    assert (head.name, tail.name) == corpus.names() == ("one", "one (end)")
    assert head.text + tail.text == text and head.text.endswith("\n")
    assert 0.08 < len(tail.text) / len(text) < 0.12
    assert list(corpus.documents(corpus.tails)) == [tail]
    with pytest.raises(ValueError, match="above 0 and below 1"):
        TailHeldOut(open_corpus(f"file:{tmp_path / 'one.txt'}"), 1.0)


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


@pytest.mark.usefixtures("real_bundled_folder")
def test_they_were_held_out_from_the_bundled_models() -> None:
    novels = open_corpus("novels")
    for name in ("novels-1l-mhsa", "novels-2l-gpt", "novels-12l-mssa"):
        assert set(find_checkpoint(name).held_out(novels.names())) == set(novels.names())
    texts = {one.name: one.text for one in novels.documents()}
    assert list(texts) == list(novels.names()) and len(texts) == 5
    assert all(len(text) > 150_000 and text.rstrip('"\n')[-1] in ".!?" for text in texts.values())
    (one,) = novels.documents(["Gaskell_Ruth_1855"])
    assert one.text == texts["Gaskell_Ruth_1855"]
    with refused("no document", "'Emma'"):
        list(novels.documents(["Emma"]))
    assert BundledNovels._FILE.stat().st_size < 400_000
