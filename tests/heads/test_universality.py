"""Heads of several models: similarities against definitions, planted and permuted heads found, chance left alone."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from aotlens.heads import kinds, universality
from aotlens.heads.kinds import kinds_differ
from aotlens.heads.universality import TESTS
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from benchmarks import kinds as kinds_benchmark
from tests.cases import mostly_long
from tests.messages import refused, says
from tests.small_models import SMALL, maker

SIZES = {**SMALL, "n_heads": 4, "d_model": 16, "d_head": 4, "n_ctx": 12, "d_vocab": 24, "norm": None}
make = maker(SIZES, dtype=torch.float64)
TOKENS = torch.randint(24, (6, 12), generator=torch.Generator().manual_seed(4))


def fresh(seed: int, **sizes: Any) -> AttentionOnlyTransformer:
    """A model that shares nothing with those of other seeds, with weights that matter; `make` adds the same noise."""
    model = AttentionOnlyTransformer(ModelConfig(**{**SIZES, **sizes}, seed=seed)).double().requires_grad_(False)
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.mul_(4.0)
    return model


def permuted(model: AttentionOnlyTransformer, order: list[int]) -> AttentionOnlyTransformer:
    """The same model with the heads of each layer in another order."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for block in other.blocks:
            for name, weight in block.attn.named_parameters():
                if weight.ndim > 1 or name.startswith("b_Q"):
                    weight.copy_(weight[order].clone())
    return other


@torch.no_grad()
def test_similarities_are_what_they_are_said_to_be() -> None:
    models = {"a": make(seed=0), "b": make(seed=1)}
    result = universality(models, TOKENS, n_permutations=19)
    attention, effects, written = [], [], []
    for model in models.values():
        whole = model.loss_per_token(TOKENS)
        _, cache = model.run_with_cache(TOKENS)
        for layer, head in itertools.product(range(2), range(4)):
            pattern = cache["pattern", layer][:, head].clone()
            pattern[:, :, 0] = 0
            uniform = torch.zeros(12, 12).double()
            for query in range(1, 12):
                uniform[query, 1 : query + 1] = 1 / query
            attention.append((pattern - pattern.sum(-1, keepdim=True) * uniform).numpy())
            other = copy.deepcopy(model)
            other.blocks[layer].attn.W_O[head] = 0
            effects.append((other.loss_per_token(TOKENS) - whole).numpy().ravel())
            out = model.W_O[layer, head] @ model.W_U
            out = out - out.mean(-1, keepdim=True)
            basis = np.linalg.svd(out.numpy(), full_matrices=False)[2]
            written.append(basis.T @ basis)
    content = [each - each.mean(0) for each in attention]
    for name, rows in (("pattern", attention), ("content", content)):
        flat = np.stack([row.ravel() for row in rows])
        flat /= np.linalg.norm(flat, axis=1, keepdims=True)
        np.testing.assert_allclose(result.of(name), flat @ flat.T, atol=1e-5)
    np.testing.assert_allclose(result.of("effect"), np.corrcoef(effects), atol=1e-6)
    overlap = [[np.sum(p * q) / 4 for q in written] for p in written]
    np.testing.assert_allclose(result.of("written"), overlap, atol=1e-6)


def test_the_same_model_with_permuted_heads_is_found_whole() -> None:
    model, order = make(seed=0), [2, 0, 3, 1]
    result = universality({"a": model, "b": permuted(model, order)}, TOKENS, n_permutations=199)
    assert (result.p <= 0.01).all()  # of 4!² ways to permute one draw in 576 is the match itself
    pairs = {group.heads for group in result.groups}
    expected = {(("a", (layer, old)), ("b", (layer, new))) for layer in range(2) for new, old in enumerate(order)}
    assert pairs == expected
    assert all(group.matched == pytest.approx(1.0) and group.tested == pytest.approx(1.0) for group in result.groups)


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_head_is_found_in_every_model(seed: int) -> None:
    """Four models with the same embeddings and other heads but one, which stands elsewhere in each."""
    places = [0, 3, 1, 2]
    models = {}
    first = fresh(100 * seed)
    for number, place in enumerate(places):
        model = fresh(100 * seed + number)
        with torch.no_grad():
            for name in ("W_E", "W_U", "W_pos"):
                getattr(model, name).copy_(getattr(first, name))
            for name, weight in model.blocks[0].attn.named_parameters():
                if weight.ndim > 1:
                    weight[place] = dict(first.blocks[0].attn.named_parameters())[name][0]
        models[str(number)] = model
    result = universality(models, TOKENS, n_permutations=199, seed=seed)
    planted = tuple((str(number), (0, place)) for number, place in enumerate(places))
    found = {group.heads: group for group in result.groups}
    assert planted in found
    assert found[planted].matched == pytest.approx(1.0) and found[planted].tested == pytest.approx(1.0)
    assert found[planted].q == min(group.q for group in result.groups)
    assert found[planted].se == pytest.approx(0.0, abs=1e-6)


