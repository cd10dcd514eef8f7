"""The search for the largest pairs of paths against the terms of all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.paths import Path, ScoreExpansion, expand
from tests.messages import refused
from tests.small_models import MakeModel

DEEP: dict[str, Any] = {"n_layers": 4, "n_heads": 3, "bias": True}
KINDS: dict[str, dict[str, Any]] = {
    "mhsa": DEEP | {"positions": "qk"},
    "mssa, no norm": {**DEEP, "attention": "mssa", "norm": None},
    "thresholded": {**DEEP, "phi": "thresholded_softmax", "threshold": 0.25},
    "linear, both ways": {**DEEP, "phi": "linear", "causal": False},
    "mlps": {**DEEP, "d_mlp": 5},
}


def all_terms(score: ScoreExpansion) -> tuple[list[Path], Tensor]:
    """Every path of a side, and the term of every pair `[query, key]`."""
    paths = list(score.paths())
    query, key = (torch.stack([side.path(path) for path in paths]) for side in score.sides)
    return paths, query @ key.T


def keys_of(terms: Tensor, by: str) -> Tensor:
    return {"abs": terms.abs(), "pos": terms, "neg": -terms}[by]


@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_the_largest_of_all_pairs(make: MakeModel, tokens: Tensor, kind: str) -> None:
    score = expand(make(**KINDS[kind]), tokens).score((3, 1), 4, 2)
    paths, terms = all_terms(score)
    for by in ("abs", "pos", "neg"):
        order = keys_of(terms, by).flatten().argsort(descending=True)
        top = score.top(20, by, budget=10_000)
        assert top.complete and top.n_proven == 20 and top.n_pairs == terms.numel() == score.n_pairs
        best = terms.flatten()[order]
        torch.testing.assert_close(torch.tensor(top.values, dtype=torch.float64), best[:20], rtol=1e-9, atol=1e-12)
        for (query, key), value in zip(top.pairs, top.values, strict=True):
            assert float(terms[paths.index(query), paths.index(key)]) == pytest.approx(value, abs=1e-12)
        assert len(set(top.pairs)) == 20 and top.n_expanded < 100
        assert top.total == pytest.approx(score.value) == pytest.approx(float(terms.sum()))
        assert top.remainder == pytest.approx(float(best[20:].sum()), abs=1e-9)
        assert float(keys_of(best, by)[20]) <= top.bound * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["mhsa", "mssa, no norm"])
def test_what_a_small_budget_proves_is_true(make: MakeModel, tokens: Tensor, kind: str) -> None:
    score = expand(make(**KINDS[kind]), tokens).score((3, 0), 3, 1)
    paths, terms = all_terms(score)
    best = terms.abs().flatten().sort(descending=True).values
    for budget in (1, 2, 3, 6, 12):
        top = score.top(15, budget=budget)
        assert top.n_expanded <= budget and top.n_evaluated <= top.n_pairs
        found = torch.tensor(top.values, dtype=torch.float64).abs()
        torch.testing.assert_close(found[: top.n_proven], best[: top.n_proven], rtol=1e-9, atol=1e-12)
        rest = terms.abs()
        for query, key in top.pairs:
            rest[paths.index(query), paths.index(key)] = 0
        assert float(rest.max()) <= top.bound * (1 + 1e-9)
        assert top.remainder == pytest.approx(top.total - sum(top.values))
        assert top.to_frame().proven.sum() == top.n_proven


@pytest.mark.parametrize(
    "changes", [{"positions": "qk"}, {"phi": "linear", "causal": False, "norm": None}, {"d_mlp": 5}]
)
def test_split_sources_are_searched_by_position(make: MakeModel, tokens: Tensor, changes: dict[str, Any]) -> None:
    score = expand(make(n_layers=3, bias=True, **changes), tokens, split_sources=True).score((2, 1), 4, 2, "mean")
    paths, terms = all_terms(score)
    best = terms.flatten()[terms.flatten().abs().argsort(descending=True)]
    top = score.top(25, budget=10_000)
    assert top.complete and top.n_pairs == terms.numel()
    assert list(top.values) == pytest.approx(best[:25].tolist(), abs=1e-12)
    for (query, key), value in zip(top.pairs, top.values, strict=True):
        assert float(terms[paths.index(query), paths.index(key)]) == pytest.approx(value, abs=1e-12)


def test_all_pairs_of_a_small_model_are_returned_when_asked_for(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(positions="qk", bias=True), tokens)
    first = expansion.score((0, 1), 3, 1).top(100)
    assert len(first.pairs) == first.n_pairs == 9 and first.complete and first.bound == 0 and first.n_expanded == 0
    second = expansion.score((1, 1), 3, 1).top(1000)
    assert len(second.pairs) == second.n_pairs == 49 and second.complete and second.bound == 0
    assert second.remainder == pytest.approx(0, abs=1e-9) and len(set(second.pairs)) == 49
    frame = second.to_frame()
    assert list(frame.columns[:4]) == ["rank", "pair", "formula", "query_source"] and len(frame) == 49


def test_a_pair_that_is_infinite_is_refused(make: MakeModel, tokens: Tensor) -> None:
    score = expand(make(torch.float32, n_layers=3), tokens).score((2, 0), 3, 1)
    frozen = score.layer.below.frozen
    object.__setattr__(frozen, "W_O", frozen.W_O * 1e38)
    with refused("contribution", "torch.float32"):
        score.top(5)
