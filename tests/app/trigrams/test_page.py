"""The Skip-trigrams page without a browser: which table, which text, rows, words, places, files."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.checkpoints import load as load_checkpoint
from aotlens.plots import glyphs
from aotlens.trigrams import evidence, score_triples, skip_trigram_bugs, skip_trigrams
from aotlens.trigrams.kinds import KINDS, kinds
from app import ids
from app.__main__ import main
from app.pages.trigrams.export import FILES, make_file
from app.services import Services, trigram_rows
from app.services import trigram_words as words
from app.services.corpora import PASTED, Corpora
from app.services.errors import RequestError
from app.services.jobs import Job
from app.services.occurrences import _address, occurrences
from app.services.trigrams import Choice, Reading, contains
from app.settings import Settings
from app.urlstate import MAX_ROWS, TRIGRAM_KINDS, TrigramsState, format_trigrams, parse_heads, parse_trigrams
from app.urlstate.trigrams import MAX_COUNT
from tests.app.conftest import TEXT, save_tiny

READING = Reading(text="books", tokens=3000)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("somewhere") / "books"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(TEXT * 12, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory, checkpoints: Path, books: Path) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("trigrams")
    save_tiny(folder, "tiny-one", n_layers=1, norm=None, positions="qk")
    save_tiny(folder, "tiny-nowhere", n_layers=1, norm=None, positions=None)
    counted = load_checkpoint(folder / "tiny-one", "cpu")
    counted.unigram_counts = torch.arange(1, 301)
    save_checkpoint(folder / "tiny-counted", counted, CheckpointInfo(name="tiny-counted"), history=[])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        corpora = (f"dir:{books}", f"file:{books / 'one.txt'}")
        yield Services.start(Settings(checkpoints=(checkpoints, folder), device="cpu", corpora=corpora))


def choice(**changes: Any) -> Choice:
    usual = {"checkpoint": "tiny-one", "layer": 0, "head": 1, "score": "effect", "end": "top", "distance": None}
    return Choice(**{**usual, "k": 40, **changes})


def wait(job: Job) -> Job:
    deadline = time.monotonic() + 60
    while job.active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not job.active
    return job


@pytest.fixture(scope="module")
def checked(more: Services) -> Choice:
    """A table that has been held against text."""
    wanted = choice(source="captain", destination="·")  # tokens that are in the text
    assert wait(more.trigrams.search(wanted)).state == "done"
    job = wait(more.trigrams.check(wanted, READING))
    assert job.state == "done", job.error
    return wanted


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
    least=st.just(0) | COUNTS,
    source=WANTED,
    destination=WANTED,
    out=WANTED,
    within=st.sampled_from(["table", "all"]),
    verdict=st.sampled_from([None, "confirmed", "not confirmed", "too rare"]),
    kind=st.sampled_from([None, *TRIGRAM_KINDS]),
    corpus=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    tokens=COUNTS,
    row=st.none() | NUMBERS,
)


@given(STATES)
def test_a_state_comes_back_from_its_address(state: TrigramsState):
    path, _, query = format_trigrams(state).partition("?")
    assert path == "/trigrams"
    assert parse_trigrams("?" + query if query else "") == state


def test_nonsense_is_left_out():
    nonsense = "?head=1&score=best&end=up&distance=far&within=here&verdict=true&kind=verb&tokens=0&row=x"
    assert parse_trigrams(nonsense) == TrigramsState()
    assert parse_trigrams("?k=0").k == 1 and parse_trigrams("?k=999999").k == MAX_ROWS
    assert len(parse_trigrams("?out=" + "x" * 500).out) < 100


def test_every_amount_of_text_that_is_offered_is_kept_in_the_address():
    for tokens in Settings().evidence_tokens:
        assert parse_trigrams(format_trigrams(TrigramsState(tokens=tokens)).partition("?")[2]).tokens == tokens


def test_the_kinds_of_addresses_are_the_librarys():
    assert tuple(words.RULES) == TRIGRAM_KINDS == KINDS


# ── which table ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_does_not_have_is_replaced(more: Services):
    asked = TrigramsState(checkpoint="tiny-one", head=(3, 0), distance=900, source="the")
    found, shape = more.trigrams.describe(asked)
    assert (found.layer, found.head, found.distance, found.source) == (0, 0, 24, "")
    assert (shape.n_layers, shape.n_heads, shape.max_distance) == (1, 3, 24)
    found, shape = more.trigrams.describe(TrigramsState(checkpoint="tiny-nowhere", distance="mean"))
    assert found.distance is None and shape.max_distance == 0
    with pytest.raises(RequestError, match="No checkpoint is called"):
        more.trigrams.describe(TrigramsState(checkpoint="../etc"))


@pytest.mark.parametrize(
    "changes", [{}, {"score": "sum"}, {"score": "product", "end": "bottom"}, {"distance": "mean"}, {"distance": 3}]
)
def test_the_table_is_the_librarys(more: Services, changes: dict[str, Any]):
    wanted = choice(**changes)
    assert wait(more.trigrams.search(wanted)).state == "done"
    model = more.catalog.load("tiny-one").model
    expected = skip_trigrams(
        model, 0, 1, k=40, score=wanted.score, largest=wanted.end == "top", distance=wanted.distance,
        background=np.ones(300),
    )  # fmt: skip
    frame = more.trigrams.frame(wanted, None)
    assert frame is not None
    for column in ("source_id", "destination_id", "out_id", "effect"):
        np.testing.assert_array_equal(frame[column], expected.to_frame()[column])
    ranked = {"sum": expected.qk + expected.ov, "product": expected.qk * expected.ov}.get(wanted.score, expected.effect)
    np.testing.assert_allclose(frame["score"], ranked)
    assert np.all(np.diff(frame["score"]) * (1 if wanted.end == "bottom" else -1) >= -1e-12)
    assert tuple(frame["kind"]) == kinds(expected)


def test_searching_all_triples_takes_only_such_tokens(more: Services):
    wanted = choice(out="captain", source="=·the")
    job = wait(more.trigrams.search(wanted))
    assert job.state == "done", job.error
    table = job.result
    assert len(table) == 40
    assert all("captain" in out for out in table.out_token) and set(table.source_token) == {" the"}
    job = wait(more.trigrams.search(choice(out="no such token")))
    assert job.state == "failed" and "No token matches the out" in job.error


def test_a_head_without_scores_says_so(more: Services):
    job = wait(more.trigrams.search(choice(checkpoint="tiny-fixed")))
    assert job.state == "failed" and job.error


def test_more_layers_are_relative(more: Services):
    job = wait(more.trigrams.search(choice(checkpoint="tiny-mhsa", layer=1)))
    assert job.result.relative and not wait(more.trigrams.search(choice())).result.relative


@pytest.mark.parametrize(
    ("shown", "wanted", "expected"),
    [("·the", "the", True), ("·The", "the", True), ("·the", " the", True), ("·the", "=the", False),
     ("·the", "= the", True), ("·the", "=·the", True), ("⏎", "\n", True), ("·the", "then", False)],
)  # fmt: skip
def test_parts_of_tokens(shown: str, wanted: str, expected: bool):
    assert contains(shown, wanted) is expected


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_browser_chooses_among_names_only(more: Services, books: Path):
    corpora = more.trigrams.corpora
    assert corpora.names == ["books", "one.txt"]
    info = more.catalog.info("tiny-one")
    for name in (f"dir:{books}", str(books), "file:/etc/passwd", "stdlib", "", None):
        with pytest.raises(RequestError, match="No text is called"):
            corpora.text(name, info)
    assert corpora.chosen("file:/etc/passwd") == "books"
    assert str(books.parent) not in corpora.text("books", info).about


def test_only_held_out_documents_of_the_training_corpus_are_read(more: Services):
    from dataclasses import replace

    info = more.catalog.info("tiny-one")
    assert more.trigrams.corpora.text("books", info).documents is None
    held_out = replace(info, corpus={"validation": ["two", "elsewhere"]})
    text = more.trigrams.corpora.text("books", held_out)
    assert more.trigrams.corpora.chosen(None, replace(info, corpus={"validation": ["one.txt", "one"]})) == "books"
    assert text.documents == ("two",) and "held out" in text.about and "1 document of 2" in text.about


def test_pasted_text_is_kept_a_while(more: Services):
    corpora = Corpora(Settings(max_pasted=100))
    key = corpora.paste("some text")
    assert key.startswith(PASTED) and corpora.pasted(key).pasted == "some text"
    for wrong, why in ((" \n", "no text"), ("x" * 101, "101 characters")):
        with pytest.raises(RequestError, match=why):
            corpora.paste(wrong)
    for number in range(8):
        corpora.paste(f"text {number}")
    with pytest.raises(RequestError, match="paste it again"):
        corpora.pasted(key)
    assert corpora.chosen(None) is None


def test_labels_are_distinct(books: Path):
    assert Corpora(Settings(corpora=(f"dir:{books}", f"dir:{books}", "stdlib"))).names == [
        "books", "books (2)", "Python's standard library",
    ]  # fmt: skip


@pytest.mark.parametrize("spec", ["hf:wikitext", "file:/no/such/file", "novels"])
def test_a_corpus_that_is_not_there_stops_the_start(capsys: pytest.CaptureFixture[str], checkpoints: Path, spec: str):
    assert main(["--checkpoints", str(checkpoints), "--port", "8123", "--corpus", spec]) == 2
    assert f"--corpus {spec}" in capsys.readouterr().err


# ── evidence ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_evidence_is_the_librarys(more: Services, checked: Choice):
    found = more.trigrams.evidence(checked, READING)
    assert found is not None
    model = more.catalog.load("tiny-one").model
    corpus = more.trigrams.text(READING, "tiny-one").corpus
    expected = evidence(model, found.table, corpus, max_tokens=3000)
    assert found.verdict == expected.verdict and found.n_tokens == expected.n_tokens
    np.testing.assert_array_equal(found.counts.pair, expected.counts.pair)
    np.testing.assert_allclose(found.ablation_change, expected.ablation_change, rtol=1e-6)
    assert more.trigrams.checking(checked, READING).total == 3000  # type: ignore[union-attr]
    assert more.trigrams.evidence(checked, Reading(text="books", tokens=999)) is None


def test_pasted_text_is_read(more: Services, checked: Choice):
    reading = Reading(text=more.trigrams.corpora.paste(TEXT * 6), tokens=100_000)
    job = wait(more.trigrams.check(checked, reading))
    assert job.state == "done", job.error
    n = len(more.catalog.load("tiny-one").model.tokenizer.encode(TEXT * 6))  # type: ignore[union-attr]
    assert n <= job.result.found.n_tokens <= n + n // 47 + 1 and job.total == n


def test_a_check_does_not_hold_up_the_model(more: Services, checked: Choice):
    """Others use the model while it is checked: the check runs on a copy."""
    with more.catalog.load("tiny-nowhere").exclusive:
        pass
    wanted = choice(checkpoint="tiny-nowhere")
    wait(more.trigrams.search(wanted))
    loaded = more.catalog.load("tiny-nowhere")
    wait(more.trigrams.check(wanted, READING))  # copies
    with loaded.exclusive:
        job = more.trigrams.check(wanted, Reading(text="books", tokens=500))
        assert wait(job).state == "done"


def test_rows_are_searched_sorted_and_paged(more: Services, checked: Choice):
    frame = trigram_rows.found_frame(more.trigrams, checked, READING)
    some = str(frame["source_shown"].iloc[3])
    kept = trigram_rows.select(frame, {"source": f"={some}", "verdict": "", "kind": None})
    assert set(kept["source_shown"]) == {some} and len(kept) == (frame["source_shown"] == some).sum()
    for word in set(frame["verdict"]):
        assert len(trigram_rows.select(frame, {"verdict": word})) == list(frame["verdict"]).count(word)
    for name in KINDS:
        assert len(trigram_rows.select(frame, {"kind": name})) == list(frame["kind"]).count(name)
    ordered = trigram_rows.sort(frame, [{"colId": "lift", "sort": "desc"}, {"colId": "nonsense", "sort": "asc"}])
    lifts = ordered["lift"].to_numpy()
    finite = lifts[np.isfinite(lifts)]
    assert np.all(np.diff(finite) <= 0) and np.isfinite(lifts[: len(finite)]).all()
    page = trigram_rows.page(ordered, 5, 12)
    assert [row["rank"] for row in page] == ordered["rank"].iloc[5:12].tolist()
    json.dumps(page, allow_nan=False)
    assert len(trigram_rows.page(frame, 38, 100)) == 2 and trigram_rows.page(frame, -3, 0) == []
    bare = more.trigrams.frame(checked, None)
    assert bare is not None and len(trigram_rows.select(bare, {"verdict": "confirmed"})) == 0


def test_what_is_said_has_the_rows_numbers(more: Services, checked: Choice):
    table, found = more.trigrams.table(checked), more.trigrams.evidence(checked, READING)
    assert table is not None and found is not None
    row = int(found.counts.pair.argmax())
    assert found.counts.pair[row] > 0
    said = " ".join(words.weights(table, row, ("a", "b", "c")))
    assert f"{abs(float(table.qk[row])):.2f} nats" in said and f"{float(table.attention[row]):.2%}" in said
    assert f"{float(table.effect[row]):+.3g} logits" in said and "‹a›" in said
    said = " ".join(words.in_text(found, row, ("a", "b", "c"), "2 documents"))
    assert f"occurs {int(found.counts.pair[row]):,} time" in said and f"Verdict: {found.verdict[row]}" in said
    assert f"{float(found.attention[row]):.2%}" in said and "the head h" in said
    never = np.flatnonzero(found.counts.pair == 0)
    if len(never):
        assert "never comes before" in words.in_text(found, int(never[0]), ("a", "b", "c"), "x")[0]
    suppressed = wait(more.trigrams.search(choice(end="bottom"))).result
    assert "lowers the logit" in words.weights(suppressed, 0, ("a", "b", "c"))[0]
    assert "suppresses" in words.table(choice(end="bottom")) and "out contains ‹x›" in words.table(choice(out="x"))
    assert all(word in words.rule() for word in ("confirmed", "too rare", "10", "5%"))


def test_an_occurrence_opens_the_same_tokens_in_heads(more: Services, checked: Choice):
    found = more.trigrams.evidence(checked, READING)
    assert found is not None
    model, opened = more.catalog.load("tiny-one").model, 0
    for row in range(len(found.table)):
        examples = [example for example in found.examples if example.row == row]
        listed = occurrences(more.trigrams, more.catalog, more.inference, checked, READING, row)
        assert len(listed) == len(examples) <= more.settings.n_occurrences
        for one, example in zip(listed, examples, strict=True):
            marked = {piece.role: piece.text for piece in one.pieces if piece.role not in ("", "gap")}
            assert set(marked) == {"source", "destination", "out" if example.follows else "instead"} or (
                example.source_position == example.destination_position
            )
            if one.address is None:
                continue
            opened += 1
            state = parse_heads(urlsplit(one.address).query)
            tokens = model.to_tokens(state.text or "")[0].tolist()
            assert state.head == (0, 1) and state.position is not None
            assert tokens[state.position] == found.table.destination[row]
            assert tokens[state.position + 1] == example.tokens[-1]
            assert tokens[state.position - one.distance] == found.table.source[row]
            if one.same:  # then what Heads shows is what the row was measured on
                patterns = more.inference.analyse("tiny-one", state.text or "").patterns
                copies = np.array(tokens[: state.position]) == found.table.source[row]
                shown = patterns.pattern[0, 1, state.position, : state.position][copies].sum()
                assert shown == pytest.approx(one.attention, abs=1e-5)
    assert opened > 10


def test_kinds_and_heads_are_counted(more: Services, checked: Choice):
    counts = trigram_rows.count(more.trigrams, checked, READING)
    found = more.trigrams.evidence(checked, READING)
    assert found is not None and counts.counts.sum() == 40
    assert dict(zip(counts.verdicts, counts.counts.sum(0).tolist(), strict=True)) == found.summary()
    records = trigram_rows.heads(more.trigrams, checked, READING, (1, 3))
    assert [record["head"] for record in records] == ["0.0", "0.1", "0.2"] and records[1]["chosen"]
    assert records[1]["rows"] == 40 and records[1]["confirmed"] == found.n_confirmed
    with pytest.raises(RequestError, match="still being searched"):
        trigram_rows.count(more.trigrams, choice(k=39), None)


def test_what_rows_force_is_listed(more: Services, checked: Choice):
    """Of all pairs of rows: this table has no confirmed ones."""
    trigrams = more.trigrams
    found, bugs = trigrams.evidence(checked, READING), trigrams.bugs(checked, READING)
    assert found is not None and bugs is not None and len(bugs) == 0
    assert trigram_rows.forced_rows(trigrams, checked, READING) == []
    assert "no two have one source" in words.forced(bugs, 1) and "not been held" in words.forced(None, 0)
    assert trigrams.bugs(checked, None) is None and trigram_rows.forced_rows(trigrams, checked, None) == []
    model = more.catalog.load("tiny-one").model
    assert model.tokenizer is not None
    ids_of = list(dict.fromkeys(model.tokenizer.encode(TEXT)))[:5]
    shown = [glyphs(token) for token in model.tokenizer.str_tokens(ids_of)]
    table = score_triples(
        model, 0, 1, [ids_of[0]] * 2, ids_of[1:3], ids_of[3:5], background=np.ones(300)
    )  # fmt: skip
    corpus = trigrams.text(READING, "tiny-one").corpus
    held = evidence(model, table, corpus, max_tokens=3000)
    bugs = skip_trigram_bugs(model, held, corpus, max_tokens=3000, only_confirmed=False)
    rows = trigram_rows.forced_rows(SimpleNamespace(bugs=lambda *_: bugs), checked, READING)  # type: ignore[arg-type]
    assert {row["one"] for row in rows} == {f"… {shown[1]} → {shown[3]}", f"… {shown[2]} → {shown[4]}"}
    assert len(rows) == 2
    for row, place, false in zip(rows, bugs.counts.pair, bugs.false, strict=True):
        assert row["source"] == shown[0] and row["occurrences"] == place
        assert row["forced"].split(" → ")[0] == row["one"].split(" → ")[0]
        assert row["forced"].split(" → ")[1] == row["other"].split(" → ")[1]
        assert (row["judgement"] == "false") == false
    json.dumps(rows, allow_nan=False)
    assert f"2 triples forced by pairs of 7 confirmed rows: {int(bugs.false.sum())} false" in words.forced(bugs, 7)


def test_frequent_tokens_only(more: Services):
    counted = "tiny-counted"
    asked = TrigramsState(checkpoint=counted, head=(0, 1), k=30, least=250)
    wanted, shape = more.trigrams.describe(asked)
    assert wanted.least == 250 and shape.counted and "at least 250 training counts" in words.table(wanted)
    table = wait(more.trigrams.search(wanted)).result
    assert len(table) == 30 and min(*table.source, *table.destination, *table.out) >= 249  # counts are id + 1
    uncounted, shape = more.trigrams.describe(TrigramsState(checkpoint="tiny-one", least=250))
    assert uncounted.least == 0 and not shape.counted
    job = wait(more.trigrams.search(more.trigrams.describe(TrigramsState(checkpoint=counted, least=9999))[0]))
    assert job.state == "failed" and "no token has as many" in job.error


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", FILES)
@pytest.mark.parametrize("reading", [None, READING.to_dict()], ids=["bare", "checked"])
def test_every_export_is_a_file(more: Services, checked: Choice, entry: str, reading: Any):
    if entry == ids.export(ids.TRIGRAM_BUGS, "csv") and reading is None:
        with pytest.raises(RequestError, match="not been held against text"):
            make_file(more, entry, {"choice": checked.to_dict(), "reading": None, "rows": 40, "checked": False})
        return
    file = make_file(more, entry, {"choice": checked.to_dict(), "reading": reading, "rows": 40, "checked": True})
    assert file.name.startswith("tiny-one-head-0.1") and file.name.endswith(entry.rsplit("-", 1)[1])
    text = file.content.decode()
    if entry.endswith("json"):
        content = json.loads(text)
        assert np.array(content["rows"]).sum() == 40 and content["checkpoint"] == "tiny-one"
        return
    rows = list(csv.DictReader(io.StringIO(text)))
    if entry == ids.export(ids.TRIGRAM_BUGS, "csv"):
        bugs = more.trigrams.bugs(checked, READING)
        assert bugs is not None and len(rows) == len(bugs) and text.startswith('"source","destination"')
        return
    assert len(rows) == (40 if entry == ids.export(ids.TRIGRAM_ROWS, "csv") else len(KINDS))
    if entry == ids.export(ids.TRIGRAM_ROWS, "csv"):
        table = more.trigrams.table(checked)
        assert table is not None and [row["source"] for row in rows] == list(table.source_token)
        np.testing.assert_allclose([float(row["effect"]) for row in rows], table.effect, rtol=1e-12)
        assert ("verdict" in rows[0]) == (reading is not None)


def test_an_export_of_nothing_says_why(more: Services):
    with pytest.raises(RequestError, match="Nothing is shown"):
        make_file(more, FILES[0], None)


def test_a_window_that_begins_within_a_character_opens_a_little_later(more: Services):
    model = more.catalog.load("tiny-one").model
    ids = model.to_tokens("🙂 the captain danced, and the captain bowed")[0].tolist()[1:]
    tokens = [0, *ids[1:]]  # without the character's first byte
    n = len(tokens)
    address, same = _address(model, choice(), tokens, n - 4, n - 2, 48)
    assert address is not None and not same
    state = parse_heads(urlsplit(address).query)
    opened = model.to_tokens(state.text or "")[0].tolist()
    assert state.position is not None and opened[state.position :] == tokens[n - 2 :]
    assert opened[1:] == tokens[len(tokens) - len(opened) + 1 :]
    assert _address(model, choice(), tokens, 1, n - 2, 48) == (None, False)