def test_pairs_and_layers_sum_up_to_the_whole() -> None:
    result = universality({str(seed): fresh(seed) for seed in range(3)}, TOKENS, n_permutations=19)
    pairs = result.pair_means[:, *np.triu_indices(3, 1)]
    np.testing.assert_allclose(pairs.mean(1), result.observed, atol=1e-12)
    np.testing.assert_allclose(result.by_layer.mean(1), result.observed, atol=1e-12)
    assert 0 <= result.closed <= 1
    heads = [head for group in result.groups for head in group.heads]
    assert len(heads) == len(set(heads))
    assert len(result.to_frame()) == len(result.groups)


def test_the_heads_of_every_two_models_are_paired_and_tested_as_by_all_permutations() -> None:
    models = {str(seed): fresh(seed, n_heads=3) for seed in range(3)}
    result = universality(models, TOKENS, n_permutations=999, grouped_by=("qk", "ov"))
    frame, test = result.pairs_frame(), result.tests.index(("qk", "ov"))
    everyone = list(itertools.product(range(2), range(3)))
    for a, b in itertools.combinations(range(3), 2):
        block = np.ix_(result.model == a, result.model == b)
        qk, ov = result.of("qk")[block], result.of("ov")[block]
        best = max(itertools.permutations(range(6)), key=lambda order: qk[range(6), order].sum())
        rows = frame[(frame.left_model == str(a)) & (frame.right_model == str(b))]
        assert [(row.left, row.right) for row in rows.itertuples()] == [
            (f"{layer}.{head}", "{}.{}".format(*everyone[other]))
            for (layer, head), other in zip(everyone, best, strict=True)
        ]
        for row, left in zip(rows.itertuples(), range(6), strict=True):
            assert (row.matched, row.tested) == (qk[left, best[left]], ov[left, best[left]])
            layers = everyone[left][0], everyone[best[left]][0]
            alike = [ov[i, j] for i in range(6) for j in range(6) if (everyone[i][0], everyone[j][0]) == layers]
            assert row.p == sum(value >= row.tested for value in alike) / 9
        null = []  # every way to permute the heads within both layers of both models
        for orders in itertools.product(itertools.permutations(range(3)), repeat=4):
            left, right = ([*order, *(3 + head for head in second)] for order, second in (orders[:2], orders[2:]))
            null.append(np.mean([ov[left[i], right[best[i]]] for i in range(6)]))
        observed = ov[range(6), best].mean()
        p = np.mean(np.array(null) >= observed - 1e-12)
        assert (rows["mean"] == observed).all()
        assert rows.p_models.iloc[0] == result.pair_p[test, a, b] == result.pair_p[test, b, a]
        assert result.pair_p[test, a, b] == pytest.approx(p, abs=0.002 + 4 * np.sqrt(p * (1 - p) / 999))
    untested = universality(models, TOKENS, n_permutations=19, grouped_by=("pattern", "effect"))
    assert "p_models" not in untested.pairs_frame()


