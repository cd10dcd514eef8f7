"""Sets of heads on circuits built by hand: the search against trying all sets, Shapley values against all orders, and
each head alone against `ablate`."""

from __future__ import annotations

import itertools
import math
from functools import cache
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.data.windows import held_out_rows
from aotlens.heads import Metric, ablate, ablate_each, shapley_heads, sufficient_heads
from aotlens.heads.replacement import HOWS
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction, repeated
from tests.messages import refused, says
from tests.small_models import SMALL, maker

M = 6


def measure_of(model: AttentionOnlyTransformer, tokens: Tensor, how: str, **fields: Any):
    """All heads, and m(S) from `ablate`, set by set: another path through the code."""
    heads = list(np.ndindex(model.cfg.n_layers, model.cfg.n_heads))

    @cache
    def measure(kept: frozenset[tuple[int, int]]) -> float:
        rest = [head for head in heads if head not in kept]
        result = ablate(model, tokens, rest or heads, how, **fields)
        return result.ablated_mean if rest else result.clean_mean

    return heads, measure


def faithfulness_of(model: AttentionOnlyTransformer, tokens: Tensor, targets: Tensor | None, how: str):
    heads, measure = measure_of(model, tokens, how, targets=targets)
    nothing, everything = measure(frozenset()), measure(frozenset(heads))
    return heads, lambda kept: (measure(frozenset(kept)) - nothing) / (everything - nothing)


@pytest.mark.parametrize("decoys", [1, 3])
def test_exactly_the_two_heads_of_an_induction_circuit(decoys: int) -> None:
    model = induction(M, 5.0, decoys=decoys)
    tokens, targets = repeated(M, 12)
    found = sufficient_heads(model, tokens, targets, how="position_mean")
    assert found.heads == ((0, decoys), (1, decoys))
    assert found.necessary_within == found.necessary_in_model == ("necessary", "necessary")
    assert found.faithfulness > 0.95 and found.n_searched == found.n_held_out == 6
    low, high = found.interval
    assert low <= found.faithfulness <= high
    for head in found.heads:
        assert ablate(model, tokens, head, "position_mean", targets=targets).change > 0.5  # copying is gone
    frame = found.to_frame()
    assert list(frame["necessary_in_model"]) == ["necessary", "necessary"] and "keep at least 0.9" in found.headline


def test_two_circuits_that_do_the_same_are_necessary_in_the_set_alone() -> None:
    model = induction(M, 9.0, copies=2, decoys=1)
    tokens, targets = repeated(M, 12)
    found = sufficient_heads(model, tokens, targets)
    assert len(found.heads) == 2 and {head for _, head in found.heads} in ({1}, {2})
    assert found.necessary_within == ("necessary",) * 2 and "necessary" not in found.necessary_in_model
    assert (found.without > 0.9).all() and (found.within < 0.5).all()


@pytest.mark.parametrize("seed", range(2))
def test_against_all_sets_of_six_heads(seed: int) -> None:
    model = maker({**SMALL, "n_heads": 3}, dtype=torch.float64, seed=seed)()
    tokens = torch.randint(SMALL["d_vocab"], (10, 8), generator=torch.Generator().manual_seed(seed))
    own = model(tokens).argmax(-1)  # its own predictions, which it makes worse without heads
    heads, value = faithfulness_of(model, tokens, own, "zero")
    found = sufficient_heads(model, tokens, own, how="zero", keep=0.8, held_out=0.0)
    sets = chain.from_iterable(combinations(heads, size) for size in range(len(heads) + 1))
    smallest = min(len(kept) for kept in sets if value(kept) >= 0.8)
    assert value(found.heads) == pytest.approx(found.searched, abs=1e-9) and found.searched >= 0.8
    assert smallest <= len(found.heads) <= smallest + 1 and len(found.heads) == min(found.sizes)
    assert found.n_held_out == 0 and found.faithfulness == found.searched
    rest = set(heads)
    for head, within, without in zip(found.heads, found.within, found.without, strict=True):
        assert within == pytest.approx(value(set(found.heads) - {head}), abs=1e-9)
        assert without == pytest.approx(value(rest - {head}), abs=1e-9)


