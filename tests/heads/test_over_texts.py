"""Heads that read other texts, and errors over documents: against models that are run on the texts in another order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from aotlens.heads import universality
from aotlens.heads.likeness import document_error, text_null
from aotlens.heads.universality import TESTS
from aotlens.models import AttentionOnlyTransformer
from aotlens.results.saved import from_plain, to_plain
from tests.heads.test_universality import TOKENS, fresh, make, permuted
from tests.messages import refused, says

CONTENT = TESTS.index(("ov", "content"))


@torch.no_grad()
def contents(model: AttentionOnlyTransformer, tokens: torch.Tensor) -> np.ndarray:
    """`[head, sequence · query · key]`, of length 1: patterns by the model's cache, without the first key and mean."""
    _, cache = model.run_with_cache(tokens)
    patterns = np.concatenate([cache["pattern", layer].transpose(0, 1).numpy().copy() for layer in range(2)])
    patterns[..., 0] = 0
    uniform = np.tril(np.ones((12, 12)), 0)
    uniform[:, 0] = 0
    patterns -= patterns.sum(-1, keepdims=True) * uniform / np.maximum(uniform.sum(-1, keepdims=True), 1)
    rows = (patterns - patterns.mean(1, keepdims=True)).reshape(len(patterns), -1)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.mark.parametrize("clusters", [None, "aabab"])
def test_surrogates_are_models_that_read_the_texts_in_other_orders(clusters: str | None) -> None:
    """Every order of five texts, and of those of one document: the second model is run on each."""
    tokens, models = TOKENS[:5], {"a": fresh(0), "b": fresh(1)}
    result = universality(models, tokens, n_permutations=4999, clusters=clusters)
    orders = [order for order in itertools.permutations(range(5))
              if clusters is None or all(clusters[a] == clusters[b] for a, b in enumerate(order))]  # fmt: skip
    assert len(orders) == (120 if clusters is None else 12)
    ov = result.of("ov")[:8, 8:]
    best = _best(ov)
    first = contents(models["a"], tokens)
    means = [float((first * contents(models["b"], tokens[list(order)])[best]).sum(1).mean()) for order in orders]
    assert means[0] == pytest.approx(result.observed[CONTENT], abs=1e-6)
    share = np.mean(np.array(means) >= means[0] - 1e-9)
    assert result.text_mean is not None and result.text_std is not None and result.text_p is not None
    assert result.text_mean[CONTENT] == pytest.approx(np.mean(means), abs=5 * np.std(means) / np.sqrt(4999))
    assert result.text_std[CONTENT] == pytest.approx(np.std(means), rel=0.05)
    assert result.text_p[CONTENT] == pytest.approx(share, abs=5 * np.sqrt(share / 4999))
    assert np.isnan(np.delete(result.text_p, CONTENT)).all()


def _best(alike: np.ndarray) -> list[int]:
    from scipy.optimize import linear_sum_assignment

    return [int(place) for place in linear_sum_assignment(-alike)[1]]


def test_heads_that_read_alike_are_told_from_those_that_share_distances() -> None:
    """The same model with permuted heads has the smallest p; p is said in words, in the headline's sentence."""
    model = make(seed=0)
    result = universality({"a": model, "b": permuted(model, [2, 0, 3, 1])}, TOKENS, n_permutations=99)
    assert result.text_p is not None and result.text_p[CONTENT] == 0.01
    says(result.beyond_distance, "are alike beyond their distances", "p = 0.01", "1.000")
    assert result.tests_frame().text_p[CONTENT] == 0.01


