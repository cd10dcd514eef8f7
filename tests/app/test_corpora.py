"""Texts that the server reads: names and keys, of which documents, and what is kept of a pasted one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.__main__ import _parse, main
from app.core import Core
from app.core.corpora import Corpora
from app.core.errors import RequestError
from app.core.own_texts import is_key
from app.core.settings import Settings
from tests.app.conftest import TEXT


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("somewhere") / "books"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(TEXT * 12, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, checkpoints: Path, books: Path) -> Iterator[Core]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        corpora = (f"dir:{books}", f"file:{books / 'one.txt'}")
        yield Core.start(Settings(checkpoints=(checkpoints,), device="cpu", corpora=corpora))


def test_a_browser_chooses_among_names_only(core: Core, books: Path):
    corpora = core.corpora
    assert corpora.names == ["books", "one.txt"]
    info = core.catalog.info("tiny-mhsa")
    for name in (f"dir:{books}", str(books), "file:/etc/passwd", "stdlib", "", None):
        with pytest.raises(RequestError, match="No text is called"):
            corpora.text(name, info)
    assert corpora.available("file:/etc/passwd") == "books"
    assert str(books.parent) not in corpora.text("books", info).about


@pytest.mark.parametrize("name", ["books", "one.txt"])
def test_a_text_of_the_servers_that_was_written_anew_is_another(core: Core, books: Path, name: str):
    def stamp() -> int:
        return core.corpora.reading(name, core.catalog.info("tiny-mhsa")).text.stamp

    file, before = books / "one.txt", stamp()
    assert stamp() == before
    file.write_text(file.read_text(encoding="utf-8") + TEXT, encoding="utf-8")
    assert stamp() != before


def test_only_held_out_documents_of_the_training_corpus_are_read(core: Core):
    info = core.catalog.info("tiny-mhsa")
    assert core.corpora.text("books", info).documents is None
    held_out = replace(info, corpus={"validation": ["two", "elsewhere"]})
    text = core.corpora.text("books", held_out)
    assert core.corpora.available(None, replace(info, corpus={"validation": ["one.txt", "one"]})) == "books"
    assert text.documents == ("two",) and "held out" in text.about and "1 document of 2" in text.about


def test_pasted_text_is_kept_a_while_and_for_good_once_it_is_used(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    corpora, info = Corpora(Settings(max_pasted=100)), core.catalog.info("tiny-mhsa")
    key = corpora.paste("some text\r\nof two lines")
    assert key == corpora.paste("some text\nof two lines") and is_key(key)
    assert corpora.text(key, info).pasted == "some text\nof two lines" and corpora.own.list() == []
    for wrong, why in ((" \n", "no text"), ("x" * 101, "101 characters")):
        with pytest.raises(RequestError, match=why):
            corpora.paste(wrong)
    used = corpora.paste("a text/that is used")
    corpora.keep_pasted(used)
    for number in range(8):
        corpora.paste(f"text {number}")
    with pytest.raises(RequestError, match="no longer here"):
        corpora.text(key, info)
    kept = Corpora(Settings()).text(used, info)  # after a new start
    assert kept.corpus is not None and [one.text for one in kept.corpus.documents()] == ["a text/that is used"]
    assert kept.label == "Pasted: a text that is used" and corpora.available(used) == used
    assert corpora.available(None) is None and corpora.available(key) is None


def test_labels_are_distinct(books: Path):
    assert Corpora(Settings(corpora=(f"dir:{books}", f"dir:{books}", "stdlib"))).names == [
        "books", "books (2)", "Python's standard library",
    ]  # fmt: skip


@pytest.mark.parametrize("spec", ["hf:wikitext", "file:/no/such/file", "poems"])
def test_a_corpus_that_is_not_there_stops_the_start(capsys: pytest.CaptureFixture[str], checkpoints: Path, spec: str):
    assert main(["--checkpoints", str(checkpoints), "--port", "8123", "--corpus", spec]) == 2
    assert f"--corpus {spec}" in capsys.readouterr().err


def test_texts_that_are_on_every_machine_are_always_there(monkeypatch: pytest.MonkeyPatch):
    """They are opened when they are first asked for: the start of the app does not wait for them."""
    opened: list[str] = []
    real = Corpora._open
    monkeypatch.setattr(Corpora, "_open", staticmethod(lambda spec: opened.append(spec) or real(spec)))
    corpora = Corpora(_parse([]))
    assert corpora.names == ["English novels", "Python's standard library"] and opened == []
    assert corpora.spec("English novels") == "novels" and corpora.opening("English novels").args == ("novels",)
    assert corpora.available(None) == "English novels" and opened == []
