"""The Skip-trigrams page without a browser: evidence, its rows, words and places, files."""

from __future__ import annotations

import csv
import io
import json
from itertools import islice
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

from aotlens.plots import glyphs
from aotlens.trigrams import evidence, score_triples, skip_trigram_bugs, skip_trigrams
from aotlens.trigrams.kinds import KINDS
from app.core.errors import RequestError
from app.pages.trigrams import rows as table_rows
from app.pages.trigrams import words
from app.pages.trigrams.address import TrigramsState
from app.pages.trigrams.file_callbacks import FILES, make_file
from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import Choice, Reading, Trigrams
from app.pages.trigrams.service_occurrences import _address, occurrences
from app.shell import ids as shell
from tests.app.conftest import TEXT, wait
from tests.app.trigrams.conftest import READING, choice
from tests.messages import refused, says

# ── evidence ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_evidence_is_the_librarys(more: Trigrams, checked: Choice):
    found = more.evidence(checked, READING)
    assert found is not None
    model = more.core.catalog.load("tiny-one").model
    corpus = more.text(READING, "tiny-one").corpus
    expected = evidence(model, found.table, corpus, max_tokens=3000)
    assert found.verdict == expected.verdict and found.n_tokens == expected.n_tokens
    np.testing.assert_array_equal(found.counts.pair, expected.counts.pair)
    np.testing.assert_allclose(found.ablation_change, expected.ablation_change, rtol=1e-6)
    job = more.checking(checked, READING)  # of a text that is shorter than what is asked for
    assert job is not None and job.done == job.total < 3000 and found.n_tokens - job.total in range(100)
    assert more.evidence(checked, Reading(text="books", tokens=999)) is None


def test_pasted_text_is_read(more: Trigrams, checked: Choice):
    reading = Reading(text=more.corpora.paste(TEXT * 6), tokens=100_000)
    job = wait(more.check(checked, reading))
    assert job.state == "done", job.error
    n = len(more.core.catalog.load("tiny-one").model.tokenizer.encode(TEXT * 6))  # type: ignore[union-attr]
    assert n <= job.result.found.n_tokens <= n + n // 47 + 1 and job.total == n


def test_a_check_does_not_hold_up_the_model(more: Trigrams, checked: Choice):
    """Others use the model while it is checked: the check runs on a copy."""
    with more.core.catalog.load("tiny-nowhere").exclusive:
        pass
    wanted = choice(checkpoint="tiny-nowhere")
    wait(more.search(wanted))
    loaded = more.core.catalog.load("tiny-nowhere")
    wait(more.check(wanted, READING))  # copies
    with loaded.exclusive:
        job = more.check(wanted, Reading(text="books", tokens=500))
        assert wait(job).state == "done"


def test_rows_are_searched_sorted_and_paged(more: Trigrams, checked: Choice):
    frame = table_rows.found_frame(more, checked, READING)
    some = str(frame["source_shown"].iloc[3])
    kept = table_rows.select(frame, {"source": f"={some}", "verdict": "", "kind": None})
    assert set(kept["source_shown"]) == {some} and len(kept) == (frame["source_shown"] == some).sum()
    for word in set(frame["verdict"]):
        assert len(table_rows.select(frame, {"verdict": word})) == list(frame["verdict"]).count(word)
    for name in KINDS:
        assert len(table_rows.select(frame, {"kind": name})) == list(frame["kind"]).count(name)
    ordered = table_rows.sort(frame, [{"colId": "lift", "sort": "desc"}, {"colId": "nonsense", "sort": "asc"}])
    lifts = ordered["lift"].to_numpy()
    finite = lifts[np.isfinite(lifts)]
    assert np.all(np.diff(finite) <= 0) and np.isfinite(lifts[: len(finite)]).all()
    page = table_rows.page(ordered, 5, 12)
    assert [row["rank"] for row in page] == ordered["rank"].iloc[5:12].tolist()
    json.dumps(page, allow_nan=False)
    assert len(table_rows.page(frame, 38, 100)) == 2 and table_rows.page(frame, -3, 0) == []
    bare = more.frame(checked, None)
    assert bare is not None and len(table_rows.select(bare, {"verdict": "confirmed"})) == 0


