"""Shapley values against all orders written out, and against what the definition makes known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import aotlens
from aotlens.heads import ShapleyValues, ablate, shapley_heads
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction, repeated
from tests.messages import refused
from tests.small_models import SMALL, maker

M = 6


def by_orders(model: AttentionOnlyTransformer, tokens: torch.Tensor, how: str, metric: object = None) -> np.ndarray:
    """The mean over all orders of what each head adds, `[head]`, by `ablate`, set by set."""
    heads = list(itertools.product(range(model.cfg.n_layers), range(model.cfg.n_heads)))
    known: dict[frozenset[tuple[int, int]], float] = {}

    def measure(kept: frozenset[tuple[int, int]]) -> float:
        if kept not in known:
            rest = [head for head in heads if head not in kept]
            result = ablate(model, tokens, rest or heads, how, metric=metric)
            known[kept] = result.ablated_mean if rest else result.clean_mean
        return known[kept]

    total = dict.fromkeys(heads, 0.0)
    for order in itertools.permutations(heads):
        for place, head in enumerate(order):
            total[head] += measure(frozenset(order[: place + 1])) - measure(frozenset(order[:place]))
    return np.array([total[head] for head in heads]) / math.factorial(len(heads))


@pytest.mark.parametrize("how", ["zero", "mean", "uniform"])
@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 2), (1, 5)])
def test_values_are_the_means_over_all_orders(n_layers: int, n_heads: int, how: str) -> None:
    model = maker(SMALL)(n_layers=n_layers, n_heads=n_heads)
    tokens = torch.randint(SMALL["d_vocab"], (4, 7), generator=torch.Generator().manual_seed(0))
    found = shapley_heads(model, tokens, how=how)
    np.testing.assert_allclose(found.values.ravel(), by_orders(model, tokens, how), atol=1e-6)
    assert found.values.sum() == pytest.approx(found.whole - found.empty, abs=1e-9)
    assert found.n_permutations is None and found.n_runs == 2**found.values.size and (found.order_errors == 0).all()
    for head in np.ndindex(*found.values.shape):
        alone = ablate(model, tokens, head, how)
        assert found.last[head] == pytest.approx(-alone.change, abs=1e-6)


def test_heads_that_stand_in_for_each_other_share_what_one_ablation_does_not_show() -> None:
    model = induction(M, 9.0, copies=2, decoys=1)
    tokens, targets = repeated(M, 12)
    found = shapley_heads(model, tokens, targets)
    for layer in (0, 1):
        decoy, one, two = (found.values[layer, head] for head in range(3))
        assert one == pytest.approx(two, rel=1e-3) and abs(decoy) < 0.05 * abs(one)
    assert found.values[0, 1] < -2 and abs(found.last[0, 1]) < 0.25 * abs(found.values[0, 1])
    frame = found.to_frame()
    columns = ["layer", "head", "shapley", "low", "high", "order_error", "first", "last", "hidden"]
    assert frame.columns.tolist() == columns
    hides_more_than_half = abs(frame["last"]) < abs(frame.shapley) / 2
    apart_from_0 = (frame.low > 0) | (frame.high < 0)
    assert frame.hidden.tolist() == (hides_more_than_half & apart_from_0).tolist()
    assert found.hidden[0, 1:].all() and not found.hidden[:, 0].any()  # the twins, and no decoy
    assert (frame.low <= frame.shapley).all() and (frame.shapley <= frame.high).all()
    assert "exact" in found.headline


def test_a_head_that_writes_nothing_is_worth_nothing() -> None:
    model = maker(SMALL)()
    model.blocks[0].attn.W_O.data[1] = 0
    tokens = torch.randint(SMALL["d_vocab"], (4, 7), generator=torch.Generator().manual_seed(0))
    found = shapley_heads(model, tokens, how="zero")
    assert found.values[0, 1] == found.first[0, 1] == found.last[0, 1] == 0
    assert found.intervals[0, 1].tolist() == [0, 0]


@pytest.mark.long
def test_drawn_orders_agree_with_all_sets_within_their_errors() -> None:
    model = maker(SMALL)(n_layers=2, n_heads=3, d_head=4)
    tokens = torch.randint(SMALL["d_vocab"], (5, 8), generator=torch.Generator().manual_seed(1))
    exact = shapley_heads(model, tokens, how="zero")
    z, within = [], []
    for seed in range(20):
        found = shapley_heads(model, tokens, how="zero", n_permutations=32, seed=seed)
        assert found.values.sum() == pytest.approx(found.whole - found.empty, abs=1e-9)
        z.append((found.values - exact.values) / found.order_errors)
        low, high = np.moveaxis(found.intervals, -1, 0)
        within.append((low <= exact.values) & (exact.values <= high))
    assert 0.5 < np.std(z) < 2 and abs(np.mean(z)) < 0.5, "6 pairs of orders: t with 5 degrees of freedom"
    assert np.mean(within) > 0.95
    again = shapley_heads(model, tokens, how="zero", n_permutations=32, seed=3)
    np.testing.assert_array_equal(
        again.values, shapley_heads(model, tokens, how="zero", n_permutations=32, seed=3).values
    )


def test_many_heads_are_drawn_and_progress_is_told() -> None:
    model = maker(SMALL)(n_layers=2, n_heads=7, d_head=2)
    tokens = torch.randint(SMALL["d_vocab"], (3, 6), generator=torch.Generator().manual_seed(0))
    seen: list[tuple[int, int]] = []
    found = shapley_heads(model, tokens, how="zero", n_permutations=32, progress=lambda *at: seen.append(at))
    assert found.n_permutations == 32 and "32 orders" in found.headline
    assert all(done <= total for done, total in seen) and seen == sorted(seen) and seen[-1][1] == 32 * 13 + 30


def test_clusters_and_a_metric_of_ones_own() -> None:
    model = maker(SMALL)()
    tokens = torch.randint(SMALL["d_vocab"], (8, 7), generator=torch.Generator().manual_seed(0))
    metric = lambda logits, targets: logits[:, -1, 3]  # noqa: E731
    found = shapley_heads(model, tokens, metric=metric, how="zero", clusters=list("aabbccdd"))
    np.testing.assert_allclose(found.values.ravel(), by_orders(model, tokens, "zero", metric), atol=1e-5)
    apart = shapley_heads(model, tokens, metric=metric, how="zero")
    assert not np.allclose(found.intervals, apart.intervals)


@pytest.mark.unchecked
def test_what_cannot_be_computed_is_named() -> None:
    model, tokens = maker(SMALL)(), torch.zeros(3, 5, dtype=torch.long)
    with refused("at least 2 sequences", "got 1"):
        shapley_heads(model, tokens[:1])
    for wrong in (0, 3, 2.5, 10**9):
        with refused(f"n_permutations={wrong}"):
            shapley_heads(model, tokens, n_permutations=wrong)
    with refused("n_permutations=33", "even"):
        shapley_heads(model, tokens, n_permutations=33)


def test_it_is_saved_and_read_again(tmp_path) -> None:
    model = maker(SMALL)()
    found = shapley_heads(model, torch.zeros(3, 5, dtype=torch.long), how="zero")
    found.save(tmp_path / "s.safetensors")
    again = aotlens.results.load(tmp_path / "s.safetensors", ShapleyValues)
    np.testing.assert_array_equal(again.values, found.values)
    figure = aotlens.plot(again)
    assert [trace.name for trace in figure.data] == ["Shapley value", "alone", "after all others"]
