"""Kinds of rows: each rule on examples whose answer is plain, and counts against a loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aotlens.trigrams.kinds import KINDS, RULES, count_kinds, kind, kinds
from aotlens.trigrams.table import TrigramTable


def table(rows: list[tuple[str, str, str]]) -> TrigramTable:
    ids, ones = np.arange(len(rows)), np.ones(len(rows))
    source, destination, out = zip(*rows, strict=True)
    return TrigramTable(
        layer=0, head=0, source=ids, destination=ids, out=ids, source_token=source, destination_token=destination,
        out_token=out, qk=ones, attention=ones, ov=ones, score="effect", largest=True, distance=None, n_background=8,
        relative="",
    )  # fmt: skip


ROWS = {
    (',"', ".", ' "'): "punctuation",
    ("\n", " known", "\n"): "punctuation",
    (" thou", ".", " thou"): "copying",
    (" Will", " the", " will"): "copying",
    ("2", " =", " 2"): "copying",
    (" cur", "'ve", "iously"): "morphology",
    (" he", " he", "'s"): "morphology",
    (" can", " 1", "st"): "morphology",
    (" Mrs", " Mr", " Pendlebury"): "name",
    (" Mrs", ".", " Pendlebury"): "other",
    (" Mrs", "\n", "Pendlebury"): "other",
    ("\n\n", " the", " CHAPTER"): "other",
    (" I", " and", " I'd"): "other",
    (" keep", " in", " mind"): "other",
    ("<0xE2>", "<0x80>", "<0x99>"): "other",
}


@pytest.mark.parametrize(("row", "expected"), ROWS.items(), ids=str)
def test_a_row_is_of_the_kind_that_its_rule_says(row: tuple[str, str, str], expected: str):
    assert kind(*row) == expected


def test_tokens_may_be_empty():
    assert kind("", "", "") == "punctuation"
    assert kind("", "", "Anne") == "other"


def test_every_kind_has_a_rule():
    assert set(ROWS.values()) == set(KINDS) == set(RULES)


def test_counts_are_a_loops():
    rows = list(ROWS)
    words = ("confirmed", "not confirmed", "too rare")
    verdict = tuple(words[i % 3] for i in range(len(rows)))
    found = count_kinds(table(rows), verdict)
    frame = found.to_frame()
    for name in KINDS:
        for word in words:
            expected = sum(ROWS[row] == name and v == word for row, v in zip(rows, verdict, strict=True))
            assert frame.loc[name, word] == expected
    assert count_kinds(table(rows)).counts.sum(1).tolist() == found.counts.sum(1).tolist()
    assert count_kinds(table(rows)).verdicts == ("not checked",)


def test_what_cannot_be_counted_is_refused():
    rows = list(ROWS)
    with pytest.raises(ValueError, match="a verdict a row"):
        count_kinds(table(rows), ("confirmed",))
    with pytest.raises(ValueError, match="no tokenizer"):
        kinds(replace(table(rows), out_token=("",) * len(rows)))