def test_what_is_said_has_the_rows_numbers(more: Trigrams, checked: Choice):
    table, found = more.table(checked), more.evidence(checked, READING)
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
    suppressed = wait(more.search(choice(end="bottom"))).result.table
    assert "lowers the logit" in words.weights(suppressed, 0, ("a", "b", "c"))[0]
    assert "suppresses" in words.table(choice(end="bottom"), 0)
    assert "out contains ‹x›" in words.table(choice(out="x"), 0)
    assert all(word in words.rule() for word in ("confirmed", "too rare", "10", "5%"))


def test_an_occurrence_opens_the_same_tokens_in_heads(more: Trigrams, checked: Choice):
    found = more.evidence(checked, READING)
    assert found is not None
    model, opened = more.core.catalog.load("tiny-one").model, 0
    for row in range(len(found.table)):
        examples = [example for example in found.examples if example.row == row]
        listed = occurrences(more, checked, READING, row)
        assert len(listed) == len(examples) <= more.settings.n_occurrences
        for one, example in zip(listed, examples, strict=True):
            marked = {piece.role: piece.text for piece in one.pieces if piece.role not in ("", "gap")}
            assert set(marked) == {"source", "destination", "out" if example.follows else "instead"} or (
                example.source_position == example.destination_position
            )
            if one.address is None:
                continue
            opened += 1
            state = more.core.links["heads"].parse(urlsplit(one.address).query)
            tokens = model.to_tokens(state.text or "")[0].tolist()
            assert state.head == (0, 1) and state.position is not None
            assert tokens[state.position] == found.table.destination[row]
            assert tokens[state.position + 1] == example.tokens[-1]
            assert tokens[state.position - one.distance] == found.table.source[row]
            if one.same:  # then what Heads shows is what the row was measured on
                patterns = more.core.inference.analyse("tiny-one", state.text or "").patterns
                copies = np.array(tokens[: state.position]) == found.table.source[row]
                shown = patterns.pattern[0, 1, state.position, : state.position][copies].sum()
                assert shown == pytest.approx(one.attention, abs=1e-5)
    assert opened > 10


def test_kinds_and_heads_are_counted(more: Trigrams, checked: Choice):
    counts = table_rows.count(more, checked, READING)
    found = more.evidence(checked, READING)
    assert found is not None and counts.counts.sum() == 40
    assert dict(zip(counts.verdicts, counts.counts.sum(0).tolist(), strict=True)) == found.summary()
    records = table_rows.heads(more, checked, READING)
    assert [record["head"] for record in records] == ["0.0", "0.1", "0.2"] and records[1]["chosen"]
    assert records[1]["rows"] == 40 and records[1]["confirmed"] == found.n_confirmed
    with pytest.raises(RequestError, match="still being searched"):
        table_rows.count(more, choice(k=39), None)


def test_what_rows_force_is_listed(more: Trigrams, checked: Choice):
    """Of all pairs of rows: this table has no confirmed ones."""
    trigrams = more
    found, bugs = trigrams.evidence(checked, READING), trigrams.bugs(checked, READING)
    assert found is not None and bugs is not None and len(bugs) == 0
    assert table_rows.forced_rows(trigrams, checked, READING) == []
    says(words.forced(bugs, 1), "no two", "one source")
    says(words.forced(None, 0), "not been held")
    assert trigrams.bugs(checked, None) is None and table_rows.forced_rows(trigrams, checked, None) == []
    model = more.core.catalog.load("tiny-one").model
    assert model.tokenizer is not None
    ids_of = list(dict.fromkeys(model.tokenizer.encode(TEXT)))[:5]
    shown = [glyphs(token) for token in model.tokenizer.str_tokens(ids_of)]
    table = score_triples(
        model, (0, 1), [ids_of[0]] * 2, ids_of[1:3], ids_of[3:5], background=np.ones(300)
    )  # fmt: skip
    corpus = trigrams.text(READING, "tiny-one").corpus
    held = evidence(model, table, corpus, max_tokens=3000)
    bugs = skip_trigram_bugs(model, held, corpus, max_tokens=3000, only_confirmed=False)
    rows = table_rows.forced_rows(SimpleNamespace(bugs=lambda *_: bugs), checked, READING)  # type: ignore[arg-type]
    assert {row["one"] for row in rows} == {f"… {shown[1]} → {shown[3]}", f"… {shown[2]} → {shown[4]}"}
    assert len(rows) == 2
    for row, place, false in zip(rows, bugs.counts.pair, bugs.false, strict=True):
        assert row["source"] == shown[0] and row["occurrences"] == place
        assert row["forced"].split(" → ")[0] == row["one"].split(" → ")[0]
        assert row["forced"].split(" → ")[1] == row["other"].split(" → ")[1]
        assert (row["judgement"] == "false") == false
    json.dumps(rows, allow_nan=False)
    says(words.forced(bugs, 7), "2 triples", "7 confirmed rows", f"{int(bugs.false.sum())} false")


