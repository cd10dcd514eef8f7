"""Kinds of rows, on tokens that a byte-level tokenizer has."""

from __future__ import annotations

import pytest

from aotlens.trigrams import count_kinds, kinds, score_triples
from aotlens.trigrams.kinds import KINDS, kind_of


@pytest.mark.parametrize(
    ("source", "out", "kind"),
    [
        (" thou", " Thou", "copying"),
        (" Ralph", "Ral", "copying"),
        (" a", " an", "other"),
        (',"', ' "', "punctuation"),
        ('"', ' "', "copying"),
        ("\n", " .", "punctuation"),
        (" Mr", " Pickwick", "names"),
        (" fl", "ir", "morphology"),
        (" fl", "'s", "other"),
        (" keep", " mind", "other"),
        (" keep", "7", "other"),
    ],
)
def test_one_row(source: str, out: str, kind: str) -> None:
    assert kind_of(source, out) == kind


def test_a_table_without_strings_is_refused(make) -> None:
    with pytest.raises(ValueError, match="without a tokenizer"):
        kinds(score_triples(make(), (0, 0), [1], [2], [3]))
    assert count_kinds(("names", "names")) == {**dict.fromkeys(KINDS, 0), "names": 2}
