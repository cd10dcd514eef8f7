"""Surrogates and errors over texts, the consistency of patterns, and heads that share one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.spatial.distance
import torch
from torch import Tensor

from aotlens.heads import pattern_consistency, repeated_patterns, universality
from aotlens.heads.likeness import document_error, text_null
from aotlens.heads.universality import TESTS
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
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


SEQUENCES = torch.randint(0, 15, (5, 9), generator=torch.Generator().manual_seed(2))


def small(*, sharp: float = 1.0, **changes: object) -> AttentionOnlyTransformer:
    fields = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 16, "d_vocab": 15}
    pattern = changes.pop("pattern", None)
    model = AttentionOnlyTransformer(ModelConfig(**(fields | changes)), pattern=pattern).double()
    with torch.no_grad():
        for block in model.blocks:
            if model.cfg.has_query_key and model.cfg.attention == "mhsa":
                block.attn.W_Q *= sharp
    return model


def by_loops(patterns: Tensor, causal: bool, first: int) -> float:
    """Of `[sequence, query, key]`, keys from `first` on, with every mean taken anew."""
    n, n_pos = patterns.shape[:2]
    above, below = 0.0, 0.0
    for q in range(n_pos):
        v = (q + 1 if causal else n_pos) - first
        if v < 2:
            continue
        rows = [row for s in range(n) if (row := patterns[s, q, first : first + v]).sum() >= (1e-3 if first else 0)]
        rows = [row / row.sum() if first else row for row in rows]
        for s, row in enumerate(rows if len(rows) > 1 else []):
            mean = torch.stack([other for t, other in enumerate(rows) if t != s]).mean(0)
            above += float((row - mean).square().sum())
            below += float((row - 1 / v).square().sum())
    return 1 - above / below


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"attention": "mssa"}], ids=["mhsa", "both sides", "mssa"])
def test_against_loops_over_sequences_and_queries(changes: dict[str, object]) -> None:
    model = small(sharp=25.0, **changes)
    found = pattern_consistency(model, SEQUENCES, batch_size=2)
    _, cache = model.run_with_cache(SEQUENCES)
    causal = not model.sees_later_keys
    for layer, head in np.ndindex(2, 3):
        pattern = cache["pattern", layer][:, head].detach()
        assert found.values[layer, head] == pytest.approx(by_loops(pattern, causal, 0), abs=1e-9)
        assert found.without_first[layer, head] == pytest.approx(by_loops(pattern, causal, 1), abs=1e-9)
        off_sink = pattern[:, 2 if causal else 0 :, 1:].sum(-1)  # the queries that see two keys beside key 0
        assert found.left_out[layer, head] == pytest.approx(float((off_sink < 1e-3).double().mean()))
    frame = found.to_frame()
    assert list(frame) == ["layer", "head", "pattern_consistency", "without_first", "left_out"] and len(frame) == 6


def test_a_pattern_of_positions_is_consistent_and_an_uniform_one_has_no_consistency() -> None:
    patterns = torch.softmax(torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)), -1).tril()
    patterns[0, 2] = torch.ones(16, 16).tril() / torch.arange(1, 17)[:, None]
    found = pattern_consistency(small(n_layers=1, phi="fixed", fixed_pattern="given", pattern=patterns), SEQUENCES)
    np.testing.assert_allclose(found.values[0, :2], 1, atol=1e-9)
    np.testing.assert_allclose(found.without_first[0, :2], 1, atol=1e-9)
    assert np.isnan(found.values[0, 2]) and np.isnan(found.without_first[0, 2]) and "nan" not in found.headline


def test_a_sink_hides_a_pattern_that_varies() -> None:
    """Sequence by sequence .99 goes to key 0 and the rest to a key that the tokens choose."""
    model = small(sharp=0.0, n_layers=1, n_heads=1)
    chosen: Tensor = torch.randint(1, 9, (5, 9), generator=torch.Generator().manual_seed(1)).clamp(max=torch.arange(9))

    def sink(pattern: Tensor, hook: object) -> Tensor:
        pattern = torch.zeros_like(pattern)
        pattern[:, 0, :, 0] = 0.99
        pattern[:, 0].scatter_add_(2, chosen[: len(pattern), :, None], torch.full_like(pattern[:, 0, :, :1], 0.01))
        pattern[:, 0, 5] = torch.nn.functional.one_hot(torch.tensor(0), 9).double()  # nothing off the sink
        return pattern

    model.add_hook("blocks.0.attn.hook_pattern", sink)
    found = pattern_consistency(model, SEQUENCES, batch_size=5)
    assert found.values[0, 0] > 0.99 and found.without_first[0, 0] < 0.6
    assert found.left_out[0, 0] == pytest.approx(1 / 7)
    model.reset_hooks(including_permanent=True)


def test_a_bridge_has_the_pattern_consistency_of_its_model() -> None:
    model = small(sharp=9.0).float()
    ours, theirs = (pattern_consistency(each, SEQUENCES) for each in (model, to_transformer_lens(model)))
    np.testing.assert_allclose(theirs.values, ours.values, atol=1e-4)
    np.testing.assert_allclose(theirs.without_first, ours.without_first, atol=1e-4)
    with pytest.raises(ValueError, match="at least 2 windows"):
        pattern_consistency(model, SEQUENCES[:1])


def test_heads_with_one_pattern_are_one_group_across_models() -> None:
    generator = torch.Generator().manual_seed(0)
    previous = torch.zeros(16, 16)
    previous[torch.arange(1, 16), torch.arange(15)] = 1.0
    previous[0, 0] = 1.0
    first = torch.zeros(16, 16)
    first[:, 0] = 1.0
    other = torch.rand(16, 16, generator=generator).tril()
    other /= other.sum(-1, keepdim=True)

    def model(*patterns: Tensor) -> AttentionOnlyTransformer:
        stack = torch.stack(patterns)[None]
        return small(n_layers=1, n_heads=len(patterns), phi="fixed", fixed_pattern="given", pattern=stack)

    models = [model(previous, first, other), model(first, 0.97 * previous + 0.03 * first)]
    found = repeated_patterns(models, SEQUENCES[:2], names=["a", "b"])
    assert {frozenset(found.members(group)) for group in range(3)} == {
        frozenset({("a", (0, 0)), ("b", (0, 1))}),
        frozenset({("a", (0, 1)), ("b", (0, 0))}),
        frozenset({("a", (0, 2))}),
    }
    assert found.groups.max() == 2 and found.to_frame()["size"].tolist() == [2, 2, 2, 2, 1]
    rows = (previous[1:9, :9], other[1:9, :9])  # the distance of two heads, as scipy has it
    expected = np.mean([scipy.spatial.distance.jensenshannon(p, q, base=2) for p, q in zip(*rows, strict=True)])
    assert found.distances[0, 2] == pytest.approx(expected, abs=1e-6)
    assert len(np.unique(repeated_patterns(models, SEQUENCES[:2], distance=1.0).groups)) == 1


def test_what_cannot_be_grouped_is_named() -> None:
    with pytest.raises(ValueError, match="a name for each"):
        repeated_patterns([small()], SEQUENCES, names=["a", "b"])
    with pytest.raises(ValueError, match="rows sum to 1"):
        repeated_patterns([small(phi="linear")], SEQUENCES)
    with pytest.raises(ValueError, match="at least two heads"):
        repeated_patterns([small(n_layers=1, n_heads=1)], SEQUENCES)
