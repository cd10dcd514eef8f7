"""What skip_trigrams refuses, and in which words."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from aotlens.trigrams import (
    skip_trigrams,
)


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"score": "best"}, "expected one of 'effect'"),
        ({}, {"k": 0}, "at least 1"),
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


def test_half_a_row_is_no_number_of_rows(make) -> None:
    with pytest.raises(ValueError, match=r"k=2\.5"):
        skip_trigrams(make(), (0, 0), k=2.5)


def test_wrong_types_are_named_where_nothing_checks_them() -> None:
    """Annotated shapes are checked under the tests; a user's script has the messages alone."""
    script = """
import numpy as np, torch
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.trigrams import read_ids, skip_trigrams
model = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=4, n_heads=1, d_head=2, d_vocab=9, n_ctx=5))
model.unigram_counts = torch.ones(9)
for wrong in (
    lambda: skip_trigrams(model, (0, 0), k=1.5), lambda: skip_trigrams(model, (0, 0), k=1, sources=[2.9]),
    lambda: read_ids(model, np.array([1.7, 2.2])), lambda: read_ids(model, np.array([[1, 2]])),
):
    try:
        wrong()
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
        "k=1.5: expected a whole number",
        "sources: expected token ids or strings",
        "expected token ids as whole numbers in one dimension",
        "expected token ids as whole numbers in one dimension",
    ]


def test_no_counts_and_no_head(make) -> None:
    model = make()
    model.unigram_counts = None
    with pytest.raises(ValueError, match="no training counts"):
        skip_trigrams(model, (0, 0))
    with pytest.raises(ValueError, match=r"head 0\.2"):
        skip_trigrams(make(), (0, 2))
