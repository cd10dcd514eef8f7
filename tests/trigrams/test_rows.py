"""A head's rows in groups, checked against text; all heads; checks that come with aotlens."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.checkpoints import load
from aotlens.data import Tokenizer, open_corpus
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.results import load as load_result
from aotlens.trigrams import (
    Example,
    StoredRows,
    check_rows,
    evidence,
    explain_row,
    filter_rows,
    find_rows,
    kinds,
    list_rows,
    rows_by_head,
    skip_trigram_bugs,
    skip_trigrams,
    stored_check,
    tokens_like,
)
from aotlens.trigrams.table import KINDS
from tests.messages import refused

TEXT = "the cat sat on the mat. the dog sat on the cat. a cat and a dog sat on the mat again. " * 8


@pytest.fixture(scope="module")
def model() -> AttentionOnlyTransformer:
    tokenizer = Tokenizer.train([TEXT], 279)
    torch.manual_seed(1)
    cfg = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_head=8, n_ctx=24, d_vocab=279, norm=None)
    made = AttentionOnlyTransformer(cfg, tokenizer).eval().requires_grad_(False)
    made.unigram_counts = torch.bincount(torch.tensor(tokenizer.encode(TEXT)), minlength=279)
    return made


def test_rows_are_the_best_of_their_groups_and_the_file_has_the_others(model: AttentionOnlyTransformer) -> None:
    table = skip_trigrams(model, "0.1", k=2000)
    rows = list_rows(table, 7, ["source"])
    whole = table.to_frame()
    groups = [group["effect"].tolist() for _, group in whole.groupby(["destination_id", "out_id"], sort=False)][:7]
    frame = rows.to_frame()
    listed = {rank: list(group) for rank, group in groupby(frame.itertuples(), key=lambda one: one.group)}
    assert [[one.effect for one in listed[rank]] for rank in range(1, 8)] == groups
    assert all([one.rank for one in group][:2] == [rank, pd.NA][: len(group)] for rank, group in listed.items())
    assert rows.listed_frame()["grouped"].tolist() == [len(group) - 1 for group in groups]
    assert rows.members(2).effect.tolist() == groups[1][1:]
    each = list_rows(table, 5)
    assert each.table.effect.tolist() == table.effect[:5].tolist() and len(each.members(1)) == 0
    assert each.by_kind()["not checked"].tolist() == [kinds(each.table).count(kind) for kind in KINDS]
    assert each.row(99).number == 4 and each.row().number == 0
    with refused("not checked"):
        each.forced_frame()


@pytest.mark.parametrize("score", ["effect", "sum", "product"])
def test_the_score_is_what_ranks(model: AttentionOnlyTransformer, score: str) -> None:
    frame = list_rows(skip_trigrams(model, "0.1", k=40, score=score)).listed_frame()
    assert (np.diff(frame["score"]) <= 1e-12).all()


def test_a_check_is_the_evidence_and_what_it_forces(model: AttentionOnlyTransformer) -> None:
    text = np.array(model.tokenizer.encode(TEXT))
    rows = list_rows(skip_trigrams(model, "0.0", k=300, sources=[" cat"], destinations=[" sat", " on"]), 30)
    checked = check_rows(model, rows, text)
    held = evidence(model, rows.table, text, n_examples=4)
    pd.testing.assert_frame_equal(checked.listed_frame()[held.to_frame().columns], held.to_frame())
    pd.testing.assert_frame_equal(checked.forced_frame(), skip_trigram_bugs(model, held, text).to_frame())
    assert checked.kind_frame()[["confirmed", "not confirmed", "too rare"]].to_numpy().sum() == 30
    verdicts = ("too rare", "not confirmed", "confirmed", *["confirmed"] * 27)
    assert replace(checked, evidence=replace(held, verdict=verdicts)).first == 3
    decided = replace(held, verdict=verdicts).headline
    assert decided == "of 30 rows the text decides 29: 28 confirmed, 1 not"


def test_every_head_is_counted(model: AttentionOnlyTransformer) -> None:
    text, seen = np.array(model.tokenizer.encode(TEXT)), []
    found = rows_by_head(model, text, k=20, depth=200, over=["source"], progress=lambda *at: seen.append(at))
    frame = found.to_frame()
    assert frame["head"].tolist() == ["0.0", "0.1"] and seen == [(0, 2), (1, 2)]
    rows = check_rows(model, list_rows(skip_trigrams(model, "0.1", k=200), 20, ["source"]), text, run_model=False)
    assert frame.loc[1, list(KINDS)].tolist() == rows.by_kind().sum(axis=1).tolist()
    assert frame.loc[1, list(rows.evidence.summary())].tolist() == list(rows.evidence.summary().values())
    assert "confirmed" not in rows_by_head(model, k=5, heads=["0.1"]).to_frame()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cat", {" cat"}), ("=· cat", None), ("=·cat", {" cat"}), ("= cat", {" cat"}), ("DO", {" do", " dog"})],
)
def test_tokens_are_found_by_their_text(model: AttentionOnlyTransformer, text: str, expected: set[str] | None) -> None:
    if expected is None:
        with refused("No token", "the source"):
            tokens_like(model, text, "source")
        return
    found = tokens_like(model, text)
    assert set(model.tokenizer.str_tokens(found)) & {" cat", " do", " dog"} == expected & set(
        model.tokenizer.str_tokens(range(279))
    )
    assert tokens_like(model, text, most=1) == found[:1]


@pytest.mark.unchecked
def test_a_uniform_background_weighs_all_tokens_alike(model: AttentionOnlyTransformer) -> None:
    uniform = skip_trigrams(model, "0.1", k=20, background="uniform")
    assert uniform.effect.tolist() == skip_trigrams(model, "0.1", k=20, background=np.ones(279)).effect.tolist()
    with refused("background", "'flat'"):
        skip_trigrams(model, "0.1", background="flat")


def test_rows_are_filtered_by_their_words(model: AttentionOnlyTransformer) -> None:
    text = np.array(model.tokenizer.encode(TEXT))
    rows = list_rows(skip_trigrams(model, "0.0", k=300, sources=[" cat", " dog"], destinations=[" sat", " on"]), 30)
    checked, frame = check_rows(model, rows, text), rows.listed_frame()
    cats = filter_rows(rows, source="=·cat")
    pd.testing.assert_frame_equal(cats.listed_frame(), frame[frame["source"] == " cat"])
    assert 0 < len(cats) < 30 and cats.headline == f"{len(cats)} of 30 rows match"
    verdicts, kind = checked.listed_frame()["verdict"], frame["kind"].iloc[0]
    for word in set(verdicts):
        assert len(filter_rows(checked, verdict=word)) == list(verdicts).count(word)
    both = filter_rows(checked, kind=kind, out="A")
    expected = [one.rank for one in frame.itertuples() if one.kind == kind and "a" in one.out.lower()]
    assert both.listed_frame()["rank"].tolist() == expected
    assert len(filter_rows(rows, verdict="confirmed")) == 0 and len(filter_rows(rows)) == 30
    grouped = list_rows(skip_trigrams(model, "0.1", k=2000), 7, ["source"])
    whole, second = grouped.to_frame(), grouped.table.destination_token[1]
    ranks = [rank + 1 for rank in range(7) if grouped.table.destination_token[rank] == second]
    found = filter_rows(grouped, destination=f"={second}").to_frame()
    pd.testing.assert_frame_equal(found, whole[whole["group"].isin(ranks)].reset_index(drop=True))
    assert len(found) > len(ranks), "with the others of their groups"


def test_examples_are_read_with_the_prompts_that_open_them(model: AttentionOnlyTransformer) -> None:
    text = np.array(model.tokenizer.encode(TEXT))
    rows = list_rows(skip_trigrams(model, "0.0", k=300, sources=[" cat"], destinations=[" sat", " on"]), 30)
    checked = check_rows(model, rows, text)
    row = checked.row(checked.evidence.examples[0].row + 1)
    texts = explain_row(model, row)
    pd.testing.assert_frame_equal(texts.to_frame(), row.to_frame())
    assert len(texts.examples) == sum(one.row == row.number for one in checked.evidence.examples) > 0
    for example, line in zip(texts.examples, texts.examples_frame().itertuples(), strict=True):
        opened = model.to_tokens(line.prompt)[0].tolist()
        assert opened[line.position] == rows.table.destination[row.number]
        assert rows.table.source[row.number] in opened[: line.position]
        assert line.distance == example.destination_position - example.source_position
        assert line.text == "".join(model.tokenizer.str_tokens(example.tokens.tolist()))
    assert explain_row(model, rows.row(1)).examples == ()


def test_a_window_that_begins_within_a_character_opens_a_little_later(model: AttentionOnlyTransformer) -> None:
    ids = model.to_tokens("🙂 the cat sat on the mat")[0].tolist()[1:]
    tokens = np.array([0, *ids[1:]])  # without the character's first byte
    n = len(tokens)
    place = {"row": 0, "tokens": tokens, "destination_position": n - 2, "follows": True, "attention": 0.5}
    rows = list_rows(skip_trigrams(model, "0.0", k=5), 5)
    checked = check_rows(model, rows, np.array(model.tokenizer.encode(TEXT)))

    def texts(source: int) -> tuple[str, int]:
        held = replace(checked.evidence, examples=(Example(source_position=source, **place),))
        read = explain_row(model, replace(checked, evidence=held).row(1))
        return read.prompts[0], read.dropped[0]

    prompt, dropped = texts(n - 3)
    assert prompt and dropped and model.to_tokens(prompt)[0].tolist()[1:] == tokens[1 + dropped :].tolist()
    assert texts(1) == ("", 0), "the source would be dropped"


@pytest.mark.usefixtures("real_bundled_folder")
def test_a_check_that_comes_with_aotlens_is_that_of_the_rows(tmp_path: Path) -> None:
    """Places, lifts and verdicts are counted again; what the head does there is in the file of this check."""
    model, novels = load("novels-1l-mhsa"), open_corpus("novels")
    assert model.card.held_out(novels.names()) == novels.names() and len(novels.names()) == 5
    rows = list_rows(skip_trigrams(model, "0.6", k=20_000, min_count=300), 500, ["source", "destination"])
    stored = stored_check(rows, "novels-1l-mhsa")
    again = check_rows(model, rows, novels, max_tokens=300_000, run_model=False)
    head = ["measured_attention", "measured_effect", "ablation_change"]
    pd.testing.assert_frame_equal(
        stored.listed_frame().drop(columns=head), again.listed_frame().drop(columns=head), rtol=1e-5
    )
    assert stored.evidence.verdict[stored.first - 1] == "confirmed" and stored.groups is rows.groups
    places = [one for one in stored.evidence.examples if one.row == stored.first - 1]
    assert any(one.follows for one in places)
    assert find_rows(model.card).of(rows).evidence is stored.evidence
    assert find_rows(replace(model.card, weights_sha256="0" * 64)) is None
    with refused("no check of these rows", "check_rows"):
        stored_check(list_rows(rows.table, 3), "novels-1l-mhsa")
    kept = StoredRows.keep([again], max_tokens=9, checkpoint="mine")
    kept.save(tmp_path / "kept.safetensors", compact=True)
    assert load_result(tmp_path / "kept.safetensors").of(rows).evidence.verdict == again.evidence.verdict