def test_frequent_tokens_only(more: Trigrams):
    counted = "tiny-counted"
    asked = TrigramsState(checkpoint=counted, head=(0, 1), k=30, least=250, fold="none")
    wanted, shape = more.describe(asked)
    assert wanted.least == 250 and shape.counted
    says(words.table(wanted, 1000), "at least 250")
    table = wait(more.search(wanted)).result.table
    assert len(table) == 30 and min(*table.source, *table.destination, *table.out) >= 249  # counts are id + 1
    uncounted, shape = more.describe(TrigramsState(checkpoint="tiny-one", least=250))
    assert uncounted.least == 0 and not shape.counted
    says(words.rare(250, shape), "no token is left out")
    # Where no token was seen so often, none is left out, and that is said.
    everything, shape = more.describe(TrigramsState(checkpoint=counted, least=9999))
    assert everything.least == 0 and shape.most_count == 300
    says(words.rare(9999, shape), "No token", "9,999 times")


@pytest.mark.parametrize("fold", ["similar", "sources"])
def test_folded_rows(more: Trigrams, fold: Any):
    wanted = choice(fold=fold, k=12)
    assert wait(more.search(wanted)).state == "done"
    table, folded, frame = more.table(wanted), more.folded(wanted), more.frame(wanted, None)
    assert table is not None and folded is not None and frame is not None
    assert len(folded.table) == more.settings.folded_rows and len(table) == 12
    np.testing.assert_array_equal(table.effect, folded.groups.effect[:12])
    np.testing.assert_array_equal(frame["folded"], folded.to_frame()["rows"][:12] - 1)
    assert len({(d, o) for d, o in zip(table.destination, table.out, strict=True)}) == 12
    # Unfolded, the first and the third row have theirs beneath them; sorted otherwise, they still do.
    most = more.settings.members_shown
    for order in (frame, frame[::-1]):
        members = table_rows.unfolded(order, more, wanted, [1, 3])
        listed = table_rows.with_unfolded(order, members, 0, 1000)
        sizes = {rank: min(int(frame["folded"][rank - 1]), most) for rank in (1, 3)}
        assert len(listed) == 12 + sum(sizes.values()) and len({one["id"] for one in listed}) == len(listed)
        for rank, size in sizes.items():
            place = next(at for at, one in enumerate(listed) if one["rank"] == rank)
            beneath = listed[place + 1 : place + 1 + size]
            assert all(one["rank"] is None and one["out_shown"] == listed[place]["out_shown"] for one in beneath)
            assert all(abs(one["score"]) <= abs(listed[place]["score"]) for one in beneath)
        assert table_rows.with_unfolded(order, members, 5, 9) == listed[5:9]
    json.dumps(listed, allow_nan=False)
    assert table_rows.unfolded(frame, more, choice(), [1]) == []
    said = words.table(wanted, more.settings.folded_rows)
    says(said, "first 12", "more than the source")


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", FILES)
@pytest.mark.parametrize("reading", [None, READING.to_dict()], ids=["bare", "checked"])
def test_every_export_is_a_file(more: Trigrams, checked: Choice, entry: str, reading: Any):
    if entry == shell.export(ids.FORCED, "csv") and reading is None:
        with refused("not been held", error=RequestError):
            make_file(more, entry, {"choice": checked.to_dict(), "reading": None, "rows": 40, "checked": False})
        return
    file = make_file(more, entry, {"choice": checked.to_dict(), "reading": reading, "rows": 40, "checked": True})
    of_one = "" if entry == shell.export(ids.ALL_HEADS, "csv") else "-head-0.1"
    assert file.name.startswith(f"tiny-one{of_one}") and file.name.endswith(entry.rsplit("-", 1)[1])
    text = file.content.decode()
    if entry.endswith("json"):
        content = json.loads(text)
        assert np.array(content["rows"]).sum() == 40 and content["checkpoint"] == "tiny-one"
        return
    rows = list(csv.DictReader(io.StringIO(text)))
    if entry == shell.export(ids.FORCED, "csv"):
        bugs = more.bugs(checked, READING)
        assert bugs is not None and len(rows) == len(bugs) and text.startswith('"source","destination"')
        return
    if entry == shell.export(ids.ALL_HEADS, "csv"):
        assert [row["head"] for row in rows] == ["0.0", "0.1", "0.2"] and float(rows[1]["rows"]) == 40
        assert sum(float(rows[1][kind]) for kind in KINDS) == 40
        return
    assert len(rows) == (40 if entry == shell.export(ids.ROWS, "csv") else len(KINDS))
    if entry == shell.export(ids.ROWS, "csv"):
        table = more.table(checked)
        assert table is not None and [row["source"] for row in rows] == list(table.source_token)
        np.testing.assert_allclose([float(row["effect"]) for row in rows], table.effect, rtol=1e-12)
        assert ("verdict" in rows[0]) == (reading is not None)


