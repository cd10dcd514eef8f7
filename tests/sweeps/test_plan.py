"""A sweep from TOML: every combination once, and a sentence for whatever is no sweep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aotlens.sweeps import Sweep, load_sweep
from tests.messages import refused

SMALL: dict[str, Any] = {"models": [{"checkpoints": ["a"]}], "analyses": [{"name": "metrics"}]}


def test_seeds_and_grids_are_crossed():
    values = {
        "threads": 2,
        "data": {"corpus": "stdlib", "tokens": 100},
        "models": [
            {"checkpoints": ["a", "b"]},
            {"recipe": "tiny.toml", "seeds": [0, 1], "grid": {"learning_rate": [1e-3, 3e-3]}},
        ],
        "analyses": [{"name": "x", "seeds": [5, 6], "settings": {"n": 1}, "grid": {"a": [1, 2], "b": ["p"]}}],
    }
    sweep = Sweep.from_dict(values)
    assert [list(each.trainings()) for each in sweep.models] == [
        [{"seed": None}],
        [{"seed": seed, "learning_rate": rate} for seed in (0, 1) for rate in (1e-3, 3e-3)],
    ]
    (analysis,) = sweep.analyses
    assert list(analysis.calls()) == [(seed, {"n": 1, "a": a, "b": "p"}) for seed in (5, 6) for a in (1, 2)]
    assert sweep.data is not None and (sweep.data.tokens, sweep.threads, sweep.device) == (100, 2, "auto")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"modles": []}, "unknown keys modles; known: models, analyses"),
        ({"models": []}, r"\[\[models\]\]: expected at least one"),
        ({"analyses": []}, r"\[\[analyses\]\]: expected at least one"),
        ({"models": [{}]}, "expected either checkpoints = .* or recipe = .*, got neither"),
        ({"models": [{"checkpoints": ["a"], "recipe": "b"}]}, "got checkpoints and recipe"),
        ({"models": [{"checkpoints": "a"}]}, "checkpoints: expected a list of names or folders, got 'a'"),
        ({"models": [{"checkpoints": [3]}]}, "expected a list of names or folders"),
        ({"models": [{"checkpoints": ["a"], "seeds": [1]}]}, "are of a recipe's training"),
        ({"models": [{"recipe": "r", "seeds": [-1]}]}, "whole numbers of at least 0"),
        ({"models": [{"recipe": "r", "grid": {"depth": [1]}}]}, "expected some of learning_rate, tokens, got depth"),
        ({"models": [{"recipe": "r", "grid": {"tokens": 5}}]}, "grid: expected a table of lists of values"),
        ({"models": {"checkpoints": ["a"]}}, r"expected tables, each begun by \[\[models"),
        ({"analyses": [{}]}, "missing keys name"),
        ({"analyses": [{"name": "x", "grid": {"a": []}}]}, "grid: expected a table of lists of values"),
        ({"analyses": [{"name": "x", "settings": {"a": 1}, "grid": {"a": [1]}}]}, "a stand in settings and in grid"),
        ({"analyses": [{"name": "x", "settings": {"seed": 1}}]}, "give seeds = "),
        ({"analyses": [{"name": "x", "settings": {"a": float("nan")}}]}, "expected a finite number, found nan"),
        ({"analyses": [{"name": "x", "settings": {"a": b"1"}}]}, "expected settings of numbers, texts"),
        ({"models": [{"checkpoints": ["a"], "\x1b[31m": 1}]}, "without control characters"),
        ({"analyses": [{"name": "x", "seeds": [10**400]}]}, "64 bits"),
        (
            {"analyses": [{"name": "x", "grid": {"a": [0] * 400, "b": [0] * 400}}]},
            "at most 100,000 cells",
        ),
        ({"data": {"images": "digits", "n_images": 0}}, "n_images: expected a whole number above 0, got 0"),
        ({"time_limit": 0}, "time_limit: expected seconds, above 0"),
        ({"time_limit": "1 h"}, "time_limit: expected a number of seconds"),
        ({"data": {"corpus": 4}}, "corpus: expected the name of a corpus, as .*, got 4"),
        ({"data": {"corpus": "stdlib", "tokens": 0}}, "tokens: expected a whole number above 0, got 0"),
        ({"threads": 0}, "threads: expected 1 to 1,024, got 0"),
        ({"threads": True}, "threads: expected"),
        ({"device": 1}, "device: expected"),
    ],
)
def test_what_cannot_be_is_named(change: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        Sweep.from_dict({**SMALL, **change})


def test_a_file_is_named_with_what_is_wrong_in_it(tmp_path: Path):
    with refused("none.toml", "read"):
        load_sweep(tmp_path / "none.toml")
    path = tmp_path / "some.toml"
    path.write_text("threads = ", encoding="utf-8")
    with refused("some.toml", "TOML"):
        load_sweep(path)
    path.write_text("threads = 1", encoding="utf-8")
    with refused("some.toml", "at least one"):
        load_sweep(path)
    path.write_text("a = " + "[" * 100_000, encoding="utf-8")
    with refused("some.toml", "TOML"):
        load_sweep(path)
    os.mkfifo(tmp_path / "pipe.toml")
    with refused("pipe.toml", "regular file", "pipe"):
        load_sweep(tmp_path / "pipe.toml")