def test_the_excess_of_a_layer_and_its_interval_are_those_of_runs_without_each_model() -> None:
    """The jackknife against `universality` itself on all models but one, and Student's t by scipy."""
    models = {str(seed): fresh(seed, n_layers=3) for seed in range(4)}
    result = universality(models, TOKENS, n_permutations=19)
    left = []
    for name in models:
        others = universality({other: models[other] for other in models if other != name}, TOKENS, n_permutations=19)
        left.append(others.by_layer - others.by_layer_null)
    np.testing.assert_allclose(result.by_layer_without, np.stack(left, 1), atol=1e-12)
    frame = result.layers_frame().query("matched == 'pattern' and tested == 'ov'")
    of_layers = np.stack(left)[:, 0]
    np.testing.assert_allclose(frame.excess, frame.observed - frame.null_mean, atol=1e-12)
    reach = scipy.stats.t(3).ppf(0.975) * np.sqrt(3 * of_layers.var(0))
    np.testing.assert_allclose(frame.high - frame.excess, reach, atol=1e-12)
    np.testing.assert_allclose(frame.excess - frame.low, reach, atol=1e-12)
    rise = frame.excess.iloc[2] - frame.excess.iloc[0]  # the middle layer is in neither half
    dip = frame.excess.iloc[1] - (frame.excess.iloc[0] + frame.excess.iloc[2]) / 2
    says(result.layer_trend, f"by {rise:+.3f}", f"by {dip:+.3f}", f"{frame.excess.max():+.3f}")
    two = universality({"0": models["0"], "1": models["1"]}, TOKENS, n_permutations=19)
    assert two.layers_frame()[["low", "high"]].isna().to_numpy().all() and "fewer than three models" in two.layer_trend


@pytest.mark.parametrize(("middle", "said"), [(1.0, "more"), (-1.0, "less")])
def test_the_sign_of_a_difference_is_that_of_its_word(middle: float, said: str) -> None:
    values = np.array([0.0, middle, 0.0])
    trend = kinds.trend_sentence(values, np.tile(values, (4, 1)))
    says(trend, f"{said} in middle layers than in outer ones, by {middle:+.3f}")


def test_a_layer_without_assigned_heads_leaves_the_trend_unsaid_and_is_named() -> None:
    says(
        kinds.trend_sentence(np.array([0.1, np.nan, 0.2]), np.full((4, 3), 0.1)),
        "no head of layer 1",
        "Nothing is said",
    )


def test_a_layer_that_one_model_has_leaves_the_trend_unsaid_and_says_so() -> None:
    models = {"0": fresh(0), "1": fresh(1), "2": fresh(2, n_layers=3)}
    trend = universality(models, TOKENS, n_permutations=19).layer_trend
    says(trend, "without one of the models a layer has no pairs")
    assert "fewer than three" not in trend


def test_a_layer_in_which_heads_come_again_is_told_from_one_in_which_they_do_not() -> None:
    """Four models that share their first layer and the embeddings: heads come again less in the later one."""
    first, models = fresh(0), {}
    for seed in range(4):
        models[str(seed)] = model = fresh(seed)
        with torch.no_grad():
            for name in ("W_E", "W_U", "W_pos"):
                getattr(model, name).copy_(getattr(first, name))
            for name, weight in model.blocks[0].attn.named_parameters():
                weight.copy_(dict(first.blocks[0].attn.named_parameters())[name])
    result = universality(models, TOKENS, n_permutations=19)
    says(result.layer_trend, "in layer 0, the most", "less in later layers than in earlier ones")


def test_intervals_over_models_hold_the_truth_as_often_as_said() -> None:
    """Similarities of five models, each layer of each with an effect of its own: 95% intervals in 300 simulations."""
    random, held = np.random.default_rng(0), []
    owner, layers = np.repeat(np.arange(5), 2), np.tile([0, 1], 5)
    for _ in range(300):
        noise, own = np.triu(random.normal(size=(2, 5, 5)), 1), random.normal(size=(2, 5))
        alike = noise + noise.transpose(0, 2, 1) + own[:, :, None] + own[:, None]
        by_model = np.where(np.eye(5)[owner], np.nan, alike[layers, owner])
        rise = np.array([-1.0, 1.0])
        without = kinds.without_each_model(by_model, owner, layers) @ rise
        _, low, high = kinds.layer_interval(float(kinds.by_layer(by_model, layers) @ rise), without)
        held.append(low <= 0 <= high)
    assert 0.91 < np.mean(held) < 0.99