def test_rows_that_are_folded_are_in_the_file(more: Trigrams):
    """Group by group: those that the page lists, each with all that the library folds beneath it."""
    wanted = choice(fold="sources", k=7)
    assert wait(more.search(wanted)).state == "done"
    model = more.core.catalog.load("tiny-one").model
    whole = skip_trigrams(model, (0, 1), k=more.settings.folded_rows, background=np.ones(300)).to_frame()
    groups = whole.groupby(["destination_id", "out_id"], sort=False)
    expected = [group["effect"].tolist() for _, group in islice(groups, 7)]
    shown = {"choice": wanted.to_dict(), "reading": None, "rows": 7, "checked": False}
    found = pd.read_csv(io.BytesIO(make_file(more, shell.export(ids.ROWS, "csv"), shown).content))
    assert found["group"].unique().tolist() == list(range(1, 8)) and len(found) > 20
    assert found.groupby("group")["effect"].apply(list).tolist() == expected
    # Only those that are listed have a rank: the first of each group.
    listed = found.groupby("group")["rank"].apply(list)
    assert all(ranks[0] == group and np.isnan(ranks[1:]).all() for group, ranks in listed.items())
    assert found["folded"].dropna().tolist() == [len(effects) - 1 for effects in expected]


def test_an_export_of_nothing_says_why(more: Trigrams):
    with pytest.raises(RequestError, match="Nothing is shown"):
        make_file(more, FILES[0], None)


def test_a_window_that_begins_within_a_character_opens_a_little_later(more: Trigrams):
    model = more.core.catalog.load("tiny-one").model
    ids = model.to_tokens("🙂 the captain danced, and the captain bowed")[0].tolist()[1:]
    tokens = [0, *ids[1:]]  # without the character's first byte
    n = len(tokens)
    address, same = _address(model, more.core.links, choice(), tokens, n - 4, n - 2, 48)
    assert address is not None and not same
    state = more.core.links["heads"].parse(urlsplit(address).query)
    opened = model.to_tokens(state.text or "")[0].tolist()
    assert state.position is not None and opened[state.position :] == tokens[n - 2 :]
    assert opened[1:] == tokens[len(tokens) - len(opened) + 1 :]
    assert _address(model, more.core.links, choice(), tokens, 1, n - 2, 48) == (None, False)