@pytest.mark.parametrize("how", ["zero", "mean", "position_mean", "uniform", "fixed_pattern", "resample"])
def test_every_replacement_and_a_metric_of_ones_own(how: str) -> None:
    model = induction(M, 5.0, decoys=1)
    tokens, _ = repeated(M, 10)

    def right(logits: torch.Tensor, targets: torch.Tensor | None) -> torch.Tensor:
        assert targets is not None
        return logits[:, -2].gather(1, targets[:, -1:]).squeeze(1)

    # Patterns of the mean over so alike sequences change next to nothing in three of them.
    held_out = 0.0 if how == "fixed_pattern" else 0.3
    found = sufficient_heads(model, tokens, tokens, right, how=how, reference=tokens, held_out=held_out)
    assert found.unit == "right" and found.searched >= 0.9 and len(found.heads) <= 2


def test_what_cannot_be_searched_is_named() -> None:
    model = induction(M, 5.0)
    tokens, targets = repeated(M, 8)
    for fields, message in (
        ({"keep": 0.0}, "keep=0.0"),
        ({"held_out": 1.0}, "held_out=1.0"),
        ({"held_out": 0.9}, "at least 2 sequences to search"),
        ({"metric": lambda logits, _: torch.arange(len(logits)) * 1.0}, "no set of heads keeps anything"),
        ({"how": "median"}, "how='median'"),
    ):
        with pytest.raises(ValueError, match=message):
            sufficient_heads(model, tokens, targets, **fields)  # type: ignore[arg-type]


def test_no_effect_on_the_other_sequences_is_refused_too() -> None:
    model = induction(M, 5.0)
    tokens, targets = repeated(M, 8)
    unseen = torch.randperm(8, generator=torch.Generator().manual_seed(0))[:4]  # those that check
    targets[unseen, 0] = 1  # a mark that the measure reads

    def right(logits: torch.Tensor, targets: torch.Tensor | None) -> torch.Tensor:
        assert targets is not None
        effect = logits[:, -2].gather(1, targets[:, -2:-1].clamp(min=0)).squeeze(1)
        return torch.where(targets[:, 0] == 1, 0.0, effect)

    with refused("4 held-out sequences", "no set"):
        sufficient_heads(model, tokens, targets, right)
    assert sufficient_heads(model, tokens, targets, right, held_out=0).heads


