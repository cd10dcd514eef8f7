"""Pattern consistency against sums over every sequence and the others' mean, and heads that share a pattern."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial.distance
import torch
from torch import Tensor

from aotlens.heads import pattern_consistency, repeated_patterns
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig

TOKENS = torch.randint(0, 15, (5, 9), generator=torch.Generator().manual_seed(2))


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
    found = pattern_consistency(model, TOKENS, batch_size=2)
    _, cache = model.run_with_cache(TOKENS)
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
    found = pattern_consistency(small(n_layers=1, phi="fixed", fixed_pattern="given", pattern=patterns), TOKENS)
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
    found = pattern_consistency(model, TOKENS, batch_size=5)
    assert found.values[0, 0] > 0.99 and found.without_first[0, 0] < 0.6
    assert found.left_out[0, 0] == pytest.approx(1 / 7)
    model.reset_hooks(including_permanent=True)


def test_a_bridge_has_the_pattern_consistency_of_its_model() -> None:
    model = small(sharp=9.0).float()
    ours, theirs = (pattern_consistency(each, TOKENS) for each in (model, to_transformer_lens(model)))
    np.testing.assert_allclose(theirs.values, ours.values, atol=1e-4)
    np.testing.assert_allclose(theirs.without_first, ours.without_first, atol=1e-4)
    with pytest.raises(ValueError, match="at least 2 windows"):
        pattern_consistency(model, TOKENS[:1])


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
    found = repeated_patterns(models, TOKENS[:2], names=["a", "b"])
    assert {frozenset(found.members(group)) for group in range(3)} == {
        frozenset({("a", (0, 0)), ("b", (0, 1))}),
        frozenset({("a", (0, 1)), ("b", (0, 0))}),
        frozenset({("a", (0, 2))}),
    }
    assert found.groups.max() == 2 and found.to_frame()["size"].tolist() == [2, 2, 2, 2, 1]
    rows = (previous[1:9, :9], other[1:9, :9])  # the distance of two heads, as scipy has it
    expected = np.mean([scipy.spatial.distance.jensenshannon(p, q, base=2) for p, q in zip(*rows, strict=True)])
    assert found.distances[0, 2] == pytest.approx(expected, abs=1e-6)
    assert len(np.unique(repeated_patterns(models, TOKENS[:2], distance=1.0).groups)) == 1


def test_what_cannot_be_grouped_is_named() -> None:
    with pytest.raises(ValueError, match="a name for each"):
        repeated_patterns([small()], TOKENS, names=["a", "b"])
    with pytest.raises(ValueError, match="rows sum to 1"):
        repeated_patterns([small(phi="linear")], TOKENS)
    with pytest.raises(ValueError, match="at least two heads"):
        repeated_patterns([small(n_layers=1, n_heads=1)], TOKENS)