def test_kinds_are_compared_over_models_or_left_undecided() -> None:
    models = {f"mhsa {seed}": fresh(seed) for seed in range(3)}
    twins = {f"mssa {seed}": fresh(seed, attention="mssa") for seed in range(3)}
    result = universality({**models, **twins}, TOKENS, n_permutations=19)
    compared = result.compare_kinds("MHSA", "MSSA")
    says(dataclasses.replace(compared, p=np.full(len(result.tests), 0.2)).headline, "undecided")
    excess = np.zeros((3, 3))
    for a, b in itertools.combinations(range(3), 2):
        rows = result.pairs_frame().query(f"left_model == 'mhsa {a}' and right_model == 'mhsa {b}'")
        ov = result.of("ov")[np.ix_(result.model == a, result.model == b)].reshape(2, 4, 2, 4)
        layers = [(int(row.left[0]), int(row.right[0])) for row in rows.itertuples()]
        excess[a, b] = excess[b, a] = np.mean([row.tested - ov[left, :, right].mean()
                                               for row, (left, right) in zip(rows.itertuples(), layers, strict=True)])  # fmt: skip  # noqa: E501
    assert result.grouped_by == result.tests[0] == ("pattern", "ov")
    np.testing.assert_allclose(compared.first[0], excess.sum(1) / 2, atol=1e-12)
    np.testing.assert_allclose(compared.means[0, 0], result.pair_means[0, *np.triu_indices(3, 1)].mean())
    assert np.isnan(compared.p).all() and compared.sizes == (3, 3), "five models of each kind are needed"
    says(compared.headline, "not tested: fewer than 5 models of a kind", "standard deviations of permuted heads")
    says(result.by_kind, "MHSA", "MSSA", f"({compared.standardised[0, 0]:.1f} standard deviations")  # type: ignore[index]
    permuted = result.observed[0] - np.mean(result.pair_excess[0, *np.triu_indices(6, 1)])
    assert abs(permuted - result.null_mean[0]) < 4 * result.null_std[0] / np.sqrt(19)
    named = {name: "first" if name.endswith(("0", "1")) else "other" for name in result.models}
    grouped = universality({**models, **twins}, TOKENS, n_permutations=19, kinds=named)
    own = [place for place, name in enumerate(grouped.models) if named[name] == "first"]
    within = grouped.pair_excess[0][np.ix_(own, own)]
    np.testing.assert_allclose(grouped.compare_kinds("first", "other").first[0], np.nansum(within, 1) / 3)
    with refused("kinds", "'mhsa 1'"):
        universality(models, TOKENS, kinds={"mhsa 0": "first", "mhsa 2": "other"})
    with refused("two kinds, got one"):
        result.compare_kinds("MHSA", "MHSA")
    with refused("'GPT'", "MHSA, MSSA"):
        result.compare_kinds("MHSA", "GPT")


@pytest.mark.parametrize(
    "null", mostly_long(kinds_benchmark.NULLS, (*kinds_benchmark.NULLS[:2], kinds_benchmark.NULLS[-1]))
)
def test_kinds_that_do_not_differ_are_told_apart_as_often_as_said(null: str) -> None:
    """5 + 5 models: p ≤ .05 in at most 7% (standard error .012), and a large difference is found."""
    level, power = kinds_benchmark.rates(null, (5, 5), 300)
    assert level <= 0.075 and power > 0.6


def test_the_standardised_effect_of_a_kind_is_that_of_its_models_alone() -> None:
    """Against `universality` of the models of one kind, whose permutations are others."""
    models = {f"{kind} {seed}": fresh(seed, attention=kind) for kind in ("mhsa", "mssa") for seed in range(3)}
    compared = universality(models, TOKENS, n_permutations=999).compare_kinds("MHSA", "MSSA")
    for place, kind in enumerate(("mhsa", "mssa")):
        own = {name: model for name, model in models.items() if name.startswith(kind)}
        alone = universality(own, TOKENS, n_permutations=999, seed=1)
        assert compared.standardised is not None
        np.testing.assert_allclose(compared.standardised[:, place], alone.standardised, rtol=0.12, atol=0.15)
        frame = alone.tests_frame()
        np.testing.assert_allclose(frame.standardised, (frame.observed - frame.null_mean) / frame.null_std)


