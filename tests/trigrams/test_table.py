"""Folded rows against the definition, tried pair by pair, and against all triples of a small vocabulary.

Kinds of rows, on tokens that a byte-level tokenizer has.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aotlens.trigrams import count_kinds, fold_rows, kinds, score_triples, skip_trigrams
from aotlens.trigrams.table import KINDS, kind_of
from tests.messages import refused

NAMES = ("source", "destination", "out")
CHOICES = [names for n in (1, 2, 3) for names in itertools.combinations(NAMES, n)]


def by_definition(triples: list[tuple[int, int, int]], over: tuple[str, ...]) -> list[int]:
    """Each row compared with every row before it that stands for a group."""
    beneath: list[int] = []
    for number, row in enumerate(triples):
        group = number
        for before in range(number):
            differing = {name for name, a, b in zip(NAMES, row, triples[before], strict=True) if a != b}
            if beneath[before] == before and len(differing) <= 1 and differing <= set(over):
                group = before
                break
        beneath.append(group)
    return beneath


@pytest.mark.parametrize("over", CHOICES)
def test_rows_are_folded_as_defined(make, over):
    table = skip_trigrams(make(), (0, 1), k=400)
    triples = list(zip(table.source.tolist(), table.destination.tolist(), table.out.tolist(), strict=True))
    folded = fold_rows(table, over)
    assert folded.beneath.tolist() == by_definition(triples, over)
    # It folds something, and not everything.
    assert 1 < len(folded) < len(table)


@pytest.mark.parametrize("over", CHOICES)
def test_a_longer_table_begins_with_the_same_groups(make, over):
    model = make()
    short, long = (fold_rows(skip_trigrams(model, (0, 0), k=k), over) for k in (60, 900))
    assert long.best[: len(short)].tolist() == short.best.tolist()
    assert long.beneath[:60].tolist() == short.beneath.tolist()


def test_groups_by_destination_and_out_are_the_best_sources_of_all_triples(make):
    """By enumeration of all 23³ triples: a group's row is its best source, and groups are in these rows' order."""
    model = make()
    size = model.cfg.d_vocab
    sources, destinations, outs = (grid.ravel() for grid in np.meshgrid(*[np.arange(size)] * 3, indexing="ij"))
    effect = score_triples(model, (0, 1), sources, destinations, outs).effect.reshape(size, size, size)
    best = np.sort(effect.max(0).ravel())[::-1]
    folded = fold_rows(skip_trigrams(model, (0, 1), k=300))
    groups = folded.groups
    assert len(groups) > 20
    np.testing.assert_allclose(groups.effect, best[: len(groups)], rtol=1e-9)
    np.testing.assert_array_equal(groups.source, effect.argmax(0)[groups.destination, groups.out])


def test_the_frame_has_a_row_a_group_with_what_is_folded(make):
    model = make()
    # Given rows, in the order given: 5 stands first, and the last two share a token's place with no group's row.
    table = score_triples(model, (0, 0), [5, 6, 5, 1, 6], [2, 2, 3, 1, 3], [4, 4, 4, 1, 4])
    folded = fold_rows(table, ("source", "destination"))
    frame = folded.to_frame()
    # (6, 3, 4) differs from (5, 2, 4) in two tokens, and what is folded beneath that stands for no group.
    assert folded.beneath.tolist() == [0, 0, 0, 3, 4]
    assert frame["rank"].tolist() == [1, 4, 5] and frame["rows"].tolist() == [3, 1, 1]
    assert [len(tokens) for tokens in frame["other_sources"]] == [1, 0, 0]
    assert [len(tokens) for tokens in frame["other_destinations"]] == [1, 0, 0]
    np.testing.assert_array_equal(frame["effect"], table.effect[[0, 3, 4]])
    assert folded.members(0).tolist() == [0, 1, 2]
    assert len(folded.groups) == len(folded) == 3 and folded.groups.exact == table.exact
    with refused("row 1", "best"):
        folded.members(1)


def test_equal_rows_are_one_group_and_none_is_no_group(make):
    model = make()
    twice = score_triples(model, (0, 0), [5, 5], [2, 2], [4, 4])
    assert fold_rows(twice, "out").beneath.tolist() == [0, 0]
    nothing = fold_rows(twice.take(np.empty(0, dtype=np.int64)))
    assert len(nothing) == 0 and nothing.to_frame().empty


@pytest.mark.parametrize("over", [(), "word", ("source", "token")])
def test_what_is_no_token_is_refused(make, over):
    with refused("'source', 'destination', 'out'"):
        fold_rows(skip_trigrams(make(), (0, 0), k=5), over)


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
