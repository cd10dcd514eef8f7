"""What skip_trigrams refuses, and in which words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aotlens.trigrams import read_ids, skip_trigrams


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"score": "best"}, "expected one of 'effect'"),
        ({}, {"k": 0}, "k=0"),
        ({}, {"k": True}, "whole number"),
        ({}, {"sources": (number for number in [2.9])}, "token ids or strings, got 2.9"),
        ({}, {"sources": [True]}, "got True"),
        ({}, {"normaliser": np.full(23, np.nan)}, "some that are not"),
        ({}, {"normaliser": np.zeros(22)}, r"23 finite numbers.*\[22\]"),
        ({}, {"min_count": 1000}, "no token has as many; the most frequent has"),
        ({}, {"sources": [23]}, "ids 0 to 22"),
        ({}, {"outs": []}, "at least one"),
        ({}, {"outs": ["the"]}, "no tokenizer"),
        ({"positions": None}, {"distance": 2}, "positions=None"),
        ({}, {"distance": 6}, "expected 1 to 5"),
        ({}, {"distance": "far"}, "expected 1 to 5"),
        ({}, {"background": np.ones(22)}, "expected 23 finite counts"),
        ({}, {"background": -np.ones(23)}, "expected 23 finite counts"),
        ({"phi": "linear"}, {}, "phi='linear'"),
        ({"phi": "fixed", "fixed_pattern": "random"}, {}, "phi='fixed'"),
    ],
)
def test_bad_input_is_named(make, changes: dict, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        skip_trigrams(make(**changes), (0, 0), **arguments)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: skip_trigrams(model, (0, 0), k=2.5), r"k=2\.5.*whole number"),
        (lambda model: skip_trigrams(model, (0, 0), k=1, sources=[2.9]), "sources.*token ids or strings"),
        (lambda model: read_ids(model, np.array([1.7, 2.2])), "whole numbers in one dimension"),
        (lambda model: read_ids(model, np.array([[1, 2]])), "whole numbers in one dimension"),
    ],
)
def test_wrong_types_are_named_where_nothing_checks_them(make, call: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(make())


def test_no_counts_and_no_head(make) -> None:
    model = make()
    model.unigram_counts = None
    with pytest.raises(ValueError, match="no training counts"):
        skip_trigrams(model, (0, 0))
    with pytest.raises(ValueError, match=r"head 0\.2"):
        skip_trigrams(make(), (0, 2))
