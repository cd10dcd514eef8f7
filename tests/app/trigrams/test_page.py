"""The Skip-trigrams page without a browser: addresses, which table, which text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.plots import glyphs
from aotlens.trigrams import bigrams, count_bigrams, own_token_heads, skip_trigrams, zero_layer
from aotlens.trigrams.kinds import KINDS, kinds
from app.__main__ import main
from app.core.corpora import Corpora
from app.core.errors import RequestError
from app.core.own_texts import is_key
from app.core.settings import Settings
from app.pages.trigrams import address as declared
from app.pages.trigrams import words
from app.pages.trigrams.address import ADDRESS, MAX_COUNT, MAX_ROWS, TrigramsState
from app.pages.trigrams.service import Trigrams, contains
from app.pages.trigrams.service_direct import PathChoice, bigram_rows, direct_path
from tests.app.trigrams.conftest import READING, choice, wait
from tests.messages import refused, says

# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────

NUMBERS = st.integers(1, 999_999)
COUNTS = st.integers(1, MAX_COUNT)
WANTED = st.text(st.characters(codec="utf-8"), max_size=20)
STATES = st.builds(
    TrigramsState,
    checkpoint=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    head=st.none() | st.tuples(NUMBERS, NUMBERS),
    score=st.sampled_from(["effect", "sum", "product"]),
    end=st.sampled_from(["top", "bottom"]),
    distance=st.none() | st.just("mean") | NUMBERS,
    k=st.integers(1, MAX_ROWS),
    fold=st.sampled_from(["similar", "sources", "none"]),
    least=st.just(0) | COUNTS,
    source=WANTED,
    destination=WANTED,
    out=WANTED,
    within=st.sampled_from(["table", "all"]),
    verdict=st.sampled_from([None, "confirmed", "not confirmed", "too rare"]),
    kind=st.sampled_from([None, *declared.KINDS]),
    corpus=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    tokens=COUNTS,
    row=st.none() | NUMBERS,
    tab=st.sampled_from(["rows", "kinds", "forced", "heads", "direct"]),
    beside=st.sampled_from(["one", "text"]),
    own=st.booleans(),
    after=WANTED,
)


@given(STATES)
def test_a_state_comes_back_from_its_address(state: TrigramsState):
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/trigrams"
    assert ADDRESS.parse("?" + query if query else "") == state


def test_nonsense_is_left_out():
    nonsense = "?head=1&score=best&end=up&distance=far&within=here&verdict=true&kind=verb&tokens=none&row=x"
    assert ADDRESS.parse(nonsense) == TrigramsState()
    assert ADDRESS.parse("?k=0").k == 1 and ADDRESS.parse("?k=999999").k == MAX_ROWS
    assert len(ADDRESS.parse("?out=" + "x" * 500).out) < 100


def test_every_amount_of_text_that_is_offered_is_kept_in_the_address():
    for tokens in Settings().evidence_tokens:
        assert ADDRESS.parse(ADDRESS.format(TrigramsState(tokens=tokens)).partition("?")[2]).tokens == tokens


def test_the_kinds_of_addresses_are_the_librarys():
    assert tuple(words.RULES) == declared.KINDS == KINDS


# ── which table ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_does_not_have_is_replaced(more: Trigrams):
    asked = TrigramsState(checkpoint="tiny-one", head=(3, 0), distance=900, source="the")
    found, shape = more.describe(asked)
    assert (found.layer, found.head, found.distance, found.source) == (0, 0, 24, "")
    assert (shape.n_layers, shape.n_heads, shape.max_distance) == (1, 3, 24)
    found, shape = more.describe(TrigramsState(checkpoint="tiny-nowhere", distance="mean"))
    assert found.distance is None and shape.max_distance == 0
    with pytest.raises(RequestError, match="No checkpoint is called"):
        more.describe(TrigramsState(checkpoint="../etc"))


@pytest.mark.parametrize(
    "changes", [{}, {"score": "sum"}, {"score": "product", "end": "bottom"}, {"distance": "mean"}, {"distance": 3}]
)
def test_the_table_is_the_librarys(more: Trigrams, changes: dict[str, Any]):
    wanted = choice(**changes)
    assert wait(more.search(wanted)).state == "done"
    model = more.core.catalog.load("tiny-one").model
    expected = skip_trigrams(
        model, (0, 1), k=40, score=wanted.score, largest=wanted.end == "top", distance=wanted.distance,
        background=np.ones(300),
    )  # fmt: skip
    frame = more.frame(wanted, None)
    assert frame is not None
    for column in ("source_id", "destination_id", "out_id", "effect"):
        np.testing.assert_array_equal(frame[column], expected.to_frame()[column])
    ranked = {"sum": expected.qk + expected.ov, "product": expected.qk * expected.ov}.get(wanted.score, expected.effect)
    np.testing.assert_allclose(frame["score"], ranked)
    assert np.all(np.diff(frame["score"]) * (1 if wanted.end == "bottom" else -1) >= -1e-12)
    assert tuple(frame["kind"]) == kinds(expected)


def test_searching_all_triples_takes_only_such_tokens(more: Trigrams):
    wanted = choice(out="captain", source="=·the")
    job = wait(more.search(wanted))
    assert job.state == "done", job.error
    table = job.result.table
    assert len(table) == 40
    assert all("captain" in out for out in table.out_token) and set(table.source_token) == {" the"}
    job = wait(more.search(choice(out="no such token")))
    assert job.state == "failed"
    says(job.error, "No token", "the out")


def test_a_head_without_scores_says_so(more: Trigrams):
    job = wait(more.search(choice(checkpoint="tiny-fixed")))
    assert job.state == "failed" and job.error


def test_more_layers_are_relative(more: Trigrams):
    job = wait(more.search(choice(checkpoint="tiny-mhsa", layer=1)))
    assert job.result.table.relative and not wait(more.search(choice())).result.table.relative


@pytest.mark.parametrize(
    ("shown", "wanted", "expected"),
    [("·the", "the", True), ("·The", "the", True), ("·the", " the", True), ("·the", "=the", False),
     ("·the", "= the", True), ("·the", "=·the", True), ("⏎", "\n", True), ("·the", "then", False)],
)  # fmt: skip
def test_parts_of_tokens(shown: str, wanted: str, expected: bool):
    assert contains(shown, wanted) is expected


# ── the direct path ──────────────────────────────────────────────────────────────────────────────────────────


def path_of(**changes: Any) -> PathChoice:
    usual: dict[str, Any] = {"checkpoint": "tiny-one", "k": 30, "own": False, "after": "", "reading": None}
    return PathChoice(**{**usual, **changes})


def test_the_direct_path_is_the_librarys(more: Trigrams, monkeypatch: pytest.MonkeyPatch):
    model = more.core.catalog.load("tiny-one").model
    path = direct_path(more, path_of())
    expected = bigrams(model, 30)
    np.testing.assert_array_equal(path.bigrams.logit, expected.logit)
    assert path.zero_layer is None and path.own == own_token_heads(model)
    rows = bigram_rows(path)
    assert [row["second"] for row in rows] == [glyphs(token) for token in expected.second_token]
    read = path_of(reading=READING, after="captain")
    path = direct_path(more, read)
    text = more.text(READING, "tiny-one")
    counts = count_bigrams(model, text.corpus, max_tokens=3000)
    assert path.n_text == counts.n and set(path.bigrams.first_token) == {" captain"}
    np.testing.assert_array_equal(path.bigrams.count, counts.of(path.bigrams.first, path.bigrams.second))
    said = words.direct_path(path, read, text.about)
    says(said, f"{zero_layer(model, counts).mean_kl:.2f} nats", f"{counts.n:,} bigrams", "2 docum")
    json.dumps(bigram_rows(path), allow_nan=False)
    monkeypatch.setattr("aotlens.trigrams.own_token_heads", lambda model: ((0, 2),))
    own = path_of(own=True, k=31)
    path = direct_path(more, own)
    np.testing.assert_array_equal(path.bigrams.logit, bigrams(model, 31, heads="0.2").logit)
    assert "with what 0.2 write" in words.direct_path(path, own, "")
    with refused("No token", "the first token"):
        direct_path(more, path_of(after="no such token"))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_browser_chooses_among_names_only(more: Trigrams, books: Path):
    corpora = more.corpora
    assert corpora.names == ["books", "one.txt"]
    info = more.core.catalog.info("tiny-one")
    for name in (f"dir:{books}", str(books), "file:/etc/passwd", "stdlib", "", None):
        with pytest.raises(RequestError, match="No text is called"):
            corpora.text(name, info)
    assert corpora.chosen("file:/etc/passwd") == "books"
    assert str(books.parent) not in corpora.text("books", info).about


def test_only_held_out_documents_of_the_training_corpus_are_read(more: Trigrams):
    from dataclasses import replace

    info = more.core.catalog.info("tiny-one")
    assert more.corpora.text("books", info).documents is None
    held_out = replace(info, corpus={"validation": ["two", "elsewhere"]})
    text = more.corpora.text("books", held_out)
    assert more.corpora.chosen(None, replace(info, corpus={"validation": ["one.txt", "one"]})) == "books"
    assert text.documents == ("two",) and "held out" in text.about and "1 document of 2" in text.about


def test_pasted_text_is_kept_a_while_and_for_good_once_it_is_used(
    more: Trigrams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    corpora, info = Corpora(Settings(max_pasted=100)), more.core.catalog.info("tiny-one")
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
    assert kept.label == "Pasted: a text that is used" and corpora.chosen(used) == used
    assert corpora.chosen(None) is None and corpora.chosen(key) is None


def test_labels_are_distinct(books: Path):
    assert Corpora(Settings(corpora=(f"dir:{books}", f"dir:{books}", "stdlib"))).names == [
        "books", "books (2)", "Python's standard library",
    ]  # fmt: skip


@pytest.mark.parametrize("spec", ["hf:wikitext", "file:/no/such/file", "novels"])
def test_a_corpus_that_is_not_there_stops_the_start(capsys: pytest.CaptureFixture[str], checkpoints: Path, spec: str):
    assert main(["--checkpoints", str(checkpoints), "--port", "8123", "--corpus", spec]) == 2
    assert f"--corpus {spec}" in capsys.readouterr().err