@pytest.mark.long
@pytest.mark.parametrize(("documents", "of_each"), [(12, 1), (4, 6)])
def test_a_shared_profile_alone_is_rarely_significant(documents: int, of_each: int) -> None:
    """400 simulations (standard error 1.1%) of three models with one profile by distance; documents differ by a third
    of the variance, which models do not share."""
    rng, found = np.random.default_rng(0), []
    clusters = np.repeat(np.arange(documents), of_each)
    pairs, owner = np.array([[0, 2], [1, 3], [0, 4], [1, 5], [2, 4], [3, 5]]), np.repeat(np.arange(3), 2)
    profile = np.tile(3 * rng.normal(size=(2, 1, 15)), (3, 1, 1))
    for _ in range(400):
        own = np.sqrt(0.3) * rng.normal(size=(6, documents, 15))[:, clusters]
        rows = profile + own + np.sqrt(0.7) * rng.normal(size=(6, len(clusters), 15))
        null = text_null(torch.as_tensor(rows), pairs, owner, clusters, 39, rng)
        unit = rows / np.linalg.norm(rows, axis=(1, 2), keepdims=True)
        observed = np.mean([(unit[a] * unit[b]).sum() for a, b in pairs])
        assert observed > 0.8 > 0.05 > null.std()  # alike by the profile, and so are surrogates
        found.append((1 + (null >= observed).sum()) / 40)
    assert 0.02 < np.mean(np.array(found) <= 0.05) < 0.08


@pytest.mark.parametrize("grouped_by", [("pattern", "ov"), ("content", "effect")])
@pytest.mark.parametrize("clusters", [None, [7, 7, 1, 3, 1, 1]])
def test_errors_over_documents_are_those_of_runs_without_each(
    grouped_by: tuple[str, str], clusters: list[int] | None
) -> None:
    models = {str(seed): fresh(seed) for seed in range(3)}
    result = universality(models, TOKENS, n_permutations=19, grouped_by=grouped_by, clusters=clusters)
    names = list(range(6)) if clusters is None else clusters
    without = [
        universality(models, TOKENS[[name != each for name in names]], n_permutations=19) for each in {*names}
    ]  # fmt: skip
    n = len(without)
    keys = [(result.models[place], head) for place, head in zip(result.model, result.heads, strict=True)]
    for group in result.groups[:3]:
        own = np.ix_(*2 * [[keys.index(head) for head in group.heads]])
        upper = np.triu_indices(len(group.heads), 1)
        for side, evidence in zip(("matched", "tested"), grouped_by, strict=True):
            means = [each.of(evidence)[own][upper].mean() for each in without]
            error = getattr(group, f"{side}_text_se")
            if evidence == "ov":
                assert np.isnan(error)
            else:
                assert error == pytest.approx(np.sqrt((n - 1) * np.var(means)), rel=1e-4)
                assert result.to_frame()[f"{side}_text_se"].iloc[result.groups.index(group)] == error


def test_errors_over_documents_are_the_spread_over_texts() -> None:
    """Six heads' rows of 400 simulated texts of ten unlike documents: errors beside the standard deviation of means."""
    rng, errors, means = np.random.default_rng(0), [], []
    clusters = np.repeat(np.arange(10), [2, 6] * 5)
    for _ in range(400):
        shared = rng.normal(size=(10, 8))[clusters] + rng.normal(size=(40, 8))
        rows = torch.as_tensor(shared + 1.5 * rng.normal(size=(3, 40, 8)))
        errors.append(document_error(rows, "pattern", clusters))
        unit = rows.flatten(1) / rows.flatten(1).norm(dim=1, keepdim=True)
        means.append(float((unit @ unit.T)[*np.triu_indices(3, 1)].mean()))
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(means), rel=0.2)
    assert np.isnan(document_error(rows, "pattern", np.arange(40) % 2))


def test_results_from_before_are_read() -> None:
    result = universality({"a": fresh(0), "b": fresh(1)}, TOKENS, n_permutations=19)
    tensors: dict[str, torch.Tensor] = {}
    plain = to_plain(result, tensors)
    for name in ("text_mean", "text_std", "text_p"):
        tensors.pop(plain["fields"].pop(name)["array"])
    for group in plain["fields"]["groups"]:
        del group["fields"]["matched_text_se"], group["fields"]["tested_text_se"]
    old = from_plain(plain, tensors)
    assert old.beyond_distance == "" and old.tests_frame().text_p.isna().all() and old.headline == result.headline
    assert np.isnan(old.groups[0].matched_text_se) and old.to_frame().columns.equals(result.to_frame().columns)


def test_documents_of_another_number_are_refused() -> None:
    with refused("clusters", "each of 6 sequences", "got 2"):
        universality({"a": fresh(0), "b": fresh(1)}, TOKENS, clusters=[0, 1])