def test_progress_counts_the_sets() -> None:
    seen: list[tuple[int, int]] = []
    tokens, targets = repeated(M, 8)
    found = sufficient_heads(
        induction(M, 5.0), tokens, targets, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == found.n_runs and all(done <= total for done, total in seen)
    assert np.isfinite(found.interval).all()


@pytest.mark.parametrize("seed", range(5))
def test_whole_documents_are_held_out_where_there_are_enough(seed: int) -> None:
    clusters = np.repeat(np.arange(8), [9, 1, 4, 4, 6, 2, 3, 3])
    aside = held_out_rows(32, 0.5, clusters, seed).numpy()
    shares = [aside[clusters == one].mean() for one in range(8)]
    assert set(shares) == {0.0, 1.0} and 3 <= sum(shares) <= 5 and abs(aside.sum() - 16) <= 4
    few = held_out_rows(32, 0.5, np.repeat(np.arange(5), [12, 5, 5, 5, 5]), seed)
    assert (few == held_out_rows(32, 0.5, None, seed)).all() and few.sum() == 16
    assert not held_out_rows(32, 0.0, clusters, seed).any()


def by_orders(model: AttentionOnlyTransformer, tokens: torch.Tensor, how: str, metric: object = None) -> np.ndarray:
    """The mean over all orders of what each head adds, `[head]`, by `ablate`, set by set."""
    heads, measure = measure_of(model, tokens, how, metric=metric)
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


def test_the_figure_has_the_three_values() -> None:
    figure = aotlens.plot(shapley_heads(maker(SMALL)(), torch.zeros(3, 5, dtype=torch.long), how="zero"))
    assert [trace.name for trace in figure.data] == ["Shapley value", "alone", "after all others"]


make = maker({**SMALL, "n_layers": 3, "norm": "layernorm", "bias": True}, dtype=torch.float64)
TOKENS = torch.randint(SMALL["d_vocab"], (5, 7), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("positions", ["learned", "qk"])
def test_each_is_what_ablate_gives(how: str, positions: str) -> None:
    model = make(positions=positions)
    found = ablate_each(model, TOKENS, how, batch_size=2, seed=4)
    assert found.heads == tuple(np.ndindex(3, 3)) and found.unit == "nats"
    frame = found.to_frame()
    for place, head in enumerate(found.heads):
        alone = ablate(model, TOKENS, head, how, seed=4)
        np.testing.assert_allclose(found.ablated[place], alone.ablated, atol=1e-10)
        np.testing.assert_allclose(found.clean, alone.clean, atol=1e-10)
        np.testing.assert_allclose(frame.loc[place, ["low", "high"]].astype(float), alone.interval(), atol=1e-10)
    assert np.ptp(found.changes) > 1e-4


def test_targets_padding_metrics_and_some_heads() -> None:
    model = make(d_mlp=6)
    mask = torch.ones_like(TOKENS, dtype=torch.bool)
    mask[0, 5:] = False
    targets = TOKENS.flip(1).masked_fill(TOKENS == 3, -100)
    options: dict[str, Any] = {"targets": targets, "attention_mask": mask, "reference": TOKENS.flip(0)}
    found = ablate_each(model, TOKENS, "mean", heads=["2.1", (0, 2)], **options)
    assert found.heads == ((0, 2), (2, 1))
    for place, head in enumerate(found.heads):
        np.testing.assert_allclose(found.ablated[place], ablate(model, TOKENS, head, "mean", **options).ablated)

    def last(logits: Tensor, targets: Tensor | None) -> Tensor:
        return logits[:, -1, 2]

    by_metric = ablate_each(model, TOKENS, metric=last)
    np.testing.assert_allclose(by_metric.ablated[4], ablate(model, TOKENS, "1.1", metric=last).ablated)
    assert by_metric.unit == "last" and "changes it most" in by_metric.headline  # which way is better is not said
    changes = dict(zip(by_metric.heads, by_metric.changes, strict=True))
    for higher, missed in (
        (True, min(changes, key=changes.__getitem__)),
        (False, max(changes, key=changes.__getitem__)),
    ):
        metric = Metric(measure=last, unit="logits", higher_is_better=higher)
        signed = ablate_each(model, TOKENS, metric=metric)
        says(signed.headline, f"head {missed[0]}.{missed[1]} is missed most", f"{changes[missed]:+.4f} logits")
    with pytest.raises(ValueError, match=r"head 3\.0"):
        ablate_each(model, TOKENS, heads="3.0")


def test_earlier_layers_are_not_computed_again() -> None:
    model = make()
    runs = [0, 0, 0]
    handles = [
        block.attn.register_forward_hook(lambda *_, layer=layer: runs.__setitem__(layer, runs[layer] + 1))
        for layer, block in enumerate(model.blocks)
    ]
    ablate_each(model, TOKENS)
    assert runs == [1 + 3, 1 + 6, 1 + 9]
    for handle in handles:
        handle.remove()


def test_a_model_run_from_a_layer_on_is_the_whole_model() -> None:
    for positions in ("learned", "qk", None):
        model = make(positions=positions, d_mlp=6)
        logits, cache = model.run_with_cache(TOKENS)
        for layer in range(3):
            resid_pre = cache["resid_pre", layer]
            torch.testing.assert_close(model(TOKENS, start_at_layer=layer, resid_pre=resid_pre), logits)
            loss = model(TOKENS, return_type="loss", targets=TOKENS, start_at_layer=layer, resid_pre=resid_pre)
            torch.testing.assert_close(loss, model(TOKENS, return_type="loss", targets=TOKENS))
        with refused("start_at_layer=3", "0 to 2"):
            model(TOKENS, start_at_layer=3, resid_pre=resid_pre)
        with refused("stream"):
            model(TOKENS, start_at_layer=1)
