"""A person's own texts on disk: what is taken, what is refused, what a key can reach."""

from __future__ import annotations

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.core.cache import Memory
from app.core.corpora import Corpora
from app.core.errors import RequestError
from app.core.jobs import Jobs
from app.core.own_texts import OwnTexts, is_key, key_of
from app.core.settings import Settings
from app.shell.callbacks import spoken
from tests.app.conftest import wait
from tests.messages import refused, says


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnTexts:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    return OwnTexts(Settings(max_text_bytes=2000))


def test_a_text_is_kept_by_its_hash(own: OwnTexts):
    assert own.list() == []
    one = own.keep("novel.txt", "\ufeffcaf\u00e9\r\nau lait\r".encode())
    text = "caf\u00e9\nau lait\n"
    assert (one.key, one.name, one.n_characters) == (key_of(text), "novel.txt", len(text))
    assert [document.text for document in own.corpus(one).documents()] == [text]
    assert own.list() == [one] == OwnTexts(Settings()).list()
    # The same text under another name is one text.
    again = own.keep_text("other", text)
    assert own.list() == [again] and again.key == one.key
    own.keep_text("a second", "another")
    assert [kept.name for kept in own.list()] == ["a second", "other"]
    assert own.delete(one.key) == again and [kept.name for kept in own.list()] == ["a second"]
    assert sorted(path.suffix for path in own.folder.iterdir()) == [".json", ".txt"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"), (b" \n\t", "empty"), (b"\xef\xbb\xbf", "empty"), (b"a\x00b", "NUL"),
        (b"caf\xe9", "byte 0xE9 at offset 3"), ("text".encode("utf-16"), "UTF-16"), (b"PK\x03\x04", "ZIP"),
        (b"%PDF-1.7", "PDF"), (b"x" * 2001, "at most"), (b"\r" * 10, "empty"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_and_nothing_kept(own: OwnTexts, content: bytes, why: str):
    with pytest.raises(RequestError, match=why):
        own.keep("name", content)
    assert own.list() == []


def test_no_more_are_kept_than_the_settings_say(own: OwnTexts, tmp_path: Path):
    settings = Settings(own_texts=2, max_addressed=10)
    few = OwnTexts(settings)
    first = few.keep("one", b"a first text")
    few.keep("two", b"a second text")
    with refused("2 texts", "delete", error=RequestError):
        few.keep("three", b"a third text")
    assert few.keep("again", b"a first text").key == first.key and len(few.list()) == 2


def test_typed_texts_are_replaced_and_take_no_room_from_uploads(own: OwnTexts):
    settings = Settings(own_texts=2, typed_texts=3, max_addressed=10)
    corpora = Corpora(settings)

    def kept() -> list[str]:
        return [corpora.own.text(each) for each in corpora.own.list()]

    for number in range(484):
        text = f"version {number} of a long prompt"
        assert corpora.addressed(text, "tab1.text") == key_of(text)
    assert kept() == ["version 483 of a long prompt"]
    corpora.addressed("version 483 of a long prompt", "tab2.text")  # another browser types the same
    corpora.addressed("what the first goes on to type", "tab1.text")
    assert sorted(kept()) == ["version 483 of a long prompt", "what the first goes on to type"]
    for number in range(5):
        corpora.addressed(f"somebody else's prompt {number}")
    assert sorted(kept()) == [f"somebody else's prompt {number}" for number in (2, 3, 4)]
    uploaded = [
        corpora.own.keep("file", text.encode()).key for text in ("an uploaded text", "somebody else's prompt 4")
    ]
    with refused("2 texts", error=RequestError):
        corpora.own.keep("third", b"a third")
    for number in range(5):  # one that was uploaded as well stays
        corpora.addressed(f"more prompts {number}", "tab1.text")
    assert {each.key for each in corpora.own.list()} == {*uploaded, key_of("more prompts 4"), *map(
        key_of, ("somebody else's prompt 2", "somebody else's prompt 3"))}  # fmt: skip


def test_what_a_killed_app_left_is_removed_at_start(own: OwnTexts):
    kept, typed = own.keep("a", b"some text"), own.keep_typed("b", "a typed text", "tab")
    names = {path.name for path in own.folder.iterdir()}
    (own.folder / f".{kept.key}.txt.0123456789ab.tmp").write_text("some")
    for name in ("text-0123456789abcdef.txt", "text-1123456789abcdef.json", "text-2123456789abcdef.typed", "x.txt"):
        (own.folder / name).write_text("x")
    assert OwnTexts(Settings()).list() == [kept, typed]
    assert {path.name for path in own.folder.iterdir()} == names | {"x.txt"}


@pytest.mark.parametrize(
    ("given", "name"),
    [("../../etc/passwd", "passwd"), ("C:\\texts\\one.txt", "one.txt"), ("", "a text"), ("a\nb\x1b[0m", "a b [0m"),
     ("<b>x", "<b>x"), ("n" * 500, "n" * 60), ("..", ".."), ("/", "a text")],
)  # fmt: skip
def test_names_are_labels_only(own: OwnTexts, given: str, name: str):
    one = own.keep(given, b"some text")
    assert one.name == name and {path.name for path in own.folder.iterdir()} == {f"{one.key}.txt", f"{one.key}.json"}


@pytest.mark.parametrize(
    "key", [None, "", "text-", "../text-0123456789abcdef", "text-0123456789ABCDEF", "text-0/../../x"]
)
def test_a_key_is_no_path(own: OwnTexts, key: Any):
    assert not is_key(key) and own.get(key) is None
    with pytest.raises(RequestError, match="not kept here"):
        own.delete(key)


def test_what_somebody_else_left_there_is_not_listed(own: OwnTexts):
    one = own.keep("good", b"some text")
    for number, label in enumerate(["", "[]", "{}", json.dumps({"name": "x"})]):
        (own.folder / f"text-{number:016x}.json").write_text(label)
        (own.folder / f"text-{number:016x}.txt").write_text("x")
    (own.folder / "text-ffffffffffffffff.json").write_text(json.dumps({"name": "no text", "characters": 1}))
    assert own.list() == [one]


def test_what_is_wrong_with_a_text_names_it_without_its_folder(own: OwnTexts, tmp_path: Path):
    file = tmp_path / "secret.txt"
    file.write_text("Some text.")
    of_server = Corpora(Settings(corpora=(f"file:{file}",)))._corpus("secret.txt")
    assert of_server is not None
    for corpus, name in ((of_server, "secret.txt"), (own.corpus(own.keep_text("mine", "a text")), "mine")):
        with refused(f"{name} has no document") as problem:
            list(corpus.documents({"nowhere"}))
        assert str(tmp_path) not in str(problem.value)


def test_choices_are_names_and_keys(own: OwnTexts, tmp_path: Path):
    (tmp_path / "book.txt").write_text("a book")
    one = own.keep("mine", b"some text")
    choices = Corpora(Settings(corpora=(f"file:{tmp_path / 'book.txt'}",))).choices()
    assert choices == [{"value": "book.txt", "label": "book.txt"}, {"value": one.key, "label": "mine (yours)"}]


def test_an_uploaded_text_fits_into_a_request():
    settings = Settings()
    assert settings.max_text_bytes * 4 / 3 + 1000 < settings.max_request_bytes


def test_many_who_keep_texts_at_once_stay_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same text and others, in threads: every one is kept, or refused by the limit."""
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    own, begin = OwnTexts(Settings(own_texts=5)), threading.Barrier(16)

    def keep(number: int) -> str:
        begin.wait(60)
        try:
            return own.keep_text("a", "the same" if number % 2 else f"text {number}").key
        except RequestError as error:
            return str(error)

    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(keep, range(16)))
    kept = {one for one in said if is_key(one)}
    assert len(kept) == 5 == len(own.list()) and key_of("the same") in kept
    assert all("5 texts are kept here" in one for one in said if not is_key(one))
    assert sorted(path.suffix for path in own.folder.iterdir()) == [".json"] * 5 + [".txt"] * 5


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_is_said_without_a_path(own: OwnTexts, monkeypatch: pytest.MonkeyPatch, number: int):
    def full(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("aotlens.files.force_to_disk", full)
    kept, said = spoken(lambda: own.keep_text("a", "a text"), "keeping")
    assert kept is None
    says(said.children, "could not be kept", os.strerror(number).lower(), "AOTLENS_HOME")
    assert str(own.folder) not in said.children and "defect" not in said.children and own.list() == []
    jobs = Jobs(kept=1, memory=Memory(2**20), seconds=60)
    job = wait(jobs.start("a", "a job", lambda report: own.keep_text("a", "a text")))
    says(job.error, "could not be kept", os.strerror(number).lower())
