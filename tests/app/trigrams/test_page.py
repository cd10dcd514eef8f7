"""The Skip-trigrams page without a browser: addresses, which rows, which text, what is shown of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from dash import html
from hypothesis import given
from hypothesis import strategies as st

from aotlens.trigrams import Example, bigrams, count_bigrams, own_token_heads
from aotlens.trigrams.kinds import KINDS
from aotlens.views.trigram_captions import RULES
from aotlens.views.trigrams import BY_HEAD, CHECK, ONE, PATH, ROWS
from app.__main__ import _parse, main
from app.core import Core
from app.core.corpora import PASTED, Corpora
from app.core.errors import RequestError
from app.core.own_texts import is_key
from app.core.settings import Settings
from app.pages.trigrams import address as declared
from app.pages.trigrams import callbacks, rows
from app.pages.trigrams.address import ADDRESS, MAX_COUNT, MAX_ROWS, TrigramsState
from app.pages.trigrams.occurrences import opening
from app.pages.trigrams.service import Shown, Trigrams
from tests.app.conftest import TEXT
from tests.app.trigrams.conftest import state
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
    assert tuple(RULES) == declared.KINDS == KINDS


# ── which rows ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_does_not_have_is_replaced(more: Trigrams):
    found = more.of_address(state(head=(3, 0), distance=900, source="the"))
    assert (found.head, found.distance, found.source, found.shape) == ((0, 0), 24, "", (1, 3))
    assert found.filters == (("source", "the"),) and not found.counted and found.least == 0
    assert more.of_address(state(checkpoint="tiny-nowhere", distance="mean")).distance is None
    says(more.of_address(state(checkpoint="../etc")).problem, "No checkpoint is called")
    counted = more.of_address(state(checkpoint="tiny-counted", least=250))
    result = more.workshop.result(ROWS, counted).table
    assert min(*result.source, *result.destination, *result.out) >= 249  # counts are id + 1
    assert more.of_address(state(checkpoint="tiny-counted", least=9999)).least == 0


def test_what_is_wrong_with_a_choice_is_said_once(more: Trigrams):
    nothing = more.of_address(state(out="no such token", within="all"))
    says(nothing.problem, "No token", "the out")
    assert all(view.missing(nothing) == nothing.problem for view in (ROWS, ONE, BY_HEAD, CHECK, PATH))
    assert more.of_address(state(checkpoint="tiny-fixed")).problem


def test_rows_that_take_too_long_for_a_request_are_started(more: Trigrams, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(more.workshop, "_settings", replace(more.core.settings, max_operations=10.0))
    asked = state(k=33)
    waiting = more.of_address(asked)
    assert not waiting.searched and more.workshop.waits(ROWS, waiting)
    with refused("takes long", error=RequestError):
        more.workshop.result(ROWS, waiting)
    says(ONE.missing(waiting) or "", "not been searched for")
    more.workshop.told(lambda *_: None).result(ROWS, waiting)
    there = more.of_address(asked)
    assert there.searched and len(more.workshop.result(ROWS, there)) == 33


def test_the_browser_says_what_an_address_does(more: Trigrams):
    asked = state(source="captain", destination="·", within="all", row=7, corpus="books")
    said = {name: value for name, value in asdict(asked).items() if name not in ("tab", "beside", "row")}
    assert more.values({**said, "pasted": ""}, row=7) == more.of_address(asked)
    pasted = more.values({**said, "corpus": PASTED, "pasted": TEXT * 6})
    assert pasted.corpus is not None and pasted.reading is not None and not more.core.corpora.own.get(pasted.corpus)
    more.started({**said, "corpus": PASTED, "pasted": TEXT * 6})
    assert more.core.corpora.own.get(pasted.corpus)
    says(CHECK.missing(more.values({**said, "corpus": PASTED, "pasted": " "})) or "", "paste one")


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_are_searched_sorted_and_paged(more: Trigrams, checked: Shown):
    frame = more.frame(checked)
    some = str(frame["source_shown"].iloc[3])
    kept = rows.select(frame, [("source", f"={some}")])
    assert set(kept["source_shown"]) == {some} and len(kept) == (frame["source_shown"] == some).sum()
    for column in ("verdict", "kind"):
        for word in set(frame[column]):
            assert len(rows.select(frame, [(column, word)])) == list(frame[column]).count(word)
    ordered = rows.sort(frame, [{"colId": "lift", "sort": "desc"}, {"colId": "nonsense", "sort": "asc"}])
    lifts = ordered["lift"].to_numpy()
    finite = lifts[np.isfinite(lifts)]
    assert np.all(np.diff(finite) <= 0) and np.isfinite(lifts[: len(finite)]).all()
    result = more.workshop.result(ROWS, checked)
    page, count = rows.page(ordered, result, [], 5, 12, most=9)
    assert [row["rank"] for row in page] == ordered["rank"].iloc[5:12].tolist() and count == 40
    json.dumps(page, allow_nan=False)
    assert len(rows.page(frame, result, [], 38, 100, most=9)[0]) == 2
    bare = more.frame(replace(checked, checked=False))
    assert len(rows.select(bare, [("verdict", "confirmed")])) == 0


def test_the_others_of_a_group_stand_after_its_best_row(more: Trigrams):
    chosen = more.of_address(state(fold="similar", k=12))
    result, frame, most = more.workshop.result(ROWS, chosen), more.frame(chosen), 5
    for order in (frame, frame[::-1]):  # sorted otherwise, they still do
        page, count = rows.page(order, result, [1, 3], 0, 1000, most=most)
        sizes = {rank: min(int(frame["grouped"][rank - 1]), most) for rank in (1, 3)}
        assert len(page) == count == 12 + sum(sizes.values()) and len({one["id"] for one in page}) == count
        for rank, size in sizes.items():
            place = next(at for at, one in enumerate(page) if one["rank"] == rank)
            others = page[place + 1 : place + 1 + size]
            assert all(one["rank"] is None for one in others)
            assert [one["score"] for one in others] == result.members(rank).effect[:size].tolist()
        assert rows.page(order, result, [1, 3], 5, 9, most=most)[0] == page[5:9]
    json.dumps(page, allow_nan=False)


# ── checked ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_checked_rows_are_shown_so_and_others_are_not(more: Trigrams, checked: Shown):
    assert checked.checked and not more.of_address(state()).checked
    answer = callbacks.list_rows(more, checked, more.workshop.result(ROWS, checked))
    says(answer["caption"], "40 rows", "Of 40 rows the text decides")
    assert "verdict" not in answer["first"]["hidden"] and "grouped" in answer["first"]["hidden"]
    elsewhere = more.of_address(state(verdict="confirmed"))
    answer = callbacks.list_rows(more, elsewhere, more.workshop.result(ROWS, elsewhere))
    says(answer["caption"], "0 of 40 rows match", "No row has a verdict before")
    said = callbacks.before_check(more, elsewhere)
    assert said["check"] is False
    says(said["caption"], "can decide", "of the 40 rows", "2 documents in books")


def test_every_head_is_checked_once_for_whoever_goes_there(more: Trigrams):
    seen: list[tuple[int, int]] = []
    chosen = more.of_address(state(k=20))
    found = more.workshop.told(lambda *at: seen.append(at)).result(BY_HEAD, chosen)
    assert found.heads == ((0, 0), (0, 1), (0, 2)) and found.kinds.sum(1).tolist() == [20] * 3 and seen[-1] == (2, 3)
    there = more.of_address(state(k=20, head=(0, 2)))
    assert there.checked
    assert found.verdicts[2].tolist() == list(more.workshop.result(ROWS, there).evidence.summary().values())
    listed = callbacks.list_heads(chosen, found)["rows"]
    assert [one["chosen"] for one in listed] == [False, True, False]


def test_a_place_opens_the_same_tokens_in_heads(more: Trigrams, checked: Shown):
    found = more.workshop.result(ROWS, checked).evidence
    model, opened = more.core.catalog.load("tiny-one").model, 0
    for example in found.examples:
        body = callbacks.explain(more, checked, more.workshop.result(ROWS, checked).row(example.row + 1))["body"]
        (places,) = [one for one in body if isinstance(one, html.Ol)]
        for item in places.children:
            href = getattr(item.children, "href", None)
            if href is None:
                continue
            opened += 1
            given = {name: values[-1] for name, values in parse_qs(urlsplit(href).query).items()}
            tokens, position = model.to_tokens(given["text"])[0].tolist(), int(given["position"])
            assert given["head"] == "0.1" and tokens[position] == found.table.destination[example.row]
            assert found.table.source[example.row] in tokens[:position]
        if opened > 20:
            break
    assert opened > 20


def test_a_window_that_begins_within_a_character_opens_a_little_later(more: Trigrams):
    model = more.core.catalog.load("tiny-one").model
    ids = model.to_tokens("🙂 the captain danced, and the captain bowed")[0].tolist()[1:]
    tokens = [0, *ids[1:]]  # without the character's first byte
    n = len(tokens)
    place = {"row": 0, "tokens": np.array(tokens), "destination_position": n - 2, "follows": True, "attention": 0.5}
    text, dropped = opening(model, tokens, Example(source_position=n - 4, **place), 48)
    assert text is not None and dropped
    assert model.to_tokens(text)[0].tolist()[1:] == tokens[1 + dropped :]
    assert opening(model, tokens, Example(source_position=1, **place), 48) == (None, 0)


def test_a_row_that_there_is_not_is_said(more: Trigrams, checked: Shown):
    asked = replace(checked, row=77)
    answer = callbacks.explain(more, asked, more.workshop.result(ONE, asked))
    assert answer["title"] == "Row 40"
    says(str(answer["notice"]), "There is no row 77 among 40 rows")


# ── the direct path ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_direct_path_is_the_librarys(more: Trigrams):
    model = more.core.catalog.load("tiny-one").model
    chosen = replace(more.of_address(state(k=30, after="captain")), reading=None)
    assert more.workshop.result(PATH, replace(chosen, after="")).logit.tolist() == bigrams(model, 30).logit.tolist()
    chosen = more.of_address(state(k=30, after="captain"))
    found = more.workshop.result(PATH, chosen)
    counts = count_bigrams(model, more.core.corpora.opened(chosen.reading.text.stamp), max_tokens=3000)
    assert set(found.first_token) == {" captain"} and len(found.first) == 20
    np.testing.assert_array_equal(found.count, counts.of(found.first, found.second))
    answer = callbacks.list_bigrams(more, chosen, found)
    says(answer["caption"], "nats a token", f"{counts.n:,} bigrams", "2 docum")
    assert answer["own"] == (not own_token_heads(model))
    json.dumps(answer["rows"], allow_nan=False)
    with refused("No token", "the first token", error=RequestError):
        more.workshop.result(PATH, replace(chosen, after="no such token"))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_browser_chooses_among_names_only(more: Trigrams, books: Path):
    corpora = more.core.corpora
    assert corpora.names == ["books", "one.txt"]
    info = more.core.catalog.info("tiny-one")
    for name in (f"dir:{books}", str(books), "file:/etc/passwd", "stdlib", "", None):
        with pytest.raises(RequestError, match="No text is called"):
            corpora.text(name, info)
    assert corpora.chosen("file:/etc/passwd") == "books"
    assert str(books.parent) not in corpora.text("books", info).about


def test_only_held_out_documents_of_the_training_corpus_are_read(more: Trigrams):
    info = more.core.catalog.info("tiny-one")
    assert more.core.corpora.text("books", info).documents is None
    held_out = replace(info, corpus={"validation": ["two", "elsewhere"]})
    text = more.core.corpora.text("books", held_out)
    assert more.core.corpora.chosen(None, replace(info, corpus={"validation": ["one.txt", "one"]})) == "books"
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
    assert corpora.chosen(None) == "English novels" and opened == []


@pytest.mark.usefixtures("real_bundled_folder")
def test_the_page_opens_on_a_confirmed_row():
    service = Trigrams(Core.start(Settings(device="cpu", corpora=("novels",))))
    shown = service.of_address(TrigramsState())
    assert (shown.checkpoint, shown.stored, shown.checked) == ("novels-1l-mhsa", True, False)
    row = service.workshop.result(ONE, shown)
    assert row.rows.evidence.verdict[row.number] == "confirmed"
    assert any(one.row == row.number for one in row.rows.evidence.examples)
    assert service.of_address(TrigramsState(head=(0, 0))).checkpoint == service.core.catalog.default()
    assert not service.of_address(TrigramsState(checkpoint="novels-1l-mhsa", head=(0, 6), least=5000)).stored
    says(callbacks.before_check(service, shown)["caption"], "Of 500 rows the text decides", "comes with aotlens")