def test_pairs_across_kinds_do_not_count_and_two_models_say_nothing() -> None:
    """Against scipy's Welch test of pseudo-values that are made of each U₋ᵢ, for every split of the models."""
    random = np.random.default_rng(0).normal(size=(10, 10))
    pairs = random + random.T + 3 * np.equal.outer([0] * 5 + [1] * 5, [0] * 5 + [1] * 5)
    pairs[:5, 5:] = pairs[5:, :5] = pairs[range(10), range(10)] = np.nan
    pairs[5:, 5:] += 0.7

    def t_test(first: set[int], within: np.ndarray) -> Any:
        pseudo: list[list[float]] = [[], []]
        for values, own in zip(pseudo, (first, {*range(10)} - first), strict=True):

            def mean(models: set[int]) -> float:
                return float(np.mean([within[a, b] for a, b in itertools.combinations(sorted(models), 2)]))

            values += [5 * mean(own) - 4 * mean(own - {model}) for model in sorted(own)]
        return scipy.stats.ttest_ind(*pseudo, equal_var=False)

    assert kinds_differ(pairs, 5) == pytest.approx(t_test({*range(5)}, pairs).pvalue)
    for sizes in ((4, 4), (3, 6), (6, 4)):  # five of each are needed
        assert np.isnan(kinds_differ(pairs[: sum(sizes), : sum(sizes)], sizes[0]))
    whole = np.where(np.isnan(pairs), 0.3, pairs)  # with pairs across kinds, permutations have to confirm it
    own = t_test({*range(5)}, whole)
    permuted = [abs(t_test({*each}, whole).statistic) for each in itertools.combinations(range(10), 5)]
    exact = np.mean(np.array(permuted) >= abs(own.statistic) - 1e-9)
    assert kinds_differ(whole, 5) == pytest.approx(max(exact, own.pvalue)) and len(permuted) == 252
    pairs[0, 1] = np.nan
    assert np.isnan(kinds_differ(pairs, 5))


def test_heads_that_write_nothing_are_like_none_and_narrow_ones_by_their_rank() -> None:
    models = {str(seed): fresh(seed) for seed in range(2)}
    direction = torch.randn(models["0"].cfg.d_model, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for model in models.values():
            attn = model.blocks[0].attn
            attn.W_O[0] = 0
            attn.W_O[1] = torch.outer(torch.arange(1.0, attn.W_O.shape[1] + 1), direction)
    written = universality(models, TOKENS, n_permutations=19).of("written")
    first, second = 0, len(written) // 2
    assert written[first, second] == written[first, first] == 0 and not written[first].any()
    alike = [direction.to(model.W_U) @ model.W_U for model in models.values()]
    expected = torch.cosine_similarity(*(each - each.mean() for each in alike), dim=0).square()
    assert written[first + 1, second + 1] == pytest.approx(float(expected), abs=1e-4)


def test_what_cannot_be_compared_is_refused() -> None:
    with refused("'motif'", "written"):
        universality({"a": make(), "b": make(seed=1)}, TOKENS, n_permutations=19).of("motif")
    with refused("at least two models", "got a"):
        universality({"a": make()}, TOKENS)
    with refused("grouped_by", "'motif'"):
        universality({"a": make(), "b": make(seed=1)}, TOKENS, grouped_by=("motif", "ov"))
    with refused("vocabularies of 24 and 25"):
        universality({"a": make(), "b": make(d_vocab=25)}, TOKENS)


@pytest.mark.long
def test_independent_models_are_rarely_significant() -> None:
    """p ≤ .05 in 5% of 600 pairs of models that share nothing (standard error .9%)."""
    generator = torch.Generator().manual_seed(0)
    p = []
    for number in range(600):
        tokens = torch.randint(24, (6, 12), generator=generator)
        models = {"a": fresh(2 * number), "b": fresh(2 * number + 1)}
        p.append(universality(models, tokens, n_permutations=99, seed=number).p)
    rates = (np.array(p) <= 0.05).mean(0)
    assert len(rates) == len(TESTS) and (rates > 0.02).all() and (rates < 0.08).all(), rates
